//! The outcome of one schedulability test.

/// Outcome of one schedulability test on one CPU. `passed` agrees with `value
/// <= bound`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TestResult {
    /// `liu-layland`, `sha-blocking`, `rmdp-bound`, `response-time`,
    /// `demand-bound`, `utilization` or `cpu-limit`; of DWCS `window-utilization`,
    /// `edf-demand`, `window-slots` or `window-simulation`.
    pub name: &'static str,
    /// The CPU.
    pub cpu: u32,
    /// Whether the test accepts the set.
    pub passed: bool,
    /// What was found: a utilization, for `response-time` and `demand-bound`
    /// the largest response in deadlines, for `edf-demand` the largest part of a length of
    /// time that is due within it, for `window-slots` the part of the slots that
    /// is needed, for the simulations the windows violated. Infinite if a
    /// response has no bound, or none was found.
    pub value: f64,
    /// The most it may be.
    pub bound: f64,
    /// Whether admission goes by it: `response-time` or `demand-bound`, under DWCS the test that
    /// proved or refused, or `cpu-limit` where that alone refuses.
    pub deciding: bool,
}
