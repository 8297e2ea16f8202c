//! Groups of a host, and the reports of them: IGMPv2 (RFC 2236) and MLDv2 (RFC 3810).
//!
//! [`super::Host`] alone calls it. Joins are counted. All sources of a group are wanted. If a
//! router of the older version asks, the host speaks that one for a time: IGMPv1 (RFC 2236 §4) and
//! MLDv1 (RFC 3810 §8.2). A router of IGMPv3 understands version 2 (RFC 3376 §7.3.2).
//!
//! ```text
//!            first join (1)            query (2)
//!  (none) ------------------> member <-----------> member, answer drawn
//!    ^                         ^  |
//!    |                join (1) |  | last leave (3)
//!    +----- leaves sent ----- leaving
//! ```
//!
//! 1. A report at once, and another one after a drawn time (the robustness of RFC 2236 §8.1 and
//!    RFC 3810 §9.1 is 2).
//! 2. The answer comes at a drawn time, up to the one in the query. A second query does not make
//!    it later (RFC 2236 §3, RFC 3810 §6.2). Each group gets a report of its own. Under the older
//!    protocols the report of another host takes its place (RFC 2236 §3, RFC 2710 §4).
//! 3. One leave of IGMP, two of MLD. Under IGMPv1 there is none.
//!
//! No report is sent for all hosts (224.0.0.1, ff02::1), nor for groups of IPv6 of the scopes 0 and
//! 1 (RFC 2236 §6, RFC 3810 §6).

use super::chance::Chance;
use super::error::MembershipError;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use upcall_core::time::{Instant, Span};

mod message;
#[cfg(test)]
mod tests;

pub(super) use message::{GroupMessage, IGMP, Kind, Report, read, write};

/// The most groups of a host, with those that it is leaving and its solicited-node groups.
pub const GROUPS_MAX: usize = 64;

/// All hosts of IPv4 and of IPv6 on the link.
const ALL_V4: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 1);
const ALL_V6: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
/// "Robustness Variable": how often a change is reported.
const ROBUSTNESS: u8 = 2;
/// "Unsolicited Report Interval" of RFC 2236 §8.10 and RFC 2710 §7.10.
const REPEAT_MAX: Span = Span::from_secs(10);
/// The same of RFC 3810 §9.11.
const REPEAT_V2_MAX: Span = Span::from_secs(1);
/// "Version 1 Router Present Timeout" of RFC 2236 §8.11.
const IGMP_V1_FOR: Span = Span::from_secs(400);
/// "Older Version Querier Present Timeout" of RFC 3810 §9.12.
const MLD_V1_FOR: Span = Span::from_secs(2 * 125 + 10);

#[derive(Debug)]
struct Membership {
    group: IpAddr,
    /// 0: leaving.
    joins: u32,
    /// Reports or leaves still to send, and when.
    changes: u8,
    change_at: Instant,
    /// When to answer to a query; [`Instant::FAR`]: nobody asked.
    answer_at: Instant,
}

#[derive(Debug)]
pub(super) struct Memberships {
    /// Ordered by group. Never longer than its first capacity.
    groups: Vec<Membership>,
    chance: Chance,
    /// Until when routers are of the older version.
    igmp_v1_until: Instant,
    mld_v1_until: Instant,
    /// Not later than the first timer.
    wake: Instant,
}

impl Memberships {
    pub(super) fn new(seed: u64) -> Memberships {
        Memberships {
            groups: Vec::with_capacity(GROUPS_MAX),
            chance: Chance(seed),
            igmp_v1_until: Instant::ZERO,
            mld_v1_until: Instant::ZERO,
            wake: Instant::FAR,
        }
    }

    /// O(log groups).
    pub(super) fn is_member(&self, group: IpAddr) -> bool {
        group == ALL_V4
            || group == ALL_V6
            || self.place(group).is_ok_and(|place| self.groups[place].joins > 0)
    }

    /// Joins `group` once more. O(groups).
    pub(super) fn join(&mut self, group: IpAddr, now: Instant) -> Result<(), MembershipError> {
        if !group.is_multicast() {
            return Err(MembershipError::NotAGroup);
        }
        if let Ok(place) = self.place(group) {
            let joins = &mut self.groups[place].joins;
            *joins = joins.saturating_add(1);
            if *joins == 1 {
                self.change(place, now);
            }
            return Ok(());
        }
        if self.groups.len() >= GROUPS_MAX {
            let leaving = self.groups.iter().position(|it| it.joins == 0);
            self.groups.remove(leaving.ok_or(MembershipError::TooManyGroups)?);
        }
        let place = self.place(group).unwrap_or_else(|place| place);
        let (change_at, answer_at) = (Instant::FAR, Instant::FAR);
        self.groups.insert(place, Membership { group, joins: 1, changes: 0, change_at, answer_at });
        self.change(place, now);
        Ok(())
    }

