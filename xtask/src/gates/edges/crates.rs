//! Dependencies between our crates (docs/ARCHITECTURE.md).

use crate::workspace::Workspace;
use cargo_metadata::DependencyKind;
use std::collections::BTreeMap;

/// Every crate that the design has, with the crates that it may use. A new crate or a new edge is
/// a decision: it goes here and into `docs/decisions/`.
const ALLOWED: [(&str, &[&str]); 10] = [
    ("core", &[]),
    ("shm", &[]),
    ("sys", &[]),
    ("proto", &["core"]),
    ("runtime", &["core", "proto", "shm", "sys"]),
    ("daemon", &["core", "proto", "runtime", "shm", "sys"]),
    ("sim", &["core", "proto", "shm"]),
    ("upcall", &["runtime"]),
    ("cli", &["daemon", "sim", "upcall"]),
    ("capi", &["upcall"]),
];

/// Each crate by the name of its folder, with those of our crates that it depends on. These have
/// the names of their folders too, or the name of the crate if it is not below `crates/`.
pub type Graph = BTreeMap<String, Vec<String>>;

/// The crates of the workspace and their normal dependencies on our crates. Tests and build
/// scripts may use any crate.
pub fn graph(workspace: &Workspace) -> Graph {
    let folders: BTreeMap<&str, &str> =
        workspace.crates().map(|(folder, package)| (package.name.as_str(), folder)).collect();
    workspace
        .crates()
        .map(|(folder, package)| {
            let ours = package
                .dependencies
                .iter()
                .filter(|used| used.kind == DependencyKind::Normal && used.path.is_some())
                .map(|used| {
                    folders.get(used.name.as_str()).unwrap_or(&used.name.as_str()).to_string()
                })
                .collect();
            (folder.to_owned(), ours)
        })
        .collect()
}

/// A line for each crate that is unknown and for each edge that is not allowed.
pub fn violations(graph: &Graph) -> Vec<String> {
    let mut found = Vec::new();
    for (user, uses) in graph {
        let Some((_, allowed)) = ALLOWED.iter().find(|(name, _)| name == user) else {
            found.push(format!("crates/{user}: the design has no crate of this name"));
            continue;
        };
        for used in uses.iter().filter(|used| !allowed.contains(&used.as_str())) {
            let may =
                if allowed.is_empty() { "no crate of ours".into() } else { allowed.join(", ") };
            found.push(format!("{user} -> {used}: not allowed, {user} may use {may}"));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made_up(edges: &[(&str, &[&str])]) -> Graph {
        let names = |uses: &[&str]| uses.iter().map(|used| (*used).to_owned()).collect();
        edges.iter().map(|(user, uses)| ((*user).to_owned(), names(uses))).collect()
    }

    #[test]
    fn the_crates_of_this_workspace_follow_the_design() {
        let workspace = Workspace::load().unwrap();
        let graph = graph(&workspace);
        assert!(graph["runtime"].contains(&"core".to_owned()), "edges are seen at all");
        assert_eq!(violations(&graph), Vec::<String>::new());
    }

    #[test]
    fn an_edge_outside_the_design_is_named() {
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
    fn a_crate_outside_the_design_is_a_finding() {
        assert_eq!(violations(&made_up(&[("net", &[])])).len(), 1);
    }

    #[test]
    fn the_allowed_edges_point_one_way() {
        // Each crate may use only the crates before it.
        for (index, (user, uses)) in ALLOWED.iter().enumerate() {
            for used in *uses {
                assert!(ALLOWED[..index].iter().any(|(name, _)| name == used), "{user} -> {used}");
            }
        }
    }
}
