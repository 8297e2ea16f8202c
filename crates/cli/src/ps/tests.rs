//! What is said of domains that are not shown.

use super::*;

#[test]
fn domains_of_other_users_are_counted_below_the_tables_and_in_the_json() {
    let mut status = Status::default();
    assert!(!tables(&status).contains("not shown"));
    status.hidden_domains = 1;
    assert!(tables(&status).contains("1 domain of other users is not shown: only root"));
    status.hidden_domains = 3;
    assert!(tables(&status).ends_with(
        "3 domains of other users are not shown: only root and the daemon's user see all\n"
    ));
    let json = serde_json::to_value(Output::of(&status)).unwrap();
    assert_eq!(json["hidden_domains"], 3);
}
