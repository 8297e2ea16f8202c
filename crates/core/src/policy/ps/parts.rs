//! The parts of one CPU: what each domain has of it, and what each domain has of each group.
//!
//! The driver computes them from the claims of all activities whenever a claim changes: the
//! simulator for its domains, a daemon for the processes of a user. [`super::DomainAccounts`] and
//! the schedulers of the domains take them. The module keeps no state.
//!
//! A group may have members in several domains. So each domain has a *part of the group*, by the
//! weights of its members. The groups are thereby flattened: the claims of a domain are its own
//! ones, and its parts of what its groups claim.
//!
//! ```text
//! w_G,d = the weights of the members of d in G + for each group H inside G: w_H g_H,d
//! W_G   = the sum of w_G,d over all domains
//! g_G,d = w_G,d / W_G                                    the part of G that d has
//! F_d, W_d = the shares and weights of the activities of d outside all groups
//!            + for each outermost group G: its share or weight times g_G,d
//! p_d   = F_d + (1 - F) W_d / W                          the part of the CPU that d has
//! ```
//!
//! If all activities are busy, each has what a single scheduler with the whole tree of groups would
//! give it. What idle members leave goes to their domain first.

use super::Group;
use super::group::group_of;
use crate::activity::{Claim, GroupId, Terms};
use crate::share::Share;

/// Fractional bits of sums of weights and shares.
const SUM_BITS: u32 = 20;
/// Fractional bits of a domain's part of a group.
const PART_BITS: u32 = 32;

/// What an activity claims on its CPU, and for which domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DomainClaim {
    /// The number of its domain.
    pub domain: u32,
    /// The group in which it has its weight.
    pub group: Option<GroupId>,
    /// Its share or weight; inside a group a weight.
    pub claim: Claim,
}

impl DomainClaim {
    /// The claim of an activity of `domain` with these terms. A group that is not among `groups`
    /// counts as none.
    pub fn of(domain: u32, terms: &Terms, groups: &[Group]) -> Self {
        let group = terms.group.filter(|_| group_of(terms, groups).is_some());
        let claim = match terms.share {
            Some(share) if group.is_none() => Claim::Share(share),
            _ => Claim::Weight(terms.weight.unwrap_or(1)),
        };
        DomainClaim { domain, group, claim }
    }
}

/// The parts of one CPU under PS (docs/decisions/0022). A domain has of a group what the weights of
/// its members are of all. It has of the CPU its shares, its parts of the shares of groups, and by
/// its weights and its parts of those of groups what all shares leave.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parts {
    /// The part of the CPU that each domain with a claim has, by number. Rounded down, so all
    /// together are at most the CPU.
    pub of_domains: Vec<(u32, Share)>,
    /// The part of each group that each domain with a member there has, groups inside it included.
    /// By domain, then by group. Rounded down.
    pub of_groups: Vec<(u32, GroupId, Share)>,
    /// What the caller keeps back. `None`: nothing.
    pub kept: Option<Share>,
}

impl Parts {
    /// The parts by these claims. `kept_ppm` millionths of the CPU are kept from all domains, or
    /// what the shares leave if that is less. No group may be inside itself. Allocates.
    /// O(claims + domains * groups).
    pub fn new(groups: &[Group], claims: &[DomainClaim], kept_ppm: u32) -> Self {
        let mut domains: Vec<u32> = claims.iter().map(|claim| claim.domain).collect();
        domains.sort_unstable();
        domains.dedup();
        let mut sums = Sums::new(domains.len(), groups.len());
        for DomainClaim { domain, group, claim } in claims {
            if let Ok(at) = domains.binary_search(domain) {
                sums.add(at, *group, *claim);
            }
        }
        let mut of_groups = Vec::new();
        for group in inside_out(groups) {
            for (at, part) in sums.parts_of(group) {
                sums.add_part(at, &groups[group], part);
                if let (Ok(group), Some(share)) = (u16::try_from(group), in_ppm(part)) {
                    of_groups.push((domains[at], GroupId(group), share));
                }
            }
        }
        of_groups.sort_unstable();
        let shares: u128 = sums.shares.iter().sum();
        let whole = u128::from(Share::WHOLE.ppm()) << SUM_BITS;
        let kept = (u128::from(kept_ppm) << SUM_BITS).min(whole.saturating_sub(shares));
        let left = whole.saturating_sub(shares + kept);
        let weights: u128 = sums.weights.iter().sum::<u128>().max(1);
        let part_of = |at: usize| {
            let part = sums.shares[at] + left * sums.weights[at] / weights;
            u32::try_from((part >> SUM_BITS).clamp(1, u128::from(Share::WHOLE.ppm()))).ok()
        };
        let parts = domains.iter().enumerate().map(|(at, &domain)| (domain, part_of(at)));
        let of_domains =
            parts.filter_map(|(domain, ppm)| Some((domain, Share::from_ppm(ppm?)?))).collect();
        let kept = u32::try_from(kept >> SUM_BITS).ok().and_then(Share::from_ppm);
        Parts { of_domains, of_groups, kept }
    }
}

