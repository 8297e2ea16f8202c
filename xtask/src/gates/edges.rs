//! Which crate may use which, and which file inside a crate.
//!
//! - `edges/crates.rs`: dependencies between our crates go only where the design lets them.
//! - `edges/modules.rs`, `resolve.rs`, `circles.rs`: no file uses a file that uses it, directly or
//!   through others.
//! - `edges/layers.rs`: inside core and runtime a lower module uses no higher one.
//!
//! The circles of the crates below `crates/` and of xtask fail the gate. `cargo xtask edges
//! --list-circles` prints them without failing, and those of the benches as well.

use crate::gate::{Failure, Gate, Verdict, judge};
use crate::workspace::Workspace;
use cargo_metadata::Target;
use circles::circles;
use modules::{File, Modules, read_crate};
use resolve::{Edges, edges, first_use};
use std::collections::BTreeSet;

mod circles;
mod crates;
mod layers;
mod modules;
mod resolve;

/// Edges between crates and between files go only where the design lets them.
pub const GATE: Gate = Gate {
    name: "edges",
    about: "crates use what the design allows; files form no circle and use no higher layer",
    run,
};

fn run(workspace: &Workspace) -> Result<Verdict, Failure> {
    let graph = crates::graph(workspace);
    let mut findings = crates::violations(&graph);
    let (mut files, mut edges) = (0, 0);
    let insides = insides(workspace, None)?;
    for inside in &insides {
        let found = inside.findings();
        if !found.is_empty() {
            println!(
                "{0}: `cargo xtask edges --list-circles {0}` prints its findings alone",
                inside.name
            );
        }
        findings.extend(found);
        files += inside.modules.files.len();
        edges += inside.edges.len();
    }
    let between: usize = graph.values().map(Vec::len).sum();
    let crates = graph.len();
    judge(&findings, format!("{crates} crates, {between} edges; {files} files, {edges} edges"))
}

/// Prints the circles and the edges to higher layers of the crate `name`, or of every crate, and
/// how many there are.
///
/// # Errors
/// If a file does not parse, or no crate has this name.
pub fn list_circles(workspace: &Workspace, name: Option<&str>) -> Result<(), Failure> {
    for inside in insides(workspace, name)? {
        let findings = inside.findings();
        for finding in &findings {
            println!("{finding}\n");
        }
        println!(
            "{}: {} findings, {} files, {} edges",
            inside.modules.files[0],
            findings.len(),
            inside.modules.files.len(),
            inside.edges.len(),
        );
    }
    Ok(())
}

/// The files of one target of a crate, and the edges between them.
struct Inside {
    name: String,
    modules: Modules,
    edges: Edges,
}

/// The libraries, commands and benches of each crate, or of the crate called `only`.
fn insides(workspace: &Workspace, only: Option<&str>) -> Result<Vec<Inside>, Failure> {
    let mut found = Vec::new();
    let read = |path: &str| std::fs::read_to_string(workspace.root.join(path)).ok();
    for (name, package) in workspace.members().filter(|(name, _)| only.is_none_or(|it| it == *name))
    {
        let is_ours = |target: &&Target| target.is_lib() || target.is_bin() || target.is_bench();
        for target in package.targets.iter().filter(is_ours) {
            let root = target.src_path.strip_prefix(&workspace.root).unwrap_or(&target.src_path);
            let modules = read_crate(root.as_str(), &read)?;
            let edges = edges(&modules);
            found.push(Inside { name: name.to_owned(), modules, edges });
        }
    }
    match only {
        Some(name) if found.is_empty() => Err(Failure(format!("no crate is called `{name}`"))),
        _ => Ok(found),
    }
}

impl Inside {
    fn findings(&self) -> Vec<String> {
        let circles = circles(self.modules.files.len(), &self.edges);
        let circles = circles.iter().map(|members| self.circle(members));
        circles.chain(layers::violations(&self.name, &self.modules, &self.edges)).collect()
    }

    /// The files of a circle, and a line for each edge in it.
    fn circle(&self, members: &BTreeSet<File>) -> String {
        let files = &self.modules.files;
        let mut text = format!("{}: circle of {} files", self.name, members.len());
        let is_inside =
            |edge: &(File, File)| members.contains(&edge.0) && members.contains(&edge.1);
        for ((from, to), items) in self.edges.iter().filter(|(edge, _)| is_inside(edge)) {
            let (first, line) = first_use(items);
            text += &format!("\n  {}:{line} -> {}: {first}", files[*from], files[*to]);
            let others: Vec<&str> =
                items.keys().map(String::as_str).filter(|item| *item != first).collect();
            if !others.is_empty() {
                text += &format!(" (and {})", others.join(", "));
            }
        }
        text
    }
}

#[cfg(test)]
mod tests;
