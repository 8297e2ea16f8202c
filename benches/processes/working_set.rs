//! The memory on which a handler works, besides its CPU time. Other handlers push this memory out
//! of the caches, and a switch must bring it back.

use upcall::clock;
use upcall::time::Span;

/// The number of handlers in 16 processes, each with a working set.
const OTHERS: usize = 96;

/// Memory on which a handler works. An iteration walks a slice of it.
pub struct WorkingSet {
    lines: Vec<[u64; 8]>,
    slice: usize,
}

impl WorkingSet {
    const SLICES: usize = 8;

    /// Touches all memory, so that no page fault comes later.
    pub fn new(kib: usize) -> Self {
        WorkingSet { lines: vec![[1; 8]; kib * 1024 / 64], slice: 0 }
    }

    /// Walks one slice, the next one each time.
    pub fn walk(&mut self) {
        let slice_lines = self.lines.len() / Self::SLICES;
        let first = self.slice * slice_lines;
        self.slice = (self.slice + 1) % Self::SLICES;
        for line in &mut self.lines[first..first + slice_lines] {
            line[0] = line[0].wrapping_add(line[7]);
        }
        std::hint::black_box(&mut self.lines);
    }

    /// Time to walk a slice that is in the cache: the median of many walks.
    pub fn warm(&mut self) -> Span {
        let mut walks: Vec<Span> = (0..40 * Self::SLICES).map(|_| self.timed()).collect();
        walks.sort_unstable();
        walks[walks.len() / 2]
    }

    fn timed(&mut self) -> Span {
        let before = clock::now();
        self.walk();
        clock::now().since(before)
    }
}

/// Time to bring a working set back into the cache after other handlers ran: the median of twenty.
pub fn reload(set_kib: usize) -> Span {
    let mut set = WorkingSet::new(set_kib);
    let mut others = WorkingSet::new(set_kib * OTHERS);
    let all = WorkingSet::SLICES as u64;
    let warm = Span::from_nanos(set.warm().as_nanos() * all);
    let mut reloads: Vec<Span> = (0..20)
        .map(|_| {
            (0..WorkingSet::SLICES).for_each(|_| others.walk());
            let cold: Span = (0..WorkingSet::SLICES).map(|_| set.timed()).sum();
            cold.saturating_sub(warm)
        })
        .collect();
    reloads.sort_unstable();
    reloads[reloads.len() / 2]
}
