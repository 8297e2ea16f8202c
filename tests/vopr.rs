//! `upcall sim --vopr`, as a whole program: random scenarios under each policy.

#[expect(dead_code, reason = "each test program uses its own part")]
mod support;

use support::upcall;

#[test]
fn random_scenarios_pass_under_every_policy_and_repeat_exactly() {
    let done = upcall(&["sim", "--vopr", "20", "--json"]);
    assert_eq!(done.status.code(), Some(0), "{done:?}");
    let told: serde_json::Value = serde_json::from_str(&done.stdout).expect("one object");
    let policies = told["policies"].as_array().expect("an array");
    assert_eq!(policies.len(), 5);
    for policy in policies {
        assert_eq!(policy["seeds"], 20);
        assert!(policy["jobs"].as_u64() > Some(1_000), "{policy}");
    }
    assert!(told["failed"].is_null());
    assert_eq!(upcall(&["sim", "--vopr", "20", "--json"]).stdout, done.stdout);
}

#[test]
fn one_policy_and_a_first_seed_can_be_chosen() {
    let done = upcall(&["sim", "--vopr", "3", "--seed", "946", "--policy", "dwcs"]);
    assert_eq!(done.status.code(), Some(0), "{done:?}");
    assert!(done.stdout.contains("dwcs 3 seeds"), "{done:?}");
    assert!(!done.stdout.contains("rmdp"), "another policy was checked: {done:?}");
    assert!(done.stdout.ends_with("every promise kept\n"), "{done:?}");
    let from = |seed| upcall(&["sim", "--vopr", "3", "--policy", "dwcs", "--json", "--seed", seed]);
    assert_ne!(from("946").stdout, from("0").stdout);
}

#[test]
fn invalid_arguments_are_refused() {
    for bad in [
        &["sim", "--vopr", "0"][..],
        &["sim", "--vopr", "5", "--policy", "edf"],
        &["sim", "--vopr", "5", "--duration", "1s"],
        // A spec has nothing random.
        &["sim", "spec.toml", "--seed", "1"],
        &["sim"],
    ] {
        let done = upcall(bad);
        assert_eq!(done.status.code(), Some(2), "{done:?}");
        assert_eq!(done.stdout, "", "{bad:?}");
    }
}
