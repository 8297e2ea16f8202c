//! Tests of handlers that panic: which thread writes the message, and which hook is called. Child
//! processes run the handlers, because a hook belongs to the process.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use upcall_runtime::activity::ActivityParams;
use upcall_runtime::time::Span;
use upcall_runtime::{ActivityReport, Config, HandlerId, Runtime, clock};

/// The environment variable that tells a child process what to do.
const PART: &str = "UPCALL_TEST_PANICS";
/// Upcalls of another handler while a panic cannot be written.
const UPCALLS: u64 = 50;

fn start() -> Runtime {
    let cpus = upcall_runtime::default_cpus().unwrap().into_iter().take(1).collect();
    let switch_cost = Some(Span::from_micros(1));
    Runtime::start(Config { cpus, switch_cost, ..Config::default() }).unwrap()
}

fn need() -> ActivityParams {
    ActivityParams::new(Span::from_millis(2), Span::from_micros(20))
}

/// Creates a handler that panics in its first upcall.
fn panics(runtime: &mut Runtime) -> HandlerId {
    runtime.handler("panics", need(), |_| deep_inside()).unwrap()
}

#[inline(never)]
fn deep_inside() {
    panic!("this is handler number {}", 7);
}

/// Runs a handler that panics to its end.
fn panic_once() -> ActivityReport {
    let mut runtime = start();
    let panics = panics(&mut runtime);
    runtime.run(panics).unwrap();
    runtime.wait(&[panics], None);
    runtime.stop(|_, _| {}).activities.remove(0)
}

/// Starts this program again, as a child that does what `name` says.
fn part(name: &str, backtrace: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["as_a_process_with_a_part", "--exact", "--nocapture"]);
    command.env(PART, name).env("RUST_BACKTRACE", backtrace);
    command
}

/// What the child wrote to its standard error.
fn errors_of(name: &str, backtrace: &str) -> String {
    let output = part(name, backtrace).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{errors}");
    errors
}

/// Not a test of its own: the code of the child process, in which a handler panics.
#[test]
fn as_a_process_with_a_part() {
    match std::env::var(PART).as_deref() {
        Ok("once") => drop(panic_once()),
        Ok("other_handler") => other_handler(),
        Ok("hook before") => hook_before(),
        Ok("hook after") => hook_after(),
        Ok("cannot unwind") => cannot_unwind(),
        _ => {}
    }
}

/// The standard error of this child is a full pipe, so a thread that writes there blocks.
fn other_handler() {
    let mut runtime = start();
    let upcalls = Arc::new(AtomicU64::new(0));
    let counted = upcalls.clone();
    let other_handler = runtime.handler("other_handler", need(), move |batch| {
        while batch.proceed() {}
        counted.fetch_add(1, Ordering::Relaxed);
    });
    let panics = panics(&mut runtime);
    runtime.run_at(&[panics, other_handler.unwrap()], clock::now()).unwrap();
    if runtime.wait(&[panics], Some(clock::after(Span::from_secs(60)))).is_empty() {
        std::process::exit(1); // a panic could not be written
    }
    let before = upcalls.load(Ordering::Relaxed);
    let mut looks = 0;
    while upcalls.load(Ordering::Relaxed) < before + UPCALLS {
        std::thread::sleep(std::time::Duration::from_millis(1));
        looks += 1;
        if looks == 60_000 {
            std::process::exit(1); // as above
        }
    }
    println!("\nthe other_handler went on");
    // The message is still not written. No thread waits for it without limit.
    runtime.stop(|_, _| {});
}

fn hook_before() {
    std::panic::set_hook(Box::new(|info| eprintln!("hook of the program: {info}")));
    panic_once();
    let other = std::thread::Builder::new().name("other".to_owned());
    let _ = other.spawn(|| panic!("in another thread")).unwrap().join();
}

fn hook_after() {
    drop(start());
    std::panic::set_hook(Box::new(|_| {
        eprintln!("hook of the program in {}", std::thread::current().name().unwrap());
    }));
    assert_eq!(panic_once().panic, None);
}

