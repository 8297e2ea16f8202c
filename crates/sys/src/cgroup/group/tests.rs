//! Weights, and real groups where this process may make them.

use super::*;
use crate::cgroup::Hierarchy;
use crate::process::{SpawnOptions, spawn};
use crate::schedule::allowed_cpus;
use std::time::Duration;

#[test]
fn weights_of_both_versions_are_exact_to_half_a_percent() {
    for (version, least_ppm) in [(Version::V1, 400), (Version::V2, 10_000)] {
        let (_, range) = version.weight();
        for ppm in (least_ppm..=WEIGHT_MAX_PPM).step_by(97) {
            let exact = f64::from(ppm) * f64::from(range.1) / f64::from(WEIGHT_MAX_PPM);
            let error = (f64::from(to_kernel(ppm, range)) - exact).abs() / exact;
            assert!(error <= 0.005, "{version:?} {ppm}: {error}");
        }
        assert_eq!(to_kernel(0, range), range.0);
        assert_eq!(to_kernel(WEIGHT_MAX_PPM, range), range.1);
        assert_eq!(to_kernel(u32::MAX, range), range.1);
    }
}

#[test]
fn errors_say_what_is_missing() {
    let of = |errno| CgroupError::of(Path::new("/cg/x"), &io::Error::from_raw_os_error(errno));
    assert_eq!(of(libc::EACCES), CgroupError::NoRight { file: "/cg/x".into() });
    assert!(of(libc::EACCES).to_string().contains("Delegate=cpu"));
    assert_eq!(of(libc::EBUSY), CgroupError::Busy { file: "/cg/x".into() });
    assert!(of(libc::ESRCH).is_gone() && of(libc::ENODEV).is_gone() && !of(libc::EINVAL).is_gone());
    assert_eq!(of(libc::EINVAL).to_string(), "/cg/x: cgroup: Invalid argument (EINVAL)");
}

#[test]
fn a_missing_group_is_gone() {
    let group = Cgroup::new(Version::V1, "/nonexistent/group".into(), None);
    assert!(!group.exists() && group.cpu_time_ns().is_none());
    assert!(group.processes().unwrap_err().is_gone());
    assert!(group.add(1).unwrap_err().is_gone());
    assert!(group.create("child").unwrap_err().is_gone());
    assert_eq!(group.remove(), Ok(()));
    assert_eq!(group.child("a").folder(), Path::new("/nonexistent/group/a"));
}

#[test]
fn an_ordinary_users_missing_right_names_the_file() {
    let Ok(hierarchy) = Hierarchy::find() else { return };
    match hierarchy.writable() {
        Ok(group) => assert!(group.is_writable().is_ok()),
        Err(CgroupError::NoRight { file }) => assert!(file.is_absolute(), "{}", file.display()),
        Err(error) => assert_eq!(error, CgroupError::NoController),
    }
}

#[test]
#[ignore = "needs root"]
fn a_process_moves_through_groups_that_count_its_time() {
    let hierarchy = Hierarchy::find().unwrap();
    let above = hierarchy.writable().unwrap();
    above.divide().unwrap();
    let group = above.create(&format!("upcall-sys-test-{}", std::process::id())).unwrap();
    assert!(above.create(group.folder().file_name().unwrap().to_str().unwrap()).is_err());
    assert_eq!(hierarchy.group_at(group.folder()), Some(group.clone()));
    for ppm in [10_000, 450_000, WEIGHT_MAX_PPM] {
        group.set_weight(ppm).unwrap();
        assert!(group.weight().unwrap().abs_diff(ppm) <= 5);
    }
    let command = ["sh", "-c", "while :; do :; done"].map(str::to_owned);
    let child = spawn(&command, &allowed_cpus().unwrap(), SpawnOptions::default()).unwrap();
    let before = hierarchy.group_of(child.pid()).unwrap();
    group.add(child.pid()).unwrap();
    assert_eq!(group.processes(), Ok(vec![child.pid()]));
    assert_eq!(hierarchy.group_of(child.pid()), Ok(group.clone()));
    assert!(matches!(group.remove(), Err(CgroupError::Busy { .. })));
    if let Some(first_ns) = group.cpu_time_ns() {
        while group.cpu_time_ns() < Some(first_ns + 20_000_000) {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    assert!(!group.is_root() && group.children() == Ok(Vec::new()));
    before.add(child.pid()).unwrap();
    assert_eq!(group.processes(), Ok(Vec::new()));
    group.remove().unwrap();
    assert!(!group.exists());
    assert!(above.add(5_000_000).unwrap_err().is_gone());
}

#[test]
#[ignore = "needs root, and version 1 with an account of its own"]
fn a_process_that_its_account_lacks_is_taken_into_it() {
    let hierarchy = Hierarchy::find().unwrap();
    let above = hierarchy.writable().unwrap();
    let group = above.create(&format!("upcall-sys-account-{}", std::process::id())).unwrap();
    let Some(account) = group.separate_account().map(Path::to_owned) else {
        // `eprintln` would be captured.
        let what = "a_process_that_its_account_lacks_is_taken_into_it";
        let _ = io::Write::write_all(
            &mut io::stderr(),
            format!("skipped: {what}: one hierarchy has both\n").as_bytes(),
        );
        return group.remove().unwrap();
    };
    let command = ["sleep", "1000"].map(str::to_owned);
    let child = spawn(&command, &allowed_cpus().unwrap(), SpawnOptions::default()).unwrap();
    // As a child that was started between the two steps of `add`.
    fs::write(group.folder().join(PROCESSES), child.pid().to_string()).unwrap();
    let counted = || fs::read_to_string(account.join(PROCESSES)).unwrap();
    assert_eq!((group.processes(), counted()), (Ok(vec![child.pid()]), String::new()));
    group.complete_account();
    assert_eq!(counted().trim(), child.pid().to_string());
    above.add(child.pid()).unwrap();
    group.remove().unwrap();
    assert!(!account.exists());
}
