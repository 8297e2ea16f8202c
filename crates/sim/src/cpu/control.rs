//! The inputs of a CPU from outside: messages, events and faults.

use crate::actor::Actor;
use crate::fault::Fault;
use crate::posting::Posts;
use crate::spec::SimSpec;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use upcall_core::activity::Claim;
use upcall_core::time::Instant;

/// One input from outside.
#[derive(Clone, Copy, Debug)]
pub(super) enum Control {
    /// The clock is set. The CPU reads the clock once more just before.
    ClockSteps,
    Message(Message),
    Fault {
        index: u32,
        begins: bool,
    },
}

/// A message about one activity.
#[derive(Clone, Copy, Debug)]
pub(super) struct Message {
    pub(super) actor: u32,
    pub(super) request: Request,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Request {
    Join,
    Leave,
    Reweigh(Claim),
    Event(u64),
    /// A PDU came for which the activity waited.
    Arrival,
}

/// The first event of each activity that gets events.
pub(super) fn first_posts(actors: &[Actor]) -> BinaryHeap<Reverse<(Instant, u32)>> {
    let next = |actor: &Actor| actor.posts.as_ref().map(Posts::next_at);
    let all = (0u32..).zip(actors).filter_map(|(number, actor)| Some((next(actor)?, number)));
    all.filter(|(at, _)| *at < Instant::FAR).map(Reverse).collect()
}

/// All inputs for the CPU of these actors, in the order of time. At one instant faults come before
/// messages.
pub(super) fn controls_of(spec: &SimSpec, actors: &[Actor]) -> VecDeque<(Instant, Control)> {
    let mut controls = Vec::new();
    for (index, fault) in (0u32..).zip(&spec.faults) {
        let concerns = |actor: &Actor| match *fault {
            Fault::NeverYields { activity, .. } | Fault::HandlerBlocks { activity, .. } => {
                actor.activity == activity
            }
            Fault::DomainDies { domain, .. } | Fault::DomainStops { domain, .. } => {
                actor.domain == domain
            }
            _ => true,
        };
        if actors.iter().any(concerns) {
            let window = fault.window();
            if let Fault::ClockForward { window, .. } | Fault::ClockBack { window, .. } = *fault {
                controls.push((window.from, Control::ClockSteps));
                controls.push((window.until, Control::ClockSteps));
            }
            controls.push((window.from, Control::Fault { index, begins: true }));
            controls.push((window.until, Control::Fault { index, begins: false }));
        }
    }
    for (number, actor) in (0u32..).zip(actors) {
        let own = &spec.activities[actor.activity as usize];
        let message = |request| Control::Message(Message { actor: number, request });
        for window in &own.present {
            if window.from > Instant::ZERO {
                controls.push((window.from, message(Request::Join)));
            }
            controls.push((window.until, message(Request::Leave)));
        }
        controls
            .extend(own.reweighs.iter().map(|&(at, claim)| (at, message(Request::Reweigh(claim)))));
    }
    controls.retain(|(at, _)| *at < Instant::FAR);
    controls.sort_by_key(|(at, control)| (*at, !matches!(control, Control::ClockSteps)));
    controls.into()
}
