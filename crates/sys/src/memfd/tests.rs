use super::*;
use core::sync::atomic::Ordering::Relaxed;
use std::fs::File;

fn again(mapping: &SharedMapping) -> OwnedFd {
    mapping.fd().try_clone_to_owned().unwrap()
}

#[test]
fn two_mappings_of_one_memory_show_each_other_what_they_wrote() {
    let mine = SharedMapping::create("upcall-test", 8192).unwrap();
    assert_eq!(mine.words().len(), 1024);
    assert!(mine.words().iter().all(|word| word.load(Relaxed) == 0));
    assert_eq!(mine.as_ptr().addr() % 4096, 0);
    let theirs = SharedMapping::from_fd(again(&mine), 8192).unwrap();
    assert_ne!(mine.as_ptr(), theirs.as_ptr());
    mine.words()[0].store(7, Relaxed);
    theirs.words()[1023].store(8, Relaxed);
    assert_eq!((theirs.words()[0].load(Relaxed), mine.words()[1023].load(Relaxed)), (7, 8));
    drop(mine);
    assert_eq!(theirs.words()[0].load(Relaxed), 7);
}

#[test]
fn a_size_that_is_not_the_expected_one_is_refused_either_way() {
    let mapping = SharedMapping::create("upcall-test", 4096).unwrap();
    for expected in [8, 4088, 4104, 8192] {
        assert_eq!(
            SharedMapping::from_fd(again(&mapping), expected).unwrap_err(),
            MapError::Size { found: 4096, expected }
        );
    }
}

#[test]
fn memory_whose_owner_could_shorten_it_is_refused() {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    for seals in [
        SealFlags::empty(),
        SealFlags::SHRINK | SealFlags::GROW,
        SealFlags::GROW | SealFlags::SEAL,
        SealFlags::SHRINK | SealFlags::SEAL,
    ] {
        let fd = rustix::fs::memfd_create("upcall-test", flags).unwrap();
        rustix::fs::ftruncate(&fd, 4096).unwrap();
        rustix::fs::fcntl_add_seals(&fd, seals).unwrap();
        assert_eq!(SharedMapping::from_fd(fd, 4096).unwrap_err(), MapError::Unsealed, "{seals:?}");
    }
}

#[test]
fn a_file_that_is_no_memory_is_refused() {
    let file = File::open("/proc/self/exe").unwrap();
    let bytes = usize::try_from(file.metadata().unwrap().len()).unwrap() / 8 * 8;
    assert_eq!(SharedMapping::from_fd(file.into(), bytes).unwrap_err(), MapError::Unsealed);
}

#[test]
fn memory_that_may_not_be_written_is_refused_by_the_kernel() {
    let fd = rustix::fs::memfd_create("upcall-test", MemfdFlags::ALLOW_SEALING).unwrap();
    rustix::fs::ftruncate(&fd, 4096).unwrap();
    rustix::fs::fcntl_add_seals(&fd, SEALS | SealFlags::WRITE).unwrap();
    let MapError::Os(error) = SharedMapping::from_fd(fd, 4096).unwrap_err() else { panic!() };
    assert_eq!(error, OsError::new("mmap", libc::EPERM));
}

#[test]
fn shared_memory_can_be_neither_shortened_nor_lengthened_nor_unsealed() {
    let mapping = SharedMapping::create("upcall-test", 4096).unwrap();
    for bytes in [0, 4095, 8192] {
        assert_eq!(rustix::fs::ftruncate(mapping.fd(), bytes), Err(Errno::PERM));
    }
    assert_eq!(rustix::fs::fcntl_add_seals(mapping.fd(), SealFlags::WRITE), Err(Errno::PERM));
}

#[test]
fn lengths_that_are_not_whole_words_are_refused() {
    for bytes in [0, 1, 4095, usize::MAX, usize::MAX - 7] {
        assert_eq!(
            SharedMapping::create("upcall-test", bytes).unwrap_err(),
            MapError::Length { found: bytes }
        );
    }
}

#[test]
fn unmapped_memory_is_gone_from_the_address_space() {
    let mapping = SharedMapping::create("upcall-gone", 4096).unwrap();
    let start = format!("{:x}-", mapping.as_ptr().addr());
    let maps = || std::fs::read_to_string("/proc/self/maps").unwrap();
    let is_there = |maps: &str| {
        maps.lines().any(|line| {
            line.trim_start_matches('0').starts_with(&start) && line.contains("upcall-gone")
        })
    };
    assert!(is_there(&maps()));
    drop(mapping);
    assert!(!is_there(&maps()));
}
