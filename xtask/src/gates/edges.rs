//! The rooms and the edges between them (docs/ARCHITECTURE.md).

use crate::gate::{Failure, Gate, Verdict, judge};
use crate::workspace::Workspace;
use cargo_metadata::DependencyKind;
use std::collections::BTreeMap;

/// Dependencies between our crates go only where the design lets them.
pub const GATE: Gate =
    Gate { name: "edges", about: "rooms depend only on the rooms the design allows", run };

/// Every room there may be, and the rooms it may use. A new room, or a new
/// edge, is a decision: it goes here and into `docs/decisions/`.
const ALLOWED: [(&str, &[&str]); 10] = [
    ("core", &[]),
    ("shm", &[]),
    ("sys", &[]),
    ("proto", &["core"]),
    ("runtime", &["core", "proto", "shm", "sys"]),
    ("daemon", &["core", "proto", "shm", "sys"]),
    ("sim", &["core", "proto", "shm"]),
    ("upcall", &["runtime"]),
    ("cli", &["daemon", "sim", "upcall"]),
    ("capi", &["upcall"]),
];

/// A room, and the names of our crates it depends on: rooms by the name of
/// their directory, others by the name of the crate.
type Graph = BTreeMap<String, Vec<String>>;

fn run(workspace: &Workspace) -> Result<Verdict, Failure> {
    let graph = graph(workspace);
    let edges: usize = graph.values().map(Vec::len).sum();
    judge(&violations(&graph), format!("{} rooms, {edges} edges", graph.len()))
}

/// The rooms of the workspace and their normal dependencies on our crates.
/// Tests and build scripts may use what they like.
fn graph(workspace: &Workspace) -> Graph {
    let rooms: BTreeMap<&str, &str> =
        workspace.rooms().map(|(room, package)| (package.name.as_str(), room)).collect();
    workspace
        .rooms()
        .map(|(room, package)| {
            let ours = package
                .dependencies
                .iter()
                .filter(|used| used.kind == DependencyKind::Normal && used.path.is_some())
                .map(|used| {
                    rooms.get(used.name.as_str()).unwrap_or(&used.name.as_str()).to_string()
                })
                .collect();
            (room.to_owned(), ours)
        })
        .collect()
}

/// One line for each room that is unknown and each edge that is not allowed.
fn violations(graph: &Graph) -> Vec<String> {
    let mut found = Vec::new();
    for (room, uses) in graph {
        let Some((_, allowed)) = ALLOWED.iter().find(|(name, _)| name == room) else {
            found.push(format!("crates/{room}: no room of the design has this name"));
            continue;
        };
        for used in uses.iter().filter(|used| !allowed.contains(&used.as_str())) {
            let may =
                if allowed.is_empty() { "no crate of ours".into() } else { allowed.join(", ") };
            found.push(format!("{room} -> {used}: not allowed, {room} may use {may}"));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made_up(edges: &[(&str, &[&str])]) -> Graph {
        let names = |uses: &[&str]| uses.iter().map(|used| (*used).to_owned()).collect();
        edges.iter().map(|(room, uses)| ((*room).to_owned(), names(uses))).collect()
    }

    #[test]
    fn the_rooms_of_this_workspace_keep_to_the_design() {
        let workspace = Workspace::load().unwrap();
        let graph = graph(&workspace);
        assert!(graph["runtime"].contains(&"core".to_owned()), "edges are seen at all");
        assert_eq!(violations(&graph), Vec::<String>::new());
    }

    #[test]
    fn an_edge_the_design_does_not_have_is_named() {
        let graph = made_up(&[
            ("core", &["sys"]),
            ("runtime", &["core", "shm"]),
            ("cli", &["upcall-benches"]),
        ]);
        assert_eq!(
            violations(&graph),
            [
                "cli -> upcall-benches: not allowed, cli may use daemon, sim, upcall",
                "core -> sys: not allowed, core may use no crate of ours",
            ]
        );
    }

    #[test]
    fn a_room_nobody_decided_on_is_an_error() {
        assert_eq!(violations(&made_up(&[("net", &[])])).len(), 1);
    }

    #[test]
    fn the_allowed_edges_point_one_way() {
        // Each room may use only rooms that stand before it.
        for (index, (room, uses)) in ALLOWED.iter().enumerate() {
            for used in *uses {
                assert!(ALLOWED[..index].iter().any(|(name, _)| name == used), "{room} -> {used}");
            }
        }
    }
}
