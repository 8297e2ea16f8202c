//! What an experiment shows: one run, or the averages of several.

use upcall_core::time::Span;

/// Where packets of a receiver were dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drops {
    /// At the adapter, which had no place: the interrupts have no time left.
    pub at_adapter: u64,
    /// Before the protocols, by a full queue or a quota: "drops at IP" in the paper.
    pub at_input_queue: u64,
    /// After the protocols, by a full buffer of the socket.
    pub at_socket: u64,
}

/// What became of the packets of a receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// The receiver.
    pub name: &'static str,
    /// Packets that came.
    pub offered: u64,
    /// Packets that the program processed.
    pub packets: u64,
    /// Packets that were dropped.
    pub drops: Drops,
    /// Packets that waited somewhere at the end.
    pub waiting: u64,
}

/// The result of an experiment: a column of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// By receiver.
    pub receivers: Vec<Received>,
    /// CPU time of the background program.
    pub background: Span,
    /// CPU time of interrupts.
    pub interrupts: Span,
    /// CPU time of the protocols.
    pub protocols: Span,
    /// CPU time of the receivers.
    pub programs: Span,
}

/// A mean, and the standard deviation of a sample.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Average {
    /// The mean.
    pub mean: f64,
    /// The standard deviation; 0 for less than two values.
    pub deviation: f64,
}

impl Average {
    /// That of `values`; 0 without any.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let values: Vec<f64> = values.into_iter().collect();
        let count = values.len().max(1) as f64;
        let mean = values.iter().sum::<f64>() / count;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let deviation = if values.len() < 2 { 0.0 } else { (squares / (count - 1.0)).sqrt() };
        Average { mean, deviation }
    }
}

/// The averages of one receiver: a row of a table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Row {
    /// The receiver.
    pub name: &'static str,
    /// Packets that the program processed.
    pub packets: Average,
    /// [`Drops::at_adapter`].
    pub at_adapter: Average,
    /// [`Drops::at_input_queue`].
    pub at_input_queue: Average,
    /// [`Drops::at_socket`].
    pub at_socket: Average,
}

/// The averages of several runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Averages {
    /// By receiver.
    pub rows: Vec<Row>,
    /// CPU time of the background program, in seconds.
    pub background_s: Average,
}
