//! The soak of streams, for some seconds.

use std::process::Command;

#[test]
fn what_was_committed_is_read_once_though_its_ends_are_killed() {
    let output = Command::new(env!("CARGO_BIN_EXE_soak"))
        .args(["streams", "--messages", "400_000", "--kills", "40"])
        .output()
        .expect("the program is built with this test");
    let (said, failed) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}{failed}");
    let last = said.lines().last().unwrap_or_default();
    assert!(last.starts_with("nothing lost") && last.contains(" 40 kills "), "{said}");
    assert!(said.contains("passive sources: ") && !last.ends_with(" 0 starts"), "{said}");
}
