//! The tables of `upcall ps`, and the line about domains that are not shown.

use super::*;
use crate::show::tests::{assert_explained, header};

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

#[test]
fn the_page_explains_every_column_of_ps() {
    let status = Status::default();
    for table in [cpus(&status), domains(&status), activities(&status)] {
        assert_explained(&header(&table));
    }
    assert_explained(&["hand-off cost".to_owned()]);
    let tables = tables(&Status { policy: "rmdp".to_owned(), ..status });
    assert!(tables.contains("\npolicy: rmdp\nhand-off cost: "), "{tables}");
}
