//! How a desk takes events out of segments, has handlers invoked with them, and lets peers go.

use upcall_core::events::{
    Ancestry, Counts, Event as CoreEvent, HandlerId, Next, SourceId, Verdict, When,
};
use upcall_core::time::Instant;
use upcall_shm::PeerFault;

use super::state::{Code, Desk, Events, IDLE_MAX, Installed, Moment, ROUNDS, Retired};
use crate::channel::link::Place;
use crate::channel::peer::Gone;
use crate::channel::pending_events::Note;
use crate::channel::raise::Label;
use crate::channel::thread_context as here;

impl Desk {
    pub(super) fn act(&mut self, now: Instant, moment: Moment) {
        for _ in 0..ROUNDS {
            for at in 0..self.links.len() {
                if self.links[at].at.rung || self.links[at].at.unfinished {
                    self.drain(now, at);
                }
            }
            self.delivery.crossing();
            if moment == Moment::Scheduling {
                self.deferred = false;
                self.delivery.before_scheduling();
            }
            while let Some(next) = self.delivery.next(now) {
                match next {
                    Next::Invoke(id) => self.invoke(now, id),
                    Next::RunAway { handler, .. } => self.touch(handler),
                }
            }
            self.bury();
            if !self.is_unfinished() {
                break;
            }
        }
        self.tell_counts();
    }

    /// Takes what finds room.
    fn drain(&mut self, now: Instant, at: usize) {
        let party = self.links[at].at.party;
        let mut found = false;
        loop {
            if matches!(self.links[at].at.gone, Some(Gone::Fault(_))) {
                break;
            }
            if !self.has_room(party) {
                self.links[at].at.unfinished = true;
                break;
            }
            let link = &mut self.links[at];
            match link.takes.take() {
                Ok(Some(event)) => {
                    found = true;
                    self.raise(now, at, event);
                }
                Ok(None) => {
                    link.at.unfinished = false;
                    link.at.idle = if found { 0 } else { link.at.idle + 1 };
                    break;
                }
                Err(PeerFault::Torn { .. }) if link.at.idle < IDLE_MAX => {
                    link.at.unfinished = true;
                    link.at.idle = if found { 1 } else { link.at.idle + 1 };
                    break;
                }
                Err(fault) => {
                    link.out.fate.set(Gone::Fault(fault));
                    link.at.gone = Some(Gone::Fault(fault));
                }
            }
        }
        let link = &mut self.links[at];
        link.at.rung = false;
        if link.at.idle >= IDLE_MAX && link.at.gone.is_none() {
            let (found, max) = (u64::from(link.at.idle), u64::from(IDLE_MAX));
            let fault = PeerFault::Value { page: "channel", name: "rings for nothing", found, max };
            link.out.fate.set(Gone::Fault(fault));
            link.at.gone = Some(Gone::Fault(fault));
        }
        if matches!(link.at.gone, Some(Gone::Fault(_))) {
            self.withdraw(at);
        }
    }

    fn raise(&mut self, now: Instant, at: usize, event: upcall_shm::channel::Event) {
        let link = &mut self.links[at];
        let Some(source) = link.at.source else { return };
        let party = &self.parties[link.at.party];
        let (Some(&first), Some(present)) = (party.stages.first(), &party.present) else { return };
        let label = Label::of(&event.payload);
        let when = label.when.unwrap_or(present.when);
        let [a, b, c, d, e, ..] = event.payload;
        let note =
            Note { peer: link.peer, row: event.row, merged: event.merged, words: [a, b, c, d, e] };
        let Some(token) = self.notes.put(note) else { return };
        link.at.notes += 1;
        let ancestry = if link.is_local && label.desk == self.number && self.number != 0 {
            self.ancestry(source, label.led_by)
        } else {
            Ancestry::NONE
        };
        let raised = CoreEvent::new(source, label.rank, token).because(ancestry);
        match self.delivery.raise(now, raised, when) {
            Ok(()) => {
                self.links[at].at.newest[0] = Some(token);
                self.deferred |= when == When::BeforeScheduling;
            }
            Err(_) => {
                // Recursion: it is counted, and told.
                self.handlers[first].touched = true;
                self.free(at, token);
            }
        }
    }

    /// The handlers of this desk that a raiser named, one bit each.
    fn ancestry(&self, source: SourceId, led_by: u64) -> Ancestry {
        let any = CoreEvent::new(source, 0, 0);
        let named = self.handlers.iter().enumerate().filter(|(at, _)| led_by >> at & 1 != 0);
        named.fold(Ancestry::NONE, |all, (_, handler)| all.and(any.led_by(handler.id)))
    }

    /// The other way round.
    pub(super) fn bits(&self, ancestry: Ancestry) -> u64 {
        let those = self.handlers.iter().enumerate();
        those
            .filter(|(_, handler)| ancestry.contains(handler.id))
            .fold(0, |bits, (at, _)| bits | 1 << at)
    }

