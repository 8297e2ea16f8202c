//! The executor's end of a trace: a ring in which records wait for the collector.

use rtrb::{Consumer, Producer};
use upcall_core::trace::{Crossing, Record, Sink};

/// How many records may wait, 4 MiB for each CPU. Further records are counted as lost.
const RECORDS_MAX: usize = 32 * 1024;

/// Takes records in constant time, without a lock, an allocation or a system call. While the ring
/// is full records are lost, and one record in their place says how many were.
#[derive(Debug)]
pub(crate) struct Ring {
    records: Producer<Record>,
    lost: u64,
}

impl Ring {
    /// An empty ring and its other end. Takes all memory it needs.
    pub(crate) fn new() -> (Self, Consumer<Record>) {
        Ring::with_room(RECORDS_MAX)
    }

    fn with_room(records_max: usize) -> (Self, Consumer<Record>) {
        let (records, out) = rtrb::RingBuffer::new(records_max);
        (Ring { records, lost: 0 }, out)
    }

    /// The records lost since the last one that was kept.
    pub(crate) fn lost(&self) -> u64 {
        self.lost
    }
}

impl Sink for Ring {
    fn note(&mut self, record: Record) {
        if self.lost > 0 {
            let gap = Crossing::Lost { records: self.lost };
            if self.records.push(Record { now: record.now, crossing: gap }).is_err() {
                self.lost += 1;
                return;
            }
            self.lost = 0;
        }
        if self.records.push(record).is_err() {
            self.lost = 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use upcall_core::scheduler::Input;
    use upcall_core::time::Instant;

    fn tick(ns: u64) -> Record {
        let crossing = Crossing::Input { input: Input::Tick, refused: false };
        Record { now: Instant::from_nanos(ns), crossing }
    }

    fn lost(ns: u64, records: u64) -> Record {
        Record { now: Instant::from_nanos(ns), crossing: Crossing::Lost { records } }
    }

    #[test]
    fn lost_records_are_counted_where_they_are_missing() {
        let (mut ring, mut out) = Ring::with_room(3);
        (0..5).for_each(|ns| ring.note(tick(ns)));
        assert_eq!((out.pop(), ring.lost()), (Ok(tick(0)), 2));
        // There is room for the gap only, so this record is lost too.
        ring.note(tick(5));
        assert_eq!(ring.lost(), 1);
        let mut found = Vec::new();
        while let Ok(record) = out.pop() {
            found.push(record);
        }
        ring.note(tick(6));
        while let Ok(record) = out.pop() {
            found.push(record);
        }
        assert_eq!(found, [tick(1), tick(2), lost(5, 2), lost(6, 1), tick(6)]);
        assert_eq!(ring.lost(), 0);
    }
}
