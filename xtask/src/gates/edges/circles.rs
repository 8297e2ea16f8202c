//! Circles: files that use each other, directly or through others.

use super::modules::File;
use super::resolve::Edges;
use std::collections::BTreeSet;

/// Each strongly connected component of two or more of the `files` files, by Tarjan's algorithm.
pub fn circles(files: usize, edges: &Edges) -> Vec<BTreeSet<File>> {
    let mut search = Search {
        edges,
        next: 0,
        order: vec![None; files],
        lowest: vec![0; files],
        stack: Vec::new(),
        found: Vec::new(),
    };
    for file in 0..files {
        if search.order[file].is_none() {
            search.visit(file);
        }
    }
    search.found.sort();
    search.found
}

struct Search<'a> {
    edges: &'a Edges,
    next: usize,
    /// When the search came to each file.
    order: Vec<Option<usize>>,
    /// The earliest file of the stack that each file reaches.
    lowest: Vec<usize>,
    stack: Vec<File>,
    found: Vec<BTreeSet<File>>,
}

impl Search<'_> {
    fn visit(&mut self, file: File) {
        let order = self.next;
        self.next += 1;
        (self.order[file], self.lowest[file]) = (Some(order), order);
        self.stack.push(file);
        let edges = self.edges;
        for &(_, used) in edges.range((file, 0)..=(file, File::MAX)).map(|(edge, _)| edge) {
            match self.order[used] {
                None => {
                    self.visit(used);
                    self.lowest[file] = self.lowest[file].min(self.lowest[used]);
                }
                Some(order) if self.stack.contains(&used) => {
                    self.lowest[file] = self.lowest[file].min(order);
                }
                Some(_) => {}
            }
        }
        if self.lowest[file] == order {
            let start = self.stack.iter().rposition(|other| *other == file).unwrap_or(0);
            let members: BTreeSet<File> = self.stack.split_off(start).into_iter().collect();
            if members.len() > 1 {
                self.found.push(members);
            }
        }
    }
}