    /// Leaves `group` once. O(groups).
    pub(super) fn leave(&mut self, group: IpAddr, now: Instant) -> Result<(), MembershipError> {
        let place = self.place(group).map_err(|_| MembershipError::NotJoined)?;
        let joins = &mut self.groups[place].joins;
        *joins = joins.checked_sub(1).ok_or(MembershipError::NotJoined)?;
        if *joins == 0 {
            self.change(place, now);
        }
        Ok(())
    }

    /// The first join or the last leave of the group at `place`.
    fn change(&mut self, place: usize, now: Instant) {
        let it = &mut self.groups[place];
        if !is_reported(it.group) {
            if it.joins == 0 {
                self.groups.remove(place);
            }
            return;
        }
        it.changes = if it.joins == 0 && it.group.is_ipv4() { 1 } else { ROBUSTNESS };
        (it.change_at, it.answer_at) = (now, Instant::FAR);
        self.wake = self.wake.min(now);
    }

    /// A router or another host said something. O(groups).
    pub(super) fn learn(&mut self, message: GroupMessage, now: Instant) {
        match message {
            GroupMessage::Query { family_of, group, answer_max, is_v1 } => {
                match family_of {
                    IpAddr::V4(_) if is_v1 => self.igmp_v1_until = now + IGMP_V1_FOR,
                    IpAddr::V6(_) if is_v1 => self.mld_v1_until = now + MLD_V1_FOR,
                    _ => {}
                }
                for it in &mut self.groups {
                    let is_asked = it.group.is_ipv4() == family_of.is_ipv4()
                        && group.is_none_or(|group| group == it.group);
                    if is_asked && it.joins > 0 && is_reported(it.group) {
                        let drawn = now + self.chance.up_to(answer_max);
                        it.answer_at = it.answer_at.min(drawn);
                        self.wake = self.wake.min(it.answer_at);
                    }
                }
            }
            GroupMessage::Report { group } => {
                let is_older = group.is_ipv4() || now < self.mld_v1_until;
                if let (true, Ok(place)) = (is_older, self.place(group)) {
                    self.groups[place].answer_at = Instant::FAR;
                }
            }
        }
    }

    /// The next report that is due. O(1) if no timer has ended, else O(groups).
    pub(super) fn next_report(&mut self, now: Instant) -> Option<Report> {
        if now < self.wake {
            return None;
        }
        let (mut place, mut wake) = (0, Instant::FAR);
        while let Some(it) = self.groups.get_mut(place) {
            let group = it.group;
            let until = if group.is_ipv4() { self.igmp_v1_until } else { self.mld_v1_until };
            let is_v1 = now < until;
            let mut kind = None;
            if it.changes > 0 && it.change_at <= now {
                kind = Some(if it.joins > 0 { Kind::Joined } else { Kind::Left });
                it.changes -= 1;
                let most = if is_v1 || group.is_ipv4() { REPEAT_MAX } else { REPEAT_V2_MAX };
                it.change_at = now + self.chance.up_to(most);
            } else if it.answer_at <= now {
                kind = Some(Kind::Present);
                it.answer_at = Instant::FAR;
            }
            let next = if it.changes > 0 { it.change_at } else { Instant::FAR };
            wake = wake.min(next).min(it.answer_at);
            if it.joins == 0 && it.changes == 0 {
                self.groups.remove(place);
            } else if kind.is_none() {
                place += 1;
            }
            let is_said = !(is_v1 && group.is_ipv4() && kind == Some(Kind::Left));
            if let Some(kind) = kind.filter(|_| is_said) {
                return Some(Report { group, kind, is_v1 });
            }
        }
        self.wake = wake;
        None
    }

    /// Not later than the next report; [`Instant::FAR`]: there is no timer. O(1).
    pub(super) fn wake(&self) -> Instant {
        self.wake
    }

    fn place(&self, group: IpAddr) -> Result<usize, usize> {
        self.groups.binary_search_by_key(&group, |it| it.group)
    }
}

fn is_reported(group: IpAddr) -> bool {
    match group {
        IpAddr::V4(group) => group != ALL_V4,
        IpAddr::V6(group) => group != ALL_V6 && group.octets()[1] & 0x0f > 1,
    }
}
