//! The accounts of one CPU, nested.
//!
//! ```text
//! top (shares)          real-time activities, groups with a share, the rest
//!  +- rest (weights)    adaptive activities, groups with a weight
//!  |   +- group         its members, and the groups in it
//!  +- group             ...
//! ```
//!
//! A pick goes down the tree. Service is charged at every level on the way up.
//! [`super::ProportionalShare`] calls this module and knows the activities. This module identifies
//! clients by number: activities have the numbers below the capacity, accounts have the numbers
//! from the capacity on.
//!
//! An account is a client of the account above it. The client is ready while the account has a
//! ready member, and picked while a member is served. A share counts while its group has a member.
//! A weight counts only while a member competes, so groups with a weight exist from the start, and
//! keep their debt.

use super::group::Group;
use super::instance::Instance;
use crate::activity::Claim;
use crate::share::Share;
use crate::time::Span;

/// The account of the whole CPU.
pub(super) const TOP: usize = 0;
/// The account of what real-time activities leave; a client of the top.
pub(super) const REST: usize = 1;
/// Real-time activities win ties: the rest comes last.
const REST_TIE: u32 = u32::MAX;

#[derive(Debug)]
struct Node {
    account: Instance,
    /// The account above. For the top it is the top itself.
    parent: usize,
    /// The account's number as a client of its parent.
    client: u32,
    /// The account's weight in its parent; for clients of the top a share in millionths.
    weight: u32,
    /// The account's place among equals in its parent. Groups come in their order, before all
    /// activities.
    tie: u32,
    /// The number of activities below a group.
    members: u32,
    /// The longest stretch of any activity below so far.
    stretch_max: Span,
    /// Whether an activity below is being served.
    served: bool,
}

/// All accounts of a CPU; the [module](self) describes them. Nothing allocates after creation. With
/// `d` accounts above an activity, each call is O(d log n).
#[derive(Debug)]
pub(super) struct Tree {
    nodes: Vec<Node>,
    capacity: u32,
    quantum: Span,
    /// What all accounts together have of the CPU, in millionths.
    whole_ppm: u32,
    /// The sum of the shares, in millionths.
    shares_ppm: u32,
    /// Whether a client retired since the last [`Tree::settle`].
    has_retired: bool,
}

impl Tree {
    /// A tree for activities numbered `0..capacity`. Parents stand before their groups.
    pub(super) fn new(capacity: u32, quantum: Span, groups: &[Group]) -> Self {
        // A capacity of `u32::MAX` would need more memory than exists.
        let accounts = u32::try_from(groups.len() + 1).unwrap_or(u32::MAX);
        let clients = capacity.saturating_add(accounts);
        let node = |account, parent, client, weight, tie| {
            let (members, stretch_max, served) = (0, Span::ZERO, false);
            Node { account, parent, client, weight, tie, members, stretch_max, served }
        };
        let rest_ppm = Share::WHOLE.ppm();
        let mut nodes = vec![
            node(Instance::of_shares(clients), TOP, u32::MAX, 0, 0),
            node(Instance::of_weights(clients), TOP, capacity, rest_ppm, REST_TIE),
        ];
        nodes[TOP].account.join(capacity, rest_ppm, REST_TIE);
        for (group, tie) in groups.iter().zip(0..) {
            let client = capacity.saturating_add(tie).saturating_add(1);
            let (parent, weight) = match (group.parent, group.claim) {
                (Some(parent), Claim::Weight(weight)) => (usize::from(parent.0) + 2, weight),
                (None, Claim::Share(share)) => (TOP, share.ppm()),
                (_, Claim::Weight(weight)) => (REST, weight),
                // Such groups are refused when a discipline is made.
                (Some(_), Claim::Share(_)) => (REST, 1),
            };
            if parent != TOP {
                nodes[parent].account.join(client, weight, tie);
            }
            nodes.push(node(Instance::of_weights(clients), parent, client, weight, tie));
        }
        Tree { nodes, capacity, quantum, whole_ppm: rest_ppm, shares_ppm: 0, has_retired: false }
    }

    /// The account of a group.
    pub(super) fn of_group(group: usize) -> usize {
        group + 2
    }

    /// Adds an idle client to the account `node`, with its weight in that account.
    pub(super) fn join(&mut self, node: usize, client: u32, weight: u32, tie: u32) {
        let mut at = node;
        while at > REST {
            let Node { ref mut members, parent, client, weight, tie, .. } = self.nodes[at];
            *members += 1;
            if *members == 1 && parent == TOP {
                self.join(TOP, client, weight, tie);
            }
            at = parent;
        }
        if node == TOP {
            self.weigh_rest(self.shares_ppm.saturating_add(weight));
        }
        self.nodes[node].account.join(client, weight, tie);
    }

    /// Removes an idle client. If it was a client of the top, the rest gets its share, and its debt
    /// for service that it used in advance.
    pub(super) fn leave(&mut self, node: usize, client: u32, weight: u32) {
        let account = &mut self.nodes[node].account;
        let lag_ns = account.lag_ns(client, None, Span::ZERO).unwrap_or(0);
        account.leave(client);
        if node == TOP {
            self.weigh_rest(self.shares_ppm.saturating_sub(weight));
            let debt = Span::from_nanos(lag_ns.min(0).unsigned_abs());
            self.nodes[TOP].account.inherit(self.capacity, debt);
        }
        let mut at = node;
        while at > REST {
            let Node { ref mut members, parent, client, weight, .. } = self.nodes[at];
            *members -= 1;
            if *members == 0 && parent == TOP {
                self.leave(TOP, client, weight);
            }
            at = parent;
        }
    }