    fn invoke(&mut self, now: Instant, id: HandlerId) {
        let Some(at) = self.handlers.iter().position(|handler| handler.id == id) else { return };
        self.handlers[at].touched = true;
        let Some(mut code) = self.handlers[at].code.take() else {
            // Nobody is there any more.
            while let Some(event) = self.delivery.take(id) {
                self.conclude(now, at, event, Verdict::Drop);
            }
            return;
        };
        let mut events = Events { desk: self, at, now, current: None };
        let panicked = here::in_handler(|| code(&mut events));
        events.conclude(Verdict::Pass);
        match panicked {
            false => self.handlers[at].code = Some(code),
            true => self.fail(at, code),
        }
    }

    /// Ends a party whose handler panicked: its peers find that it died.
    fn fail(&mut self, at: usize, code: Code) {
        let place = self.handlers[at].party;
        if let Some(present) = &mut self.parties[place].present {
            let _ = present.end.retired.push(Retired { _code: Some(code), ..Retired::default() });
            present.end.state.over();
        }
    }

    /// What a handler made of an event.
    pub(super) fn conclude(&mut self, now: Instant, at: usize, event: CoreEvent, verdict: Verdict) {
        let Installed { party, stage, .. } = self.handlers[at];
        let next = self.parties[party].stages.get(stage + 1).copied();
        let link = self.links.iter().position(|link| link.at.source == Some(event.source));
        let next = next.map(|next| (next, self.merged(next)));
        let concluded = self.delivery.conclude(now, event, verdict);
        let Some(link) = link else { return };
        if let Some((next, _)) = next {
            self.handlers[next].touched = true;
        }
        match (concluded, next) {
            (Ok(Some(_)), Some((next, before))) => {
                let newest = self.links[link].at.newest[stage + 1].replace(event.token);
                // The one that it was merged into has its token now.
                if let Some(older) = newest.filter(|_| self.merged(next) != before) {
                    self.free(link, older);
                }
            }
            _ => self.free(link, event.token),
        }
    }

    fn merged(&self, at: usize) -> u64 {
        self.delivery.counts(self.handlers[at].id).map_or(0, |counts| counts.merged)
    }

    fn free(&mut self, link: usize, token: u64) {
        if self.notes.free(token) {
            self.links[link].at.notes -= 1;
        }
    }

    /// Nothing that it raised is handled any more.
    pub(super) fn withdraw(&mut self, at: usize) {
        let link = &mut self.links[at];
        if let Some(source) = link.at.source {
            self.delivery.withdraw(source);
            self.notes.free_all(link.peer);
        }
        link.at.notes = 0;
        link.at.unfinished = false;
    }

    /// Detaches peers that are gone and of whom all is handled, and says so.
    fn bury(&mut self) {
        for at in (0..self.links.len()).rev() {
            let Place { gone: Some(gone), notes: 0, unfinished: false, rung: false, party, .. } =
                self.links[at].at
            else {
                continue;
            };
            let peer = self.links[at].peer;
            if matches!(gone, Gone::Fault(_)) {
                // The peer is told no more than that; who watches the connection finds it closed.
                self.links[at].connection.hang_up();
            }
            if let Some(on_gone) =
                self.parties[party].present.as_mut().and_then(|present| present.on_gone.as_mut())
            {
                // If it panics, it is told of others all the same.
                let _ = here::in_handler(|| on_gone(peer, gone));
            }
            self.remove(at);
        }
    }

    /// Hands a link back.
    pub(super) fn remove(&mut self, at: usize) {
        let mut link = self.links.swap_remove(at);
        let party = &mut self.parties[link.at.party];
        party.free.extend(link.at.source.take());
        link.out.fate.set(Gone::Ended);
        if let Some(present) = &mut party.present {
            // There is room for each.
            let _ = present.end.retired.push(Retired { link: Some(link), ..Retired::default() });
        }
    }

    fn touch(&mut self, id: HandlerId) {
        if let Some(handler) = self.handlers.iter_mut().find(|handler| handler.id == id) {
            handler.touched = true;
        }
    }

    fn tell_counts(&mut self) {
        for handler in &mut self.handlers {
            if !std::mem::take(&mut handler.touched) {
                continue;
            }
            let counts = self.delivery.counts(handler.id);
            if let (Some(now), Some(present)) = (counts, &self.parties[handler.party].present) {
                let before = handler.base;
                let counts = Counts {
                    invocations: now.invocations - before.invocations,
                    lost: now.lost - before.lost,
                    dropped: now.dropped - before.dropped,
                    merged: now.merged - before.merged,
                    recursions: now.recursions - before.recursions,
                    run_aways: now.run_aways - before.run_aways,
                };
                present.end.state.tally.store(handler.stage, &counts);
            }
        }
    }
}
