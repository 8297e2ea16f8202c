//! A trace file from any bytes. The reader accepts or refuses it. An accepted trace is the same
//! after it is written and read again, and its replay agrees or diverges.

use upcall_sim::trace::{Writer, read};

/// Reads `data` as a trace. Panics if an accepted trace changes when it is written and read again.
pub fn trace(data: &[u8]) {
    let first = match read(data) {
        Ok(trace) => trace,
        Err(error) => return assert!(error.offset <= data.len(), "{error}"),
    };
    let mut writer = Writer::new(Vec::new(), &first.header).unwrap();
    for ((cpu, _), records) in first.header.cpus.iter().zip(&first.records) {
        for record in records {
            writer.record(*cpu, record).unwrap();
        }
    }
    let again = read(&writer.finish().unwrap()).unwrap();
    assert_eq!(first.records, again.records);
    assert_eq!(first.header.activities, again.header.activities);
    let outcomes = |trace: &upcall_sim::trace::Trace| {
        trace.replay().into_iter().map(|of_cpu| of_cpu.outcome).collect::<Vec<_>>()
    };
    assert_eq!(outcomes(&first), outcomes(&again));
}
