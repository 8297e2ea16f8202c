//! From the names in each module to edges between the files of a crate.
//!
//! An edge leads from the file that uses an item to the file that defines it. A path is followed
//! through re-exports: an item that `a.rs` re-exports from `a/b.rs` and `c.rs` uses as
//! `crate::a::Item` gives the edge from `c.rs` to `a/b.rs`.
//!
//! - A declaration `mod name;` gives no edge, and neither does an import of a module. A path
//!   through that import does.
//! - A re-export (`pub use`, `pub(crate) use`) gives no edge. If the code of the same file names
//!   the item as well, that gives one.
//! - A private `use` of an item gives an edge. The compiler refuses one that nothing uses.
//! - A re-export of another crate's item leads out of this crate, so it gives no edge.
//! - A name that no file visibly defines was made by a macro: its module's file defines it.

use super::modules::{File, Modules};
use std::collections::BTreeMap;

/// An edge: the file that uses and the file that defines.
pub type Edge = (File, File);

/// The edges of a crate, each with the items used and the first line that names each.
pub type Edges = BTreeMap<Edge, BTreeMap<String, usize>>;

/// The item of an edge that stands first in the file, and its line.
pub fn first_use(items: &BTreeMap<String, usize>) -> (&str, usize) {
    let first = items.iter().min_by_key(|(_, line)| **line);
    first.map_or(("", 0), |(item, line)| (item, *line))
}

/// Where a path leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    Module(usize),
    Item(File),
    OtherCrate,
}

/// Imports that lead to imports: more steps than this are a circle among them.
const STEPS_MAX: usize = 32;

/// Every edge between two different files of the crate.
pub fn edges(modules: &Modules) -> Edges {
    let mut found = Edges::new();
    for (index, module) in modules.modules.iter().enumerate() {
        let imports =
            module.imports.iter().filter(|import| import.name.is_some() && !import.is_reexport);
        let imports = imports.map(|import| (&import.path, import.line));
        let references =
            module.references.iter().map(|reference| (&reference.path, reference.line));
        for (path, line) in imports.chain(references) {
            let target = modules.target(index, path, STEPS_MAX).or_else(|| match &**path {
                [name] => modules.macros.get(name).copied().map(Target::Item),
                _ => None,
            });
            if let Some(Target::Item(file)) = target
                && file != module.file
            {
                let items = found.entry((module.file, file)).or_default();
                let first = items.entry(path.join("::")).or_insert(line);
                *first = line.min(*first);
            }
        }
    }
    found
}

impl Modules {
    /// Where `path` leads from the module `from`; nothing if its first name is unknown here.
    fn target(&self, from: usize, path: &[String], steps: usize) -> Option<Target> {
        let steps = steps.checked_sub(1)?;
        let (first, rest) = path.split_first()?;
        let mut at = match first.as_str() {
            "crate" => Target::Module(0),
            "self" => Target::Module(from),
            "super" => Target::Module(self.modules[from].parent?),
            "Self" => return None,
            name => self.named(from, name, rest.is_empty(), steps)?,
        };
        for (index, name) in rest.iter().enumerate() {
            let Target::Module(module) = at else { return Some(at) };
            at = match name.as_str() {
                "self" => at,
                "super" => Target::Module(self.modules[module].parent?),
                name => {
                    let is_last = index + 1 == rest.len();
                    self.named(module, name, is_last, steps)
                        .unwrap_or_else(|| self.made_by_macro(module, steps))
                }
            };
        }
        Some(at)
    }

    /// What `name` means in `module`. As the last part of a path it is rather an item, before
    /// another part rather a module.
    fn named(&self, module: usize, name: &str, is_last: bool, steps: usize) -> Option<Target> {
        let here = &self.modules[module];
        let child = here.children.get(name).copied().map(Target::Module);
        let item = here.items.get(name).copied().map(Target::Item);
        let own = if is_last { item.or(child) } else { child.or(item) };
        own.or_else(|| {
            let import = here.imports.iter().find(|import| import.name.as_deref() == Some(name))?;
            // `use name::name` does not lead back to itself.
            if import.path.first().is_some_and(|first| first == name)
                && !here.children.contains_key(name)
            {
                return Some(Target::OtherCrate);
            }
            Some(self.target(module, &import.path, steps).unwrap_or(Target::OtherCrate))
        })
        .or_else(|| {
            let globs = here.imports.iter().filter(|import| import.name.is_none());
            globs.into_iter().find_map(|glob| {
                let steps = steps.checked_sub(1)?;
                match self.target(module, &glob.path, steps)? {
                    Target::Module(other) if other != module => {
                        self.named(other, name, is_last, steps)
                    }
                    _ => None,
                }
            })
        })
    }

    /// An unknown name in `module`: of its file, unless it may come from another crate's `*`.
    fn made_by_macro(&self, module: usize, steps: usize) -> Target {
        let here = &self.modules[module];
        let mut globs = here.imports.iter().filter(|import| import.name.is_none());
        let is_foreign = globs.any(|glob| self.target(module, &glob.path, steps).is_none());
        if is_foreign { Target::OtherCrate } else { Target::Item(here.file) }
    }
}
