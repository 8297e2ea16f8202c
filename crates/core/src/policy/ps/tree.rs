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
//!
//! A group may have members in other domains, which have schedulers of their own. Then this tree
//! has a part of the group ([`super::Parts`]), and the group is a client with that part of its
//! share or weight. Parts of small weights need fractions. So in a tree with groups the unit of all
//! weights, not of shares, is [`WEIGHT_UNIT`].

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

/// The weight 1, in the accounts of a tree with groups. A part of a weight is rounded to 1 in
/// `WEIGHT_UNIT`.
const WEIGHT_UNIT: u64 = 1 << 16;

#[derive(Debug)]
struct Node {
    account: Instance,
    /// The account above. For the top it is the top itself.
    parent: usize,
    /// The account's number as a client of its parent.
    client: u32,
    /// The account's weight in its parent; for clients of the top a share in millionths.
    weight: u32,
    /// The part of the group that this tree has; the whole for other accounts.
    part: Share,
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
    /// The weight 1, as the accounts count it.
    weight_unit: u64,
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
            let (part, members, stretch_max, served) = (Share::WHOLE, 0, Span::ZERO, false);
            Node { account, parent, client, weight, part, tie, members, stretch_max, served }
        };
        let weight_unit = if groups.is_empty() { 1 } else { WEIGHT_UNIT };
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
                nodes[parent].account.join_weighing(client, u64::from(weight) * weight_unit, tie);
            }
            nodes.push(node(Instance::of_weights(clients), parent, client, weight, tie));
        }
        let (whole_ppm, shares_ppm, has_retired) = (rest_ppm, 0, false);
        Tree { nodes, capacity, quantum, weight_unit, whole_ppm, shares_ppm, has_retired }
    }

    /// The account of a group.
    pub(super) fn of_group(group: usize) -> usize {
        group + 2
    }

    /// Adds an idle activity to the account `node`, with its weight in that account.
    pub(super) fn join(&mut self, node: usize, client: u32, weight: u32, tie: u32) {
        let mut at = node;
        while at > REST {
            let Node { ref mut members, parent, client, tie, .. } = self.nodes[at];
            *members += 1;
            if *members == 1 && parent == TOP {
                self.enter(TOP, client, self.weight_of_group(at), tie);
            }
            at = parent;
        }
        self.enter(node, client, self.counted(node, weight), tie);
    }

    /// Removes an idle activity.
    pub(super) fn leave(&mut self, node: usize, client: u32, weight: u32) {
        self.exit(node, client, self.counted(node, weight));
        let mut at = node;
        while at > REST {
            let Node { ref mut members, parent, client, .. } = self.nodes[at];
            *members -= 1;
            if *members == 0 && parent == TOP {
                self.exit(TOP, client, self.weight_of_group(at));
            }
            at = parent;
        }
    }

    /// Changes the weight of an activity in its account.
    pub(super) fn reweigh(&mut self, node: usize, client: u32, before: u32, weight: u32) {
        self.weigh(node, client, self.counted(node, before), self.counted(node, weight));
    }

    /// Changes the part of a group that this tree has. The lags of the group and of its members
    /// stay.
    pub(super) fn set_part(&mut self, group: usize, part: Share) {
        let at = Self::of_group(group);
        let Some(&Node { parent, client, members, .. }) = self.nodes.get(at) else { return };
        let before = self.weight_of_group(at);
        self.nodes[at].part = part;
        // A group with a share is a client while it has members.
        if parent != TOP || members > 0 {
            self.weigh(parent, client, before, self.weight_of_group(at));
        }
    }

    /// A weight as the account `node` counts it. In the top it is a share, in millionths.
    fn counted(&self, node: usize, weight: u32) -> u64 {
        u64::from(weight) * if node == TOP { 1 } else { self.weight_unit }
    }

    /// The weight of a group in the account above, as that account counts it.
    fn weight_of_group(&self, node: usize) -> u64 {
        let Node { parent, weight, part, .. } = self.nodes[node];
        let whole = u128::from(Share::WHOLE.ppm());
        let weight = u128::from(self.counted(parent, weight)) * u128::from(part.ppm());
        u64::try_from((weight + whole / 2) / whole).unwrap_or(u64::MAX).max(1)
    }

    /// Adds an idle client to an account.
    fn enter(&mut self, node: usize, client: u32, weight: u64, tie: u32) {
        if node == TOP {
            self.weigh_rest(self.shares_ppm.saturating_add(in_ppm(weight)));
        }
        self.nodes[node].account.join_weighing(client, weight, tie);
    }

    /// Removes an idle client from an account. If it was a client of the top, the rest gets its
    /// share, and its debt for service that it used in advance.
    fn exit(&mut self, node: usize, client: u32, weight: u64) {
        let account = &mut self.nodes[node].account;
        let lag_ns = account.lag_ns(client, None, Span::ZERO).unwrap_or(0);
        account.leave(client);
        if node == TOP {
            self.weigh_rest(self.shares_ppm.saturating_sub(in_ppm(weight)));
            let debt = Span::from_nanos(lag_ns.min(0).unsigned_abs());
            self.nodes[TOP].account.inherit(self.capacity, debt);
        }
    }

    fn weigh(&mut self, node: usize, client: u32, before: u64, weight: u64) {
        self.nodes[node].account.weigh(client, weight);
        if node == TOP {
            let others_ppm = self.shares_ppm.saturating_sub(in_ppm(before));
            self.weigh_rest(others_ppm.saturating_add(in_ppm(weight)));
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

/// The weight of a client of the top.
fn in_ppm(weight: u64) -> u32 {
    u32::try_from(weight).unwrap_or(u32::MAX)
}
