//! RM: rate monotonic with immediate preemption (Liu and Layland 1973, cited in
//! rtu-1995 §3), the baseline the papers compare with.
//!
//! The order is RMDP's; what differs is that preemption does not wait for the
//! end of a quantum. A driver that cannot preempt inside a PDU (the runtime)
//! asks after each one; the kernel does it truly in `--mode fifo`.

use super::Discipline;
use super::rmdp::RateMonotonic;
use crate::admission::Verdict;

/// Rate monotonic with immediate preemption, to compare with. In the runtime a handler can yield
/// after each PDU.
pub static RM: Discipline = Discipline {
    name: "rm",
    preemptive: true,
    time_quantum: None,
    across_domains: true,
    groups: Vec::new(),
    policy: |_, capacity| Box::new(RateMonotonic::new(capacity)),
    order: |params| params.period.as_nanos(),
    verdict: |_, cpu, set, _, platform, steps| {
        Verdict::of_fixed_priority(cpu, set, platform, steps, false)
    },
};
