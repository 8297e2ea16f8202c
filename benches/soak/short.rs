//! The soak of streams, for some seconds.

use std::process::Command;

#[test]
fn committed_messages_are_read_once_though_ends_are_killed() {
    let output = Command::new(env!("CARGO_BIN_EXE_soak"))
        .args(["streams", "--messages", "400_000", "--kills", "40"])
        .output()
        .expect("the program is built with this test");
    let (printed, errors) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{printed}{errors}");
    let last = printed.lines().last().unwrap_or_default();
    assert!(last.starts_with("nothing lost") && last.contains(" 40 kills "), "{printed}");
    assert!(printed.contains("passive sources: ") && !last.ends_with(" 0 starts"), "{printed}");
}
