//! A holder that keeps its turn while another domain shows a rank, in virtual time. Its thread is
//! that of the test, which is ready all the time and uses little CPU time.

use upcall_shm::user_area::{Slot, SlotState};

use super::*;

/// Far longer than a test runs.
const LONG: Span = Span::from_secs(5);
/// The limit of the holder.
const LIMIT: Span = Span::from_millis(5_001);

struct Holder {
    watch: CpuWatch,
    group: Arc<DomainGroup>,
    member: Arc<Member>,
    owner: Owner<SharedMapping>,
    _other: (Arc<DomainGroup>, Arc<Member>, Owner<SharedMapping>),
    now: Instant,
}

impl Holder {
    /// The holder shows key 8 and place 3. The other domain is of that user, and shows what `show`
    /// publishes.
    fn beside(other_uid: u32, show: impl FnOnce(&mut Owner<SharedMapping>)) -> Self {
        let group = Arc::new(DomainGroup::new(0, 1).unwrap());
        let (member, mut owner) = member(&group, 1, (std::process::id(), thread_id()));
        admit(&group, &member, 3);
        group.turn.wake_word(member.domain).finish_wait();
        owner.publish(Some(Rank::new(8, 3).into()));
        member.limits.quantum_ns_max.store(LONG.as_nanos(), Relaxed);
        member.limits.compute_ns.store(LONG.as_nanos(), Relaxed);
        let others = match other_uid {
            1 => group.clone(),
            uid => Arc::new(DomainGroup::new(0, uid).unwrap()),
        };
        let (other, mut shows) = super::member(&others, 2, sleeping_thread());
        admit(&others, &other, 4);
        show(&mut shows);
        let watch = watch_of(&group, &member);
        if other_uid != 1 {
            watch.cpu_state.set_groups(|list| list.push(others.clone()));
        }
        let _other = (others, other, shows);
        let mut holder = Holder { watch, group, member, owner, _other, now: THEN };
        assert_eq!(step(&mut holder.watch, THEN, true), []);
        holder
    }

    /// A look so much later. The holder claims to respond. Returns whether it still has the turn.
    fn look_after(&mut self, span: Span, stalled: Span) -> bool {
        self.now += span;
        self.owner.set_asked(self.now.as_nanos());
        assert_eq!(step_after(&mut self.watch, (self.now, stalled), false), []);
        self.group.turn.holder() == Ok(self.member.domain)
    }
}

/// Says that a test is skipped. Without the right the watchdog cannot bring the kernel's count of
/// the CPU time up to date, and lets the holder go on.
pub(super) fn lacks_right(test: &str) -> bool {
    let lacks = schedule::RealTime::granted().is_err();
    if lacks {
        // `eprintln` would be captured.
        let _ = writeln!(std::io::stderr(), "skipped: {test}: no right to SCHED_FIFO");
    }
    lacks
}

fn better(owner: &mut Owner<SharedMapping>) {
    owner.publish(Some(Rank::new(7, 4).into()));
}

/// The host or another thread had the CPU: the time has passed, and no CPU time.
#[test]
fn a_holder_that_could_not_run_until_its_limit_finishes_its_quantum_without_an_offence() {
    if lacks_right(
        "a_holder_that_could_not_run_until_its_limit_finishes_its_quantum_without_an_offence",
    ) {
        return;
    }
    let mut holder = Holder::beside(2, better);
    for _ in 0..5 {
        assert!(holder.look_after(LONG, Span::ZERO));
        assert!(!holder.look_after(Span::from_millis(1), Span::ZERO));
        assert!(holder.member.is(State::Blocked), "it runs at once");
        assert_eq!(holder.member.offences(), 0);
        // It gets the turn again, and a look finds the better rank.
        holder.group.set_state(&holder.member, State::Attached);
        holder.group.turn.reset(holder.member.domain);
        assert!(holder.look_after(Span::from_millis(1), Span::ZERO));
    }
}

#[test]
fn a_stall_of_the_machine_begins_the_time_of_a_holder_anew() {
    if lacks_right("a_stall_of_the_machine_begins_the_time_of_a_holder_anew") {
        return;
    }
    let mut holder = Holder::beside(2, better);
    for _ in 0..5 {
        assert!(holder.look_after(LIMIT, Span::from_millis(2)));
    }
    // The first look without a stall is the first that counts.
    assert!(holder.look_after(LIMIT, Span::ZERO));
    assert!(!holder.look_after(LIMIT, Span::ZERO));
}

