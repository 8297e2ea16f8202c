//! What a player does with its frames under every variant.

use std::ops::Range;

use upcall::stream::{Message, StreamReader};
use upcall::time::{Instant, Span};
use upcall::{Batch, clock};

use crate::decoder::Decoder;
use crate::frame_events::Statements;
use crate::setup::number;

/// About so many frames count for the mean of the times that frames took.
const TOOK_OVER: u32 = 4;
/// Bytes in front of each frame in its stream: its number, and its display time.
pub const HEADER_BYTES: usize = 16;

/// The screen of one player. Decodes frames in time, and counts.
pub struct Screen {
    decoder: Decoder,
    /// The CPU time that a frame may take.
    cost: Span,
    /// The mean time for which the last frames took, with what interrupted them.
    took: Span,
    /// Numbers of the frames that count.
    counted: Range<u64>,
    counts: FrameCounts,
    /// Frames that were taken from the stream.
    taken: u64,
    /// The number and the display time of the last one.
    last: (u64, Instant),
    /// `None`: nobody asks for them.
    statements: Option<Statements>,
}

/// Counts of the frames of a player.
#[derive(Clone, Copy, Debug, Default)]
pub struct FrameCounts {
    /// Decoded by their display time.
    pub in_time: u64,
    /// Decoded too late.
    pub late: u64,
    /// Not decoded, because the player came to them too late.
    pub skipped: u64,
    /// CPU time of decoding, in all and of the longest frame.
    pub cpu_ns: u64,
    pub cpu_ns_max: u64,
}

impl FrameCounts {
    pub fn to_line(self) -> String {
        let FrameCounts { in_time, late, skipped, cpu_ns, cpu_ns_max } = self;
        format!("{in_time} {late} {skipped} {cpu_ns} {cpu_ns_max}")
    }

    /// Parses a line of `to_line`.
    pub fn of_line(line: &str) -> Self {
        let numbers: Vec<u64> = line.split(' ').map(number).collect();
        let &[in_time, late, skipped, cpu_ns, cpu_ns_max] = numbers.as_slice() else {
            panic!("a player printed `{line}`")
        };
        FrameCounts { in_time, late, skipped, cpu_ns, cpu_ns_max }
    }
}

impl Screen {
    pub fn new(decoder: Decoder, cost: Span, counted: Range<u64>) -> Self {
        let (counts, last) = (FrameCounts::default(), (0, Instant::ZERO));
        Screen { decoder, cost, took: cost, counted, counts, taken: 0, last, statements: None }
    }

    /// States each next frame to the service that raises its event.
    pub fn state_by(&mut self, statements: Statements) {
        self.statements = Some(statements);
    }

    pub fn counts(&self) -> FrameCounts {
        self.counts
    }

    /// States the next frame, if frames were taken. Events that are there before belong to frames
    /// that were taken.
    pub fn state_next(&mut self, batch: &mut Batch<'_>) {
        let Some(statements) = &mut self.statements else { return };
        if statements.is_due(self.taken) {
            while batch.take_event().is_some() {}
            statements.state(self.last, self.taken);
        }
    }

    /// Whether a frame is there that can still be shown. Skips earlier frames that cannot, by what
    /// a frame may take and what the last ones took: a late frame is wasted CPU time.
    pub fn has_frame(&mut self, reader: &mut StreamReader) -> bool {
        while let Ok(Some(message)) = reader.front() {
            let (number, due) = header(&message);
            if clock::now() + self.cost.max(self.took) <= due {
                return true;
            }
            message.done();
            (self.taken, self.last) = (self.taken + 1, (number, due));
            // The next one has a chance, also if nothing interrupts a frame any more.
            self.took = self.took.saturating_sub(self.took / TOOK_OVER);
            self.counts.skipped += u64::from(self.counted.contains(&number));
        }
        false
    }

    /// Decodes the next frame, if there is one.
    pub fn show(&mut self, reader: &mut StreamReader) {
        let Ok(Some(message)) = reader.front() else { return };
        let (number, due) = header(&message);
        let len = message.len() - HEADER_BYTES;
        message.payload().copy_to(HEADER_BYTES, self.decoder.buffer(len));
        message.done();
        (self.taken, self.last) = (self.taken + 1, (number, due));
        let (begun, before_ns) = (clock::now(), upcall::thread_cpu_ns());
        self.decoder.decode(len);
        let (took, cpu_ns) = (clock::now().since(begun), upcall::thread_cpu_ns() - before_ns);
        self.took = self.took.saturating_sub(self.took / TOOK_OVER) + took / TOOK_OVER;
        if self.counted.contains(&number) {
            let in_time = clock::now() <= due;
            self.counts.in_time += u64::from(in_time);
            self.counts.late += u64::from(!in_time);
            self.counts.cpu_ns += cpu_ns;
            self.counts.cpu_ns_max = self.counts.cpu_ns_max.max(cpu_ns);
        }
    }
}

fn header(message: &Message<'_>) -> (u64, Instant) {
    let mut header = [[0; 8]; 2];
    message.payload().copy_to(0, header.as_flattened_mut());
    let [number, due_ns] = header.map(u64::from_ne_bytes);
    (number, Instant::from_nanos(due_ns))
}
