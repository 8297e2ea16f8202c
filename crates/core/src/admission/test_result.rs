//! The outcome of one schedulability test.

/// The outcome of one schedulability test on one CPU. `passed` equals `value <= bound`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TestResult {
    /// `liu-layland`, `sha-blocking`, `rmdp-bound`, `response-time`, `demand-bound`, `utilization`
    /// or `cpu-limit`; of DWCS `window-utilization`, `edf-demand`, `window-slots`,
    /// `slot-simulation` or `window-simulation`; of PS `share-sum`, `response-time` and
    /// `cpu-limit`.
    pub name: &'static str,
    /// The CPU.
    pub cpu: u32,
    /// Whether the test accepts the set.
    pub passed: bool,
    /// The tested value. For `response-time` and `demand-bound`: the largest response in deadlines.
    /// For `edf-demand`: the largest part of an interval that is due within it. For `window-slots`:
    /// the part of the slots that is needed. For the simulations: the number of violated windows.
    /// For all others: a utilization. Infinite if a response has no bound, or if none was found.
    pub value: f64,
    /// The upper limit of `value`.
    pub bound: f64,
    /// Whether this test decides: `response-time` or `demand-bound`; under DWCS the test that
    /// proved or refused; under PS the first test that refuses, or else `share-sum`. `cpu-limit`
    /// decides if only this test refuses.
    pub deciding: bool,
}
