//! Whose message the server handles next.
//!
//! The server's thread uses it, and it makes no system call. Sessions that are ready wait in a
//! queue per user. The next message is of the user whose messages took the least CPU time so far.
//! So many connections or expensive requests of one user delay another user's message by one
//! message.

use std::collections::{BTreeMap, VecDeque};

use upcall_core::time::Span;

/// See the module's head. The rule is start-time fair queueing (Goyal, Vin and Cheng 1996) with a
/// queue per user.
#[derive(Debug, Default)]
pub(super) struct Turns {
    users: BTreeMap<u32, Turn>,
    /// The time used by the user of the message that was handled last, before that message.
    clock: Span,
}

/// The turn of a user.
#[derive(Debug)]
struct Turn {
    /// CPU time of the user's messages. A user who comes begins at the clock at least, so nobody
    /// collects credit.
    used: Span,
    ready: VecDeque<u64>,
}

impl Turns {
    /// Adds a ready session of a user, unless it waits already. O(sessions of the user).
    pub(super) fn push(&mut self, uid: u32, session: u64) {
        let new = || Turn { used: self.clock, ready: VecDeque::new() };
        let turn = self.users.entry(uid).or_insert_with(new);
        if turn.ready.is_empty() {
            turn.used = turn.used.max(self.clock);
        }
        if !turn.ready.contains(&session) {
            turn.ready.push_back(session);
        }
    }

    /// Takes the session whose turn it is, with its user. O(users).
    pub(super) fn next(&mut self) -> Option<(u32, u64)> {
        let waiting = self.users.iter_mut().filter(|(_, turn)| !turn.ready.is_empty());
        let (&uid, turn) = waiting.min_by_key(|(_, turn)| turn.used)?;
        self.clock = turn.used;
        turn.ready.pop_front().map(|session| (uid, session))
    }

    /// Charges a user for a message. Every message costs something.
    pub(super) fn charge(&mut self, uid: u32, used: Span) {
        if let Some(turn) = self.users.get_mut(&uid) {
            turn.used += used.max(Span::from_nanos(1));
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.users.values().all(|turn| turn.ready.is_empty())
    }

    /// Forgets users for whom `is_gone`, unless that would let them gain by coming again.
    pub(super) fn forget(&mut self, is_gone: impl Fn(u32) -> bool) {
        let clock = self.clock;
        self.users
            .retain(|&uid, turn| !turn.ready.is_empty() || turn.used > clock || !is_gone(uid));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The users served, if each message costs its user so much.
    fn served(turns: &mut Turns, count: usize, cost: impl Fn(u32) -> u64) -> Vec<u32> {
        let mut users = Vec::new();
        for _ in 0..count {
            let Some((uid, session)) = turns.next() else { break };
            turns.charge(uid, Span::from_nanos(cost(uid)));
            turns.push(uid, session);
            users.push(uid);
        }
        users
    }

    #[test]
    fn a_user_with_many_sessions_has_the_part_of_one() {
        let mut turns = Turns::default();
        (0..100).for_each(|session| turns.push(7, session));
        turns.push(8, 100);
        let users = served(&mut turns, 20, |_| 5);
        assert_eq!(users.iter().filter(|&&uid| uid == 8).count(), 10, "{users:?}");
    }

    #[test]
    fn the_sessions_of_a_user_take_turns() {
        let mut turns = Turns::default();
        (0..3).for_each(|session| turns.push(7, session));
        turns.push(7, 0);
        let mut order = Vec::new();
        for _ in 0..6 {
            let (uid, session) = turns.next().unwrap();
            turns.charge(uid, Span::from_nanos(5));
            turns.push(uid, session);
            order.push(session);
        }
        assert_eq!(order, [0, 1, 2, 0, 1, 2]);
    }

    #[test]
    fn expensive_messages_wait_for_cheap_ones_of_others() {
        let mut turns = Turns::default();
        turns.push(7, 0);
        turns.push(8, 1);
        let users = served(&mut turns, 101, |uid| if uid == 7 { 1_000 } else { 10 });
        assert!(users.iter().filter(|&&uid| uid == 7).count() <= 2, "{users:?}");
    }

    #[test]
    fn neither_idleness_nor_a_new_connection_gains_a_lead() {
        let mut turns = Turns::default();
        turns.push(7, 0);
        served(&mut turns, 50, |_| 100);
        // User 8 was away all the time, and user 7 leaves and comes again.
        turns.push(8, 1);
        let users = served(&mut turns, 10, |_| 100);
        assert!((4..=6).contains(&users.iter().filter(|&&uid| uid == 7).count()), "{users:?}");
        while turns.next().is_some() {}
        assert!(turns.is_empty());
        turns.forget(|_| true);
        turns.push(8, 1);
        turns.push(7, 2);
        let users = served(&mut turns, 10, |_| 100);
        assert!((4..=6).contains(&users.iter().filter(|&&uid| uid == 7).count()), "{users:?}");
    }
}
