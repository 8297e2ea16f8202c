//! The order of the modules inside core and runtime, bottom first.

use super::modules::{Modules, folder_of};
use super::resolve::{Edges, first_use};
use std::collections::BTreeSet;

/// The layers of each ordered crate, bottom first. A layer is a module with all inside it, unless
/// a longer path has a layer of its own. A file may use the layers before its own, and its own.
/// The root file may use them all. A new module gets its place here.
pub const LAYERS: [(&str, &[&str]); 2] = [("core", CORE), ("runtime", RUNTIME)];

const CORE: &[&str] = &[
    "debug",
    "time",
    "share",
    "heap",
    "activity",
    "cost",
    "record",
    "policy",
    "scheduler",
    "admission",
    "discipline",
    "events",
    "qos",
    "trace",
];

const RUNTIME: &[&str] = &[
    // What the public interface and the threads share.
    "clock",
    "config",
    "folder",
    "id",
    "lag",
    "latency",
    "offence",
    "panics",
    "rights",
    "trace",
    "watchdog",
    "notify",
    "mailbox",
    "events",
    "liveness",
    // Services that no executor needs to know.
    "load",
    "daemon_fault",
    "status",
    "net",
    "udp",
    "program",
    "packet_quota",
    "domain",
    "thread_error",
    "reactor",
    // What a preemption point polls.
    "stream/memory",
    "stream/wait",
    "stream/watches",
    "channel",
    // Sends on channels; no executor needs to know it.
    "io_events",
    // What runs at a boundary.
    "preemption",
    // What an executor runs, and the executor.
    "work",
    "stream",
    "need",
    "virtual_time",
    "statistics",
    "cpu",
    "calibrate",
    "runtime",
];

/// A line for each file without a layer and for each edge that leads upwards.
pub fn violations(name: &str, modules: &Modules, edges: &Edges) -> Vec<String> {
    let Some((_, layers)) = LAYERS.iter().find(|(ordered, _)| *ordered == name) else {
        return Vec::new();
    };
    violations_of(layers, modules, edges)
}

fn violations_of(layers: &[&str], modules: &Modules, edges: &Edges) -> Vec<String> {
    let folder = folder_of(&modules.files[0]);
    let place = |file: usize| place(layers, module_of(&modules.files[file], folder));
    let mut found = Vec::new();
    let unplaced: BTreeSet<&str> = (1..modules.files.len())
        .filter(|file| place(*file).is_none())
        .map(|file| top(module_of(&modules.files[file], folder)))
        .collect();
    found.extend(unplaced.iter().map(|module| {
        format!("{folder}/{module}: has no layer, expected a place in xtask's layers.rs")
    }));
    for ((from, to), items) in edges {
        let (Some(user), Some(used)) = (place(*from), place(*to)) else { continue };
        if user < used {
            let (item, line) = first_use(items);
            found.push(format!(
                "{}:{line}: uses `{item}` of {}, but layer `{}` stands below `{}`",
                modules.files[*from], modules.files[*to], layers[user], layers[used]
            ));
        }
    }
    found
}

/// The layer of `module`: the longest that it lies in.
fn place(layers: &[&str], module: &str) -> Option<usize> {
    let is_in = |layer: &str| {
        module.strip_prefix(layer).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let found = layers.iter().enumerate().filter(|(_, layer)| is_in(layer));
    found.max_by_key(|(_, layer)| layer.len()).map(|(index, _)| index)
}

/// `policy/ps` for the file `src/policy/ps.rs` and for `src/policy/ps/mod.rs`.
fn module_of<'a>(file: &'a str, folder: &str) -> &'a str {
    let inside = file.strip_prefix(folder).unwrap_or(file).trim_start_matches('/');
    inside.trim_end_matches(".rs").trim_end_matches("/mod")
}

/// The first part of the module's path.
fn top(module: &str) -> &str {
    module.split('/').next().unwrap_or(module)
}

#[cfg(test)]
mod tests {
    use super::super::tests::fixture;
    use super::*;

    #[test]
    fn a_layer_may_use_itself_and_the_layers_before_it() {
        let (modules, edges) = fixture(&[
            ("lib.rs", "mod time; mod policy; mod scheduler;"),
            ("time.rs", "pub struct Time;"),
            ("policy.rs", "mod ps; use crate::time::Time;"),
            ("policy/ps.rs", "use crate::time::Time; pub struct Ps;"),
            ("scheduler.rs", "use crate::policy::ps::Ps;"),
        ]);
        let layers = ["time", "policy", "scheduler"];
        assert_eq!(violations_of(&layers, &modules, &edges), Vec::<String>::new());
        assert_eq!(
            violations_of(&["scheduler", "time", "policy"], &modules, &edges),
            [
                "scheduler.rs:1: uses `crate::policy::ps::Ps` of policy/ps.rs, but layer `scheduler` \
              stands below `policy`"
            ]
        );
    }

    #[test]
    fn a_module_without_a_layer_is_a_finding() {
        let (modules, edges) = fixture(&[("lib.rs", "mod time;"), ("time.rs", "")]);
        assert_eq!(violations_of(&[], &modules, &edges).len(), 1);
    }

    #[test]
    fn the_longest_path_decides_the_layer() {
        let layers = ["policy", "scheduler", "policy/ps"];
        assert_eq!(place(&layers, "policy/ps/tree"), Some(2));
        assert_eq!(place(&layers, "policy/psx"), Some(0));
        assert_eq!(place(&layers, "policyx"), None);
        assert_eq!(module_of("crates/core/src/policy/mod.rs", "crates/core/src"), "policy");
    }
}
