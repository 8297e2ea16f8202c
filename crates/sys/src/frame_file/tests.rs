use super::*;
use std::io::Write as _;

#[test]
fn a_frame_outside_of_its_words_is_refused() {
    let fd = rustix::fs::open("/dev/null", OFlags::RDWR, Mode::empty()).unwrap();
    let file = FrameFile { fd, is_socket: false };
    let words = [const { AtomicU64::new(0) }; 8];
    for (start, bytes) in [(0, 65), (64, 1), (usize::MAX, 2)] {
        assert_eq!(file.write(&words, start, bytes).unwrap_err().raw_os_error(), libc::EINVAL);
    }
    assert_eq!(file.write(&words, 4, 60), Ok(true));
}

#[test]
fn a_name_that_is_too_long_is_refused() {
    match FrameFile::tap("a-name-of-16-byt") {
        // Without the device there is nothing to refuse.
        Err(error) if error.is_not_found() || error.is_permission() => {
            // Not by a macro, because the output of a passing test is hidden.
            let test = "a_name_that_is_too_long_is_refused";
            let _ = writeln!(std::io::stderr(), "skipped: {test}: {error}");
        }
        Err(error) => assert_eq!(error.raw_os_error(), libc::EINVAL),
        Ok(_) => panic!("a name without an end"),
    }
}
