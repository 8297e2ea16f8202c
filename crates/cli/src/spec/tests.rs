//! x
use super::Spec;
#[test]
fn show() {
    let long = "x".repeat(500_000);
    for text in [
        "[[stream]]\r\nname = \"camera\"\r\nclass = \"continuous-media\"\r\nrate = \"90\"\r\n\tpdu= \"é\" # abc\n",
        "",
        "# hi\n\u{7}",
        "stream = 5",
        "a.b.c = 5\n[[task]]",
        "policy = \"rmdp\"\npolicy = \"x\"\n",
        "policy = \"rm",
        "policy = ",
        "policy",
        "\u{feff}polcy = 1",
        &format!("policy = \"{long}\""),
        &format!("{long} = \"{long}\""),
        &"[".repeat(1000),
        &format!("x = {}", "[".repeat(1000)),
        &"a.".repeat(1000),
        &format!("{}a = 1", "a.".repeat(1000)),
        "task = [{name = 5,\n period = 8}]",
        "[[task]]\n[task.x]\ny=1\n[[task]]\nname='t1'\ncost='4 ms'\nperiod='3 ms'\nbatch=0x7fffffff\ndeadline = 1979-05-27T07:32:00Z\n[[background]]\ncommand=[1,'']\nspin=1",
    ] {
        match Spec::parse("spec.toml", text.as_bytes()) {
            Ok(_) => println!("OK"),
            Err(e) => println!("{}", e.to_string().chars().take(6000).collect::<String>()),
        }
        println!("======");
    }
}
