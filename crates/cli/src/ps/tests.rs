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
fn programs_have_a_table_if_there_are_any() {
    let mut status = Status::default();
    assert!(!tables(&status).contains("weight"));
    let program = ProgramStatus {
        id: 3,
        pid: 4321,
        uid: 1000,
        cpu: 1,
        share_ppm: 450_000,
        weight: 0,
        used_ns: 1_500_000,
        processes: 2,
        burst_ns: 0,
        quantum_ns: 1_000_000,
        at_ns: 9,
        name: "ffm\x1bpeg".to_owned(),
    };
    let weighted = ProgramStatus { share_ppm: 0, weight: 2, ..program.clone() };
    status.programs = vec![program, weighted];
    let text = tables(&status);
    let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    let row = ["3", "ffm?peg", "4321", "1000", "1", "45.0", "%", "-", "1.5", "ms", "2", "1", "ms"];
    assert!(rows.contains(&row.to_vec()), "{text}");
    let json = serde_json::to_value(Output::of(&status)).unwrap();
    let [first, second] = json["programs"].as_array().unwrap().as_slice() else { panic!() };
    assert_eq!((&first["share"], &first["weight"]), (&0.45.into(), &serde_json::Value::Null));
    assert_eq!((&second["share"], &second["weight"]), (&serde_json::Value::Null, &2.into()));
}

#[test]
fn packet_quotas_have_a_table_if_there_are_any() {
    let mut status = Status::default();
    assert!(!tables(&status).contains("destination"));
    status.packet_quotas = vec![packet_quotas::tests::quota()];
    assert!(tables(&status).contains("udp:5004"), "{}", tables(&status));
    let json = serde_json::to_value(Output::of(&status)).unwrap();
    assert_eq!(json["packet_quotas"][0]["dropped"], 48_000);
}

#[test]
fn flows_have_a_table_if_there_are_any() {
    let mut status = Status::default();
    assert!(!tables(&status).contains("local"));
    let (owned, flow) = flows::tests::flow();
    (status.owned_interfaces, status.flows) = (vec![owned], vec![flow]);
    assert!(tables(&status).contains("10.0.0.2:5004"), "{}", tables(&status));
    let json = serde_json::to_value(Output::of(&status)).unwrap();
    assert_eq!(json["flows"][0]["received"], 900);
    assert_eq!(json["owned_interfaces"][0]["sending"], 1);
}

#[test]
fn the_page_explains_every_column_of_ps() {
    let status = Status::default();
    let (quotas, flows) = (packet_quotas::table(&[]), flows::table(&[]));
    let (cpus, domains) = (cpus(&status), domains(&status));
    for table in [cpus, domains, activities(&status), programs(&status), quotas, flows] {
        assert_explained(&header(&table));
    }
    assert_explained(&["hand-off cost".to_owned()]);
    let tables = tables(&Status { policy: "rmdp".to_owned(), ..status });
    assert!(tables.contains("\npolicy: rmdp\nhand-off cost: "), "{tables}");
}
