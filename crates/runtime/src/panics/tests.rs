//! Each panic that is handed over is written once, or counted as lost.

use super::*;

fn panic_of(text: &str) -> Panic {
    let (thread, location) = ("upcall-cpu1".to_owned(), "src/main.rs:5:9".to_owned());
    Panic { thread, tid: 7, location, text: text.to_owned(), frames: None }
}

#[test]
fn a_panic_without_a_place_is_counted_and_the_others_are_kept() {
    let queue = Queue::default();
    for number in 0..WAITING_MAX + 3 {
        queue.hand(panic_of(&number.to_string()));
    }
    assert_eq!(queue.lost.load(Ordering::Relaxed), 3);
    let mut texts: Vec<usize> = queue.take().map(|panic| panic.text.parse().unwrap()).collect();
    texts.sort_unstable();
    assert_eq!(texts, (0..WAITING_MAX).collect::<Vec<_>>());
    queue.hand(panic_of("next"));
    assert_eq!(queue.take().count(), 1);
    assert_eq!(queue.lost.load(Ordering::Relaxed), 3);
}

/// A scheduling thread that finds every place locked gives up.
#[test]
fn handing_over_never_waits() {
    let queue = Queue::default();
    let held: Vec<_> = queue.places.iter().map(|place| place.lock().unwrap()).collect();
    queue.hand(panic_of("not now"));
    assert_eq!(queue.lost.load(Ordering::Relaxed), 1);
    drop(held);
    queue.hand(panic_of("now"));
    assert_eq!(queue.take().count(), 1);
}

#[test]
fn waiting_ends_when_all_is_written_or_at_the_bound() {
    let queue = Queue::default();
    queue.wait(Duration::MAX); // nothing was handed over
    queue.hand(panic_of("one"));
    queue.wait(Duration::from_millis(1));
    assert_eq!(*queue.written.lock().unwrap(), 0);
    std::thread::scope(|threads| {
        let waiter = threads.spawn(|| queue.wait(Duration::MAX));
        assert_eq!(queue.take().count(), 1);
        queue.wrote_one();
        waiter.join().unwrap();
    });
}

#[test]
fn the_text_is_that_of_the_standard_hook() {
    let head = "\nthread 'upcall-cpu1' (7) panicked at src/main.rs:5:9:\noh\n";
    assert_eq!(panic_of("oh").text(Style::Off), head);
    let missing = panic_of("oh").text(Style::Short);
    assert!(missing.starts_with(head) && missing.contains("no backtrace"), "{missing}");
    let frames = Some(Backtrace::force_capture());
    let whole = Panic { frames, ..panic_of("oh") }.text(Style::Full);
    assert!(whole.starts_with(&format!("{head}stack backtrace:\n")), "{whole}");
    assert!(whole.contains("the_text_is_that_of_the_standard_hook"), "{whole}");
}

#[test]
fn the_environment_is_read_as_std_reads_it() {
    let styles = [None, Some("0"), Some("1"), Some("yes"), Some("full")].map(Style::of);
    assert_eq!(styles, [Style::Off, Style::Off, Style::Short, Style::Short, Style::Full]);
}