    /// Changes the weight of a client in its account.
    pub(super) fn reweigh(&mut self, node: usize, client: u32, before: u32, weight: u32) {
        self.nodes[node].account.reweigh(client, weight);
        if node == TOP {
            let others_ppm = self.shares_ppm.saturating_sub(before);
            self.weigh_rest(others_ppm.saturating_add(weight));
        }
    }

    /// Changes what all accounts together have of the CPU. The rest has what the shares leave.
    pub(super) fn set_whole(&mut self, whole: Share) {
        self.whole_ppm = whole.ppm();
        self.weigh_rest(self.shares_ppm);
    }

    /// Notes a new sum of the shares.
    fn weigh_rest(&mut self, shares_ppm: u32) {
        self.shares_ppm = shares_ppm;
        let weight = self.whole_ppm.saturating_sub(shares_ppm).max(1);
        self.nodes[TOP].account.reweigh(self.capacity, weight);
    }

    /// Notes that an activity below `node` may run for `stretch` without a boundary.
    pub(super) fn note_stretch(&mut self, mut node: usize, stretch: Span) {
        while node != TOP {
            self.nodes[node].stretch_max = self.nodes[node].stretch_max.max(stretch);
            node = self.nodes[node].parent;
        }
    }

    /// Enters a request of a client.
    pub(super) fn request(&mut self, node: usize, client: u32, length: Span) {
        self.nodes[node].account.request(client, length);
        self.place(node);
    }

    /// Notes that the client has no further request.
    pub(super) fn retire(&mut self, node: usize, client: u32) {
        self.nodes[node].account.retire(client);
        self.has_retired = true;
        self.place(node);
    }

    /// Makes accounts without a ready member begin anew. The caller calls this while nothing runs,
    /// before it chooses. A client whose next job waits has requested service again by then, so it
    /// never stopped competing. O(1), and O(accounts) after a client retired.
    pub(super) fn settle(&mut self) {
        if core::mem::take(&mut self.has_retired) {
            self.nodes.iter_mut().for_each(|node| node.account.settle());
        }
    }

    /// Lets an account compete in the one above while it has a ready member. While a member is
    /// served, the account stays picked.
    fn place(&mut self, mut node: usize) {
        while node != TOP && !self.nodes[node].served {
            let Node { ref account, parent, client, stretch_max, .. } = self.nodes[node];
            let ready = account.has_ready();
            let above = &mut self.nodes[parent].account;
            if !ready {
                above.retire(client);
            } else if above.is_ready(client) {
                return;
            } else {
                // No member is served for longer than this, so the account is never charged more
                // than it requested.
                above.request(client, self.quantum.max(stretch_max));
            }
            node = parent;
        }
    }

    /// The activity that is served next.
    pub(super) fn choose(&mut self) -> Option<u32> {
        let top = &mut self.nodes[TOP].account;
        if !top.has_eligible() {
            // No client is eligible: the rest goes before clients that have had their share.
            top.forgive(self.capacity);
        }
        let mut client = top.peek()?;
        while let Some(account) = client.checked_sub(self.capacity) {
            client = self.nodes[account as usize + 1].account.peek()?;
        }
        Some(client)
    }

    /// Takes a ready activity out of the order, to be served.
    pub(super) fn take(&mut self, mut node: usize, mut client: u32) {
        loop {
            self.nodes[node].account.take(client);
            if node == TOP {
                return;
            }
            self.nodes[node].served = true;
            (node, client) = (self.nodes[node].parent, self.nodes[node].client);
        }
    }

    /// The activity is no longer served; `request` or `retire` follows.
    pub(super) fn put_back(&mut self, mut node: usize) {
        while node != TOP {
            self.nodes[node].served = false;
            node = self.nodes[node].parent;
        }
    }

    /// Charges the served activity and the accounts above it `used`.
    pub(super) fn charge(&mut self, mut node: usize, mut client: u32, used: Span) {
        loop {
            self.nodes[node].account.charge(client, used);
            if node == TOP {
                return;
            }
            (node, client) = (self.nodes[node].parent, self.nodes[node].client);
        }
    }

    /// Whether any activity is ready. O(1), with one check for each group.
    pub(super) fn has_ready(&self) -> bool {
        self.nodes.iter().any(|node| node.account.has_ready())
    }

    /// How far a client is behind its part of what its account got; `serving`, with
    /// its account, was served for `pending` that is not charged yet.
    pub(super) fn lag_ns(
        &self,
        node: usize,
        client: u32,
        serving: Option<(usize, u32)>,
        pending: Span,
    ) -> Option<i64> {
        let mut at = serving;
        while let Some((account, _)) = at
            && account != node
        {
            let above = &self.nodes[account];
            at = (account != TOP).then_some((above.parent, above.client));
        }
        self.nodes[node].account.lag_ns(client, at.map(|(_, client)| client), pending)
    }

    /// How far an account is behind its part of the account above. See [`Self::lag_ns`].
    pub(super) fn account_lag_ns(
        &self,
        node: usize,
        serving: Option<(usize, u32)>,
        pending: Span,
    ) -> Option<i64> {
        let Node { parent, client, .. } = *self.nodes.get(node)?;
        self.lag_ns(parent, client, serving, pending)
    }

    #[cfg(test)]
    pub(super) fn shares_ppm(&self) -> u32 {
        self.shares_ppm
    }
}