#[test]
fn a_late_look_after_another_choice_begins_the_time_of_a_holder_anew() {
    let mut holder = Holder::beside(2, better);
    for _ in 0..5 {
        // It passed the turn at a boundary, and has it again.
        holder.watch.cpu_state.grant(&holder.group);
        holder.group.turn.reset(holder.member.domain);
        assert!(holder.look_after(LIMIT * 3, Span::ZERO));
    }
    assert!(holder.member.is(State::Attached));
}

/// A handler of a domain that defers preemption goes on beside better ranks of its own user.
#[test]
fn a_holder_may_defer_preemption_by_domains_of_its_own_user() {
    let mut holder = Holder::beside(1, better);
    for _ in 0..5 {
        assert!(holder.look_after(LIMIT, Span::ZERO));
    }
    assert!(holder.member.is(State::Attached));
}

/// Found by reading: an event puts the other domain first in a choice, and preempts no equal. An
/// honest holder goes on with its job.
#[test]
fn a_holder_goes_on_beside_an_event_of_equal_rank() {
    let mut holder = Holder::beside(2, |owner| {
        owner.publish(Some(Rank::of(8, Some(1), 4).into()));
    });
    for _ in 0..5 {
        assert!(holder.look_after(LIMIT, Span::ZERO));
    }
    assert!(holder.member.is(State::Attached));
}

#[test]
fn a_holder_goes_on_beside_a_worse_rank() {
    let mut holder = Holder::beside(2, |owner| {
        owner.publish(Some(Rank::new(9, 4).into()));
    });
    for _ in 0..5 {
        assert!(holder.look_after(LIMIT, Span::ZERO));
    }
    // Its own better work comes, and another rank is between the two.
    let mut holder = Holder::beside(2, better);
    holder.owner.publish(Some(Rank::new(6, 3).into()));
    for _ in 0..5 {
        assert!(holder.look_after(LIMIT, Span::ZERO));
    }
}

#[test]
fn the_time_of_a_holder_begins_with_the_release_of_better_work() {
    if lacks_right("the_time_of_a_holder_begins_with_the_release_of_better_work") {
        return;
    }
    let release = THEN + Span::from_millis(700);
    let mut holder = Holder::beside(2, |owner| {
        let rank = Rank::new(7, 4);
        let state = SlotState::Waiting;
        owner.set(0, Slot { next_release_ns: release.as_nanos(), rank, state }).unwrap();
        owner.publish(None);
    });
    assert_eq!(holder.watch.next_look(), Some(release));
    assert!(holder.look_after(release.since(THEN), Span::ZERO));
    assert!(holder.watch.next_look().is_some_and(|at| at <= release + LIMIT));
    assert!(!holder.look_after(LIMIT, Span::ZERO));
}

/// A domain may not stop the watch by a rank that it was not granted, or that changes all the time.
#[test]
fn a_false_rank_does_not_begin_the_time_of_a_holder_anew() {
    if lacks_right("a_false_rank_does_not_begin_the_time_of_a_holder_anew") {
        return;
    }
    let mut holder = Holder::beside(2, better);
    assert!(holder.look_after(LIMIT / 2, Span::ZERO));
    holder.owner.publish(Some(Rank::new(6, 99).into()));
    assert!(holder.look_after(LIMIT / 4, Span::ZERO));
    holder.owner.publish(Some(Rank::new(8, 3).into()));
    assert!(!holder.look_after(LIMIT / 4 + Span::from_millis(1), Span::ZERO));
}

/// Found by reading: a domain renews its turn, which all domains of its user may write.
#[test]
fn a_domain_that_renews_its_own_turn_does_not_begin_its_time_anew() {
    if lacks_right("a_domain_that_renews_its_own_turn_does_not_begin_its_time_anew") {
        return;
    }
    let mut holder = Holder::beside(2, better);
    assert!(holder.look_after(LIMIT / 2, Span::ZERO));
    holder.group.turn.reset(holder.member.domain);
    assert!(!holder.look_after(LIMIT / 2 + Span::from_millis(1), Span::ZERO));
}