/// The process ends as soon as the hook for the second panic returns.
fn cannot_unwind() {
    extern "C" fn from_c() {
        deep_inside();
    }
    let mut runtime = start();
    let panics = runtime.handler("panics", need(), |_| from_c()).unwrap();
    runtime.run(panics).unwrap();
    runtime.wait(&[panics], None);
}

#[test]
fn other_handlers_go_on_while_the_message_cannot_be_written() {
    let (reader, writer) = std::io::pipe().unwrap();
    let full = upcall_sys::transfer::NonBlocking::new(writer.try_clone().unwrap().into()).unwrap();
    while full.write(&[b'.'; 4096]).is_ok() {}
    while full.write(b".").is_ok() {}
    drop(full); // blocks again
    let child =
        part("other_handler", "full").stdout(Stdio::piped()).stderr(writer).spawn().unwrap();
    let output = child.wait_with_output().unwrap();
    drop(reader);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("the other_handler went on"), "{said}");
}

#[test]
fn the_message_is_that_of_the_standard_hook() {
    let cpu = upcall_runtime::default_cpus().unwrap()[0];
    let head = format!("thread 'upcall-cpu{cpu}' (");
    let text = ":\nthis is handler number 7\n";
    for backtrace in ["0", "1", "full"] {
        let errors = errors_of("once", backtrace);
        assert!(errors.contains(&head) && errors.contains(text), "{errors}");
        assert!(errors.contains("panicked at crates/runtime/tests/panics.rs:"), "{errors}");
        let (with_names, hint) = (backtrace != "0", "run with `RUST_BACKTRACE=1`");
        assert_eq!(errors.contains("stack backtrace:"), with_names, "{errors}");
        assert_eq!(errors.contains("deep_inside"), with_names, "{errors}");
        assert_eq!(errors.contains(hint), !with_names, "{errors}");
        assert_eq!(errors.matches("panicked at").count(), 1, "{errors}");
    }
}

#[test]
fn the_previous_hook_serves_all_other_threads() {
    let errors = errors_of("hook before", "0");
    assert!(errors.contains("this is handler number 7"), "{errors}");
    let hooks: Vec<&str> =
        errors.lines().filter(|line| line.starts_with("hook of the program")).collect();
    assert_eq!(hooks.len(), 1, "{errors}");
    assert!(errors.contains("in another thread"), "{errors}");
}

#[test]
fn a_hook_that_is_set_later_serves_all_threads() {
    let cpu = upcall_runtime::default_cpus().unwrap()[0];
    let errors = errors_of("hook after", "0");
    assert!(errors.contains(&format!("hook of the program in upcall-cpu{cpu}")), "{errors}");
    assert!(!errors.contains("handler number 7"), "{errors}");
}

#[test]
fn a_panic_that_ends_the_process_is_written_before() {
    let output = part("cannot unwind", "0").output().unwrap();
    assert!(!output.status.success());
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("this is handler number 7"), "{errors}");
    assert!(errors.contains("cannot unwind"), "{errors}");
}

#[test]
fn the_report_names_the_panic_and_a_reused_number_starts_clean() {
    let report = panic_once();
    assert!(report.faulted);
    let said = report.panic.unwrap();
    assert!(said.starts_with("this is handler number 7 ("), "{said}");
    assert!(said.contains("panics.rs:"), "{said}");

    let mut runtime = start();
    let panics = panics(&mut runtime);
    runtime.run(panics).unwrap();
    runtime.wait(&[panics], None);
    let closed = runtime.close(panics).unwrap();
    assert!(closed.faulted && closed.panic.is_some(), "{closed:?}");
    // The same number, another handler.
    runtime.handler("sound", need(), |batch| while batch.proceed() {}).unwrap();
    let report = runtime.stop(|_, _| {}).activities.remove(0);
    assert!(!report.faulted && report.panic.is_none(), "{report:?}");
}
