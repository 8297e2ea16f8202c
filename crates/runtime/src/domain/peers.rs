//! The peer domains of a CPU, as one domain sees them.
//!
//! The shm crate copies and checks what peers wrote. A peer with invalid memory counts as having
//! nothing to run. So only the promises to that peer may break.

use upcall_core::time::Instant;
use upcall_shm::DomainId;
use upcall_shm::kernel_area::{Reader, State};
use upcall_shm::turn_page::TurnPage;
use upcall_shm::user_area::order::better;
use upcall_shm::user_area::{NEVER, Peer, Rank};
use upcall_sys::memfd::{ReadOnlyMapping, SharedMapping};

use super::woken_peers::Woken;

/// Another domain of the CPU.
#[derive(Debug)]
pub(crate) struct PeerDomain {
    pub(crate) domain: DomainId,
    pub(crate) generation: u64,
    pub(crate) area: Peer<ReadOnlyMapping>,
    /// Whether the kernel area names the domain, as of its last change.
    pub(crate) is_present: bool,
}

/// See the module's head.
#[derive(Debug)]
pub(super) struct Peers {
    /// Each hand-off reads the user areas of all peers.
    all: Vec<PeerDomain>,
    /// The epoch of the kernel area when the peers were last compared with it. `None`: they must be
    /// compared.
    epoch: Option<u64>,
}

impl Peers {
    /// Takes all memory it needs.
    pub(super) fn new() -> Self {
        Peers { all: Vec::with_capacity(upcall_shm::DOMAINS_MAX as usize + 1), epoch: None }
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The number of domains of the user on the CPU, this one included.
    pub(super) fn domains(&self) -> u64 {
        let is_peer = |peer: &&PeerDomain| peer.is_present && peer.domain != DomainId::DAEMON;
        1 + self.all.iter().filter(is_peer).count() as u64
    }

    /// The peers that the kernel area names, with their generations.
    pub(super) fn present(&self) -> impl Iterator<Item = (DomainId, u64)> + '_ {
        let present = self.all.iter().filter(|peer| peer.is_present);
        present.map(|peer| (peer.domain, peer.generation))
    }

    /// When a ready peer shows work next after `now`; `Instant::FAR`: never. O(slots in use).
    pub(super) fn next_shown(
        &self,
        kernel: &Reader<ReadOnlyMapping>,
        page: &TurnPage<SharedMapping>,
        now: Instant,
    ) -> Instant {
        let ready = self.ready(kernel, page);
        let next = ready.filter_map(|(_, area)| area.next_release_after(now.as_nanos()).ok());
        Instant::from_nanos(next.min().unwrap_or(NEVER))
    }

    /// Adds a peer in place of an earlier one with the same number.
    pub(super) fn add(&mut self, new: PeerDomain) {
        self.all.retain(|peer| peer.domain != new.domain);
        // There is room: at most one of each number.
        self.all.push(new);
        // Its presence is looked up again.
        self.epoch = None;
    }

    /// Notes which peers came and went. A load if none did.
    #[inline]
    pub(super) fn update(&mut self, kernel: &Reader<ReadOnlyMapping>) {
        let epoch = kernel.epoch();
        if self.epoch != Some(epoch) {
            self.epoch = Some(epoch);
            for peer in &mut self.all {
                let entry = kernel.entry(peer.domain).ok().flatten();
                peer.is_present = entry.is_some_and(|of| of.generation.get() == peer.generation);
            }
        }
    }

    /// Which domains were woken and have not looked yet, or may be woken without a sign in their
    /// wake word. `None`: no domain. Two loads for each peer.
    #[inline]
    pub(super) fn may_be_woken(
        &self,
        kernel: &Reader<ReadOnlyMapping>,
        page: &TurnPage<SharedMapping>,
    ) -> Option<Woken> {
        let mut any = None;
        for peer in self.all.iter().filter(|peer| peer.is_present) {
            // A notification of the daemon stays pending while a domain has the turn.
            let is_daemon = peer.domain == DomainId::DAEMON;
            let is_pending = !is_daemon && page.wake_word(peer.domain).is_pending();
            let may_be_woken = is_pending || peer.area.has_outside_wakes();
            if may_be_woken && kernel.state(peer.domain) == Ok(Some(State::Attached)) {
                if is_daemon {
                    return Some(Woken::OfOthers);
                }
                any = Some(Woken::Peers);
            }
        }
        any
    }

    /// The peers that would run if they had the turn.
    #[inline]
    pub(super) fn ready<'a>(
        &'a self,
        kernel: &'a Reader<ReadOnlyMapping>,
        page: &'a TurnPage<SharedMapping>,
    ) -> impl Iterator<Item = (DomainId, &'a Peer<ReadOnlyMapping>)> {
        let present = self.all.iter().filter(|peer| peer.is_present);
        present
            .filter(move |peer| would_run(kernel, page, peer.domain))
            .map(|peer| (peer.domain, &peer.area))
    }
}

#[inline]
fn would_run(
    kernel: &Reader<ReadOnlyMapping>,
    page: &TurnPage<SharedMapping>,
    domain: DomainId,
) -> bool {
    match kernel.state(domain) {
        Ok(Some(State::Attached)) => true,
        state => is_back(page, domain, state.ok().flatten()),
    }
}

/// Whether a domain that was blocked or stopped is back. It is once it sleeps on its wake word.
#[cold]
fn is_back(page: &TurnPage<SharedMapping>, domain: DomainId, state: Option<State>) -> bool {
    matches!(state, Some(State::Blocked | State::Stopped)) && page.wake_word(domain).is_asleep()
}

/// The best ready peer and its rank. Counts only activities that were released by `by`.
pub(super) fn best_of<'a>(
    ready: impl Iterator<Item = (DomainId, &'a Peer<ReadOnlyMapping>)>,
    by: Instant,
) -> Option<(Rank, DomainId)> {
    ready.fold(None, |best, (domain, peer)| {
        better(best, peer.best(by.as_nanos()).ok().flatten(), domain)
    })
}

/// The earliest moment at which a ready peer preempts `own`, which may be in the past. Also the
/// best ready peer, as [`best_of`] finds it.
pub(super) fn rivals_of<'a>(
    ready: impl Iterator<Item = (DomainId, &'a Peer<ReadOnlyMapping>)>,
    own: Rank,
    by: Instant,
) -> (Instant, Option<(Rank, DomainId)>) {
    let mut preempted_at_ns = NEVER;
    let mut best = None;
    for (domain, peer) in ready {
        if let Ok(rival) = peer.rival(own, by.as_nanos()) {
            preempted_at_ns = preempted_at_ns.min(rival.preempts_at_ns);
            best = better(best, rival.best, domain);
        }
    }
    (Instant::from_nanos(preempted_at_ns), best)
}
