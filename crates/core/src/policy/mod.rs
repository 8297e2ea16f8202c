//! Who outranks whom: one file a policy.
//!
//! Every policy of the papers is the same two numbers an activity, when it
//! becomes eligible and its rank among the eligible (design §3). The
//! scheduler orders by them and knows nothing else of a policy.

pub mod rmdp;

/// Place among the eligible: the smaller one runs first.
///
/// Ends in the order of creation, so two activities never tie and the one that
/// stands first in the file wins (contract, last section).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rank {
    /// What the policy orders by.
    pub key: u64,
    /// How many activities were created before it.
    pub tie: u32,
}