/// Sums of claims, with [`SUM_BITS`] fractional bits.
struct Sums {
    /// Of each domain outside all groups.
    shares: Vec<u128>,
    weights: Vec<u128>,
    /// The weights in each group, of each domain.
    in_groups: Vec<Vec<u128>>,
}

impl Sums {
    fn new(domains: usize, groups: usize) -> Self {
        let zeros = vec![0; domains];
        Sums { shares: zeros.clone(), weights: zeros.clone(), in_groups: vec![zeros; groups] }
    }

    /// Adds the claim of an activity of the domain with index `at`.
    fn add(&mut self, at: usize, group: Option<GroupId>, claim: Claim) {
        let whole = 1 << PART_BITS;
        self.add_part(at, &Group { claim, parent: group }, whole);
    }

    /// Adds `part` of the claim of `client`, with [`PART_BITS`] fractional bits.
    fn add_part(&mut self, at: usize, client: &Group, part: u128) {
        let parent = client.parent.and_then(|parent| self.in_groups.get_mut(usize::from(parent.0)));
        let (sums, claimed) = match (parent, client.claim) {
            (Some(of_group), Claim::Weight(weight)) => (of_group, weight.max(1)),
            // Such a group is refused when a discipline is made.
            (Some(of_group), Claim::Share(_)) => (of_group, 1),
            (None, Claim::Weight(weight)) => (&mut self.weights, weight.max(1)),
            (None, Claim::Share(share)) => (&mut self.shares, share.ppm()),
        };
        sums[at] += (u128::from(claimed) * part) >> (PART_BITS - SUM_BITS);
    }

    /// The part of a group that each domain with a member has, by the index of the domain.
    fn parts_of(&self, group: usize) -> Vec<(usize, u128)> {
        let of_group = &self.in_groups[group];
        let total: u128 = of_group.iter().sum();
        let members = of_group.iter().enumerate().filter(|(_, weight)| **weight > 0);
        members.map(|(at, weight)| (at, ((weight << PART_BITS) / total).max(1))).collect()
    }
}

/// The indices of the groups, each before the group that contains it.
fn inside_out(groups: &[Group]) -> Vec<usize> {
    let depth = |&group: &usize| {
        let mut parents = 0;
        let mut at = groups[group].parent;
        while let Some(parent) = at.filter(|_| parents < groups.len()) {
            parents += 1;
            at = groups.get(usize::from(parent.0)).and_then(|group| group.parent);
        }
        core::cmp::Reverse(parents)
    };
    let mut sorted: Vec<usize> = (0..groups.len()).collect();
    sorted.sort_by_cached_key(depth);
    sorted
}

/// A part with [`PART_BITS`] fractional bits in millionths, rounded down, at least 1.
fn in_ppm(part: u128) -> Option<Share> {
    let ppm = (part * u128::from(Share::WHOLE.ppm())) >> PART_BITS;
    u32::try_from(ppm.max(1)).ok().and_then(Share::from_ppm)
}

#[cfg(test)]
mod tests;
