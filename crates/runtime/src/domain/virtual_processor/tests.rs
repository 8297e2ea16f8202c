//! Tests of virtual processors on real pages: masks, going over to another daemon, and the choice
//! among domains.

use std::num::NonZeroU64;
use std::sync::Mutex;

use upcall_shm::kernel_area::{self, Reader, Writer};
use upcall_shm::turn_page::{self, TurnPage};
use upcall_shm::user_area::{self, Owner};

use super::*;
use crate::domain::control::VirtualProcessorControl;
use crate::domain::woken_peers::Woken;
use crate::mailbox::Shared;
use crate::notify::Notifier;
use crate::preemption::PreemptionPoint;
use crate::preemption::interrupts::{Interrupt, Interrupts};
use crate::trace::Ring;
use crate::work::batch::{Authority, Batch, Grant};
use crate::work::task::{Address, Task, TaskCell, TaskWork};
use upcall_core::activity::{ActivityParams, Terms};
use upcall_core::discipline::RMDP;
use upcall_core::scheduler::{Input, Outcome};
use upcall_core::time::Span;
use upcall_core::trace::Traced;

/// The number of the virtual processor's domain.
const ME: u32 = 1;
const GENERATION: NonZeroU64 = NonZeroU64::MIN;

/// A virtual processor, and a peer's and the daemon's ends of its pages.
fn virtual_processor() -> (VirtualProcessor, Peer<SharedMapping>, Writer<SharedMapping>) {
    let (virtual_processor, _, peer, writer) = virtual_processor_and_control(Span::ZERO);
    (virtual_processor, peer, writer)
}

fn virtual_processor_and_control(
    defer_preemption: Span,
) -> (VirtualProcessor, VirtualProcessorControl, Peer<SharedMapping>, Writer<SharedMapping>) {
    let me = DomainId::new(ME).unwrap();
    let turn = SharedMapping::create("turn", turn_page::PAGE_BYTES).unwrap();
    let kernel = SharedMapping::create_to_seal("kernel", kernel_area::AREA_BYTES).unwrap();
    let user_bytes = user_area::AREA_BYTES;
    let user = SharedMapping::create("user", user_bytes).unwrap();
    kernel.seal_future_writes().unwrap();
    let kernel_fd = kernel.read_only_fd().unwrap();
    let user_fd = user.fd().try_clone_to_owned().unwrap();
    let writer = Writer::create(kernel, 0).unwrap();
    writer.attach(me, GENERATION, 1_000, 1);
    let owner = Owner::create(user, me, GENERATION.get()).unwrap();
    let mapped = SharedMapping::from_fd(user_fd, user_bytes).unwrap();
    let peer = Peer::attach(mapped, me, GENERATION.get()).unwrap();
    let lent_fd = owner.memory().fd().try_clone_to_owned().unwrap();
    let lent = SharedMapping::from_fd(lent_fd, user_bytes).unwrap();
    let kernel = ReadOnlyMapping::from_fd(kernel_fd, kernel_area::AREA_BYTES).unwrap();
    let pages = Pages {
        generation: GENERATION.get(),
        turn: Arc::new(TurnPage::create(turn, 0).unwrap()),
        user: owner,
        mask: Arc::new(LentMask::attach(lent).unwrap()),
        kernel: Reader::attach(kernel).unwrap(),
    };
    // The domain has the turn, so only a request makes `must_look` true.
    assert!(pages.turn.pass(pages.turn.turn().unwrap(), me));
    let (virtual_processor, control) =
        VirtualProcessorControl::pair(pages, me, true, defer_preemption, Arc::default(), (None, 0));
    (virtual_processor, control, peer, writer)
}

fn grant() -> Grant {
    Grant {
        pdus_max: 100,
        quantum: 1,
        quantum_cost: Span::MAX,
        check_at: Instant::FAR,
        start: crate::clock::now(),
        resumed: false,
        jobs_skipped: 0,
        aborting: false,
    }
}

#[test]
fn peers_see_the_mask_of_a_batch_and_the_request_counts_after_it() {
    let (mut virtual_processor, peer, daemon) = virtual_processor();
    let mut scheduler: Traced<Ring> = Traced::new(1, &RMDP);
    let notifier = Notifier::default();
    let point = PreemptionPoint::on_trial(&mut scheduler, &notifier, Some(&mut virtual_processor));
    let mut batch = Batch::new(Authority::Scheduler(point), grant());
    let is_masked = || peer.is_masked(Mask::Preemption);
    assert!(batch.proceed() && batch.proceed(), "a boundary without a request");
    assert!(!is_masked());
    {
        let mut outer = batch.mask_preemption();
        assert!(is_masked());
        daemon.request_yield(DomainId::new(ME).unwrap());
        drop(outer.mask_preemption());
        assert!(is_masked(), "one level is left");
        assert!(outer.proceed() && outer.proceed());
    }
    assert!(!is_masked());
    // The batch asked the scheduler, in which no handler runs.
    assert!(!batch.proceed());
    assert!(!peer.is_masked(Mask::Interrupts));
}

#[test]
fn each_request_to_yield_causes_one_look() {
    let (mut virtual_processor, _, daemon) = virtual_processor();
    let scheduler: Traced<Ring> = Traced::new(1, &RMDP);
    for request in 0..3 {
        assert!(!virtual_processor.must_look(), "{request}");
        daemon.request_yield(DomainId::new(ME).unwrap());
        assert!(virtual_processor.must_look(), "{request}");
        // No handler runs, so none may go on.
        assert_eq!(virtual_processor.may_go_on(&scheduler, crate::clock::now()), None);
    }
}

/// A thread that sleeps does not run, as one that another thread interrupts does not.
#[test]
fn others_take_of_an_upcall_at_most_what_the_daemon_says() {
    let (mut virtual_processor, _, daemon) = virtual_processor();
    let scheduler: Traced<Ring> = Traced::new(1, &RMDP);
    let mut interrupt = |ns_max| {
        daemon.set_interruption_max(ns_max);
        virtual_processor.upcall(&scheduler, crate::clock::now());
        std::thread::sleep(std::time::Duration::from_millis(2));
        [virtual_processor.take_interruption(), virtual_processor.take_interruption()]
    };
    assert_eq!(interrupt(0), [None, None], "no domain is away");
    let bound = 1_000_000;
    assert_eq!(interrupt(bound), [Some(Span::from_nanos(bound)), None]);
    let begin = crate::clock::now();
    let [first, second] = interrupt(u64::MAX);
    let elapsed = crate::clock::now().since(begin);
    assert!(first > Some(Span::from_nanos(bound)), "{first:?}");
    // The thread may lose the CPU between the two calls. No time counts twice.
    let sum = first.unwrap_or_default() + second.unwrap_or_default();
    assert!(sum <= elapsed, "{first:?} and {second:?} of {elapsed}");
    assert_eq!(interrupt(0), [None, None], "all are back");
}

#[test]
fn a_domain_that_was_passed_over_finds_it_once() {
    let (mut virtual_processor, _, daemon) = virtual_processor();
    let me = DomainId::new(ME).unwrap();
    assert!(!virtual_processor.is_newly_passed_over());
    for state in [State::Blocked, State::Stopped] {
        // It finds the state while it is away, and then that it is back.
        daemon.set_state(me, state);
        assert!(virtual_processor.is_newly_passed_over(), "{state:?}");
        assert!(!virtual_processor.is_newly_passed_over(), "once");
        daemon.set_state(me, State::Attached);
        daemon.interrupt(me, Interrupt::Resume);
        assert!(!virtual_processor.is_newly_passed_over(), "it knew that");
        // It looks only after the daemon has set the state back.
        daemon.set_state(me, state);
        daemon.set_state(me, State::Attached);
        daemon.interrupt(me, Interrupt::Resume);
        assert!(virtual_processor.is_newly_passed_over(), "{state:?}");
        assert!(!virtual_processor.is_newly_passed_over(), "once");
    }
}

#[test]
fn a_forgotten_guard_masks_only_to_the_end_of_the_upcall() {
    let (mut virtual_processor, peer, _daemon) = virtual_processor();
    let mut scheduler: Traced<Ring> = Traced::new(1, &RMDP);
    let notifier = Notifier::default();
    let point = PreemptionPoint::on_trial(&mut scheduler, &notifier, Some(&mut virtual_processor));
    let mut batch = Batch::new(Authority::Scheduler(point), grant());
    std::mem::forget(batch.mask_preemption());
    std::mem::forget(batch.mask_preemption());
    assert!(peer.is_masked(Mask::Preemption));
    batch.close(crate::clock::now());
    assert!(!peer.is_masked(Mask::Preemption));
}

#[test]
fn an_interrupt_of_the_daemon_is_delivered_once_when_the_mask_goes() {
    let (mut virtual_processor, peer, daemon) = virtual_processor();
    let me = DomainId::new(ME).unwrap();
    // Belongs to an earlier domain with this number.
    daemon.interrupt(me, Interrupt::Resume);
    let shared = Arc::new(Shared::new(Notifier::default(), Arc::default()));
    let mut interrupts = Interrupts::new(shared, Some(&virtual_processor));
    let seen = Arc::new(Mutex::new(Vec::new()));
    let noted = seen.clone();
    interrupts.set_handler(Box::new(move |kind| noted.lock().unwrap().push(kind)));
    assert!(!interrupts.deliver(crate::clock::now(), Some(&virtual_processor)));

    let mut scheduler: Traced<Ring> = Traced::new(1, &RMDP);
    let (scheduler, notifier) = (&mut scheduler, &Notifier::default());
    let virtual_processor = Some(&mut virtual_processor);
    let interrupts = Some(&mut interrupts);
    let point = PreemptionPoint {
        interrupts,
        ..PreemptionPoint::on_trial(scheduler, notifier, virtual_processor)
    };
    let mut batch = Batch::new(Authority::Scheduler(point), grant());
    assert!(batch.proceed());
    {
        let mut masked = batch.mask_interrupts();
        assert!(peer.is_masked(Mask::Interrupts) && !peer.is_masked(Mask::Preemption));
        daemon.interrupt(me, Interrupt::Resume);
        daemon.interrupt(me, Interrupt::Resume);
        assert!(masked.proceed() && seen.lock().unwrap().is_empty());
    }
    assert!(!peer.is_masked(Mask::Interrupts));
    assert_eq!(*seen.lock().unwrap(), [Interrupt::Resume]);
    assert!(batch.proceed());
    assert_eq!(seen.lock().unwrap().len(), 1);
}

#[test]
fn moving_on_keeps_orders_and_counters_and_loses_no_notification() {
    let (mut virtual_processor, mut control, _, _) = virtual_processor_and_control(Span::ZERO);
    let (mut next, mut next_control, peer, _) = virtual_processor_and_control(Span::ZERO);
    let handle = virtual_processor.wake_handle();
    for (id, order) in [(0, 7), (1, 9)] {
        virtual_processor.set_order(ActivityId(id), Some(order));
    }
    virtual_processor.counters.handoffs = 3;
    assert!(!virtual_processor.move_on());
    let old = virtual_processor.notifier().clone();
    next.set_unclaimed(vec![9]);
    let last = u32::MAX - next.me.number();
    control.replace(Box::new(next), &mut next_control);
    // The old wake word was notified. From now on the handle notifies the new one.
    assert!(old.acknowledge());
    handle.notify();
    assert!(!old.is_notified());
    assert!(virtual_processor.move_on());
    assert!(!virtual_processor.move_on());
    assert!(virtual_processor.notifier().is_notified() && handle.is_notified());
    assert!(virtual_processor.notifier().acknowledge());
    assert_eq!(virtual_processor.orders[..3], [Some(7), Some(last), None]);
    assert_eq!(virtual_processor.handoffs(), 3);
    // It publishes the orders on its new page.
    virtual_processor.publish(&Scheduler::new(ACTIVITIES_MAX, &RMDP));
    let shown = |slot| peer.slot(slot).unwrap().rank.order;
    assert_eq!((shown(0), shown(1)), (7, last));
    next_control.clear();
    assert!(next_control.predecessors.pop().is_err());
}

#[test]
fn peers_see_the_mask_of_a_task_while_it_is_polled_and_the_request_counts_after_it() {
    let (mut virtual_processor, peer, daemon) = virtual_processor();
    let mut shared = Shared::new(Notifier::default(), Arc::default());
    shared.mask = Some(virtual_processor.lent_mask());
    let shared = Arc::new(shared);
    let cell = Arc::new(TaskCell::new(crate::clock::now));
    cell.bind(Address { shared, id: ActivityId(0), watcher: None });
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (noted, task) = (seen.clone(), Task::new(cell.clone()));
    let peer = Arc::new(peer);
    let looked = peer.clone();
    let mut work = TaskWork::new(cell, async move {
        let note = |what| noted.lock().unwrap().push((what, looked.is_masked(Mask::Preemption)));
        note("before");
        task.checkpoint().await;
        let outer = task.mask_preemption();
        let inner = task.mask_preemption();
        daemon.request_yield(DomainId::new(ME).unwrap());
        drop(inner);
        note("masked");
        task.checkpoint().await;
        // A wait that ends the message while the task holds the guard.
        task.timed_sleep(Instant::from_nanos(1)).await;
        note("again");
        drop(outer);
        note("after");
        task.checkpoint().await;
        note("not reached");
    });
    let mut upcall = || {
        let mut scheduler: Traced<Ring> = Traced::new(1, &RMDP);
        let notifier = &Notifier::default();
        let mut point =
            PreemptionPoint::on_trial(&mut scheduler, notifier, Some(&mut virtual_processor));
        let outcome = work.upcall(&mut point, &grant()).used.outcome;
        assert!(!peer.is_masked(Mask::Preemption), "no task is polled");
        outcome
    };
    assert_eq!(upcall(), Outcome::Done);
    // The first checkpoint after the mask asked the scheduler, in which no task runs.
    assert_eq!(upcall(), Outcome::Yielded);
    let seen = seen.lock().unwrap();
    let expected = [("before", false), ("masked", true), ("again", true), ("after", false)];
    assert_eq!(*seen, expected);
}

/// A peer domain of the CPU, and the owner's end of its user area.
fn peer_domain(daemon: &Writer<SharedMapping>) -> (PeerDomain, Owner<SharedMapping>) {
    peer_of_number(ME + 1, daemon)
}

fn peer_of_number(
    number: u32,
    daemon: &Writer<SharedMapping>,
) -> (PeerDomain, Owner<SharedMapping>) {
    let domain = DomainId::new(number).unwrap();
    daemon.attach(domain, GENERATION, 1_000, 2);
    let memory = SharedMapping::create_to_seal("user", user_area::AREA_BYTES).unwrap();
    memory.seal_future_writes().unwrap();
    let fd = memory.read_only_fd().unwrap();
    let owner = Owner::create(memory, domain, GENERATION.get()).unwrap();
    let mapped = ReadOnlyMapping::from_fd(fd, user_area::AREA_BYTES).unwrap();
    let area = Peer::attach(mapped, domain, GENERATION.get()).unwrap();
    (PeerDomain { domain, generation: GENERATION.get(), area, is_present: false }, owner)
}

fn at(ms: u64) -> Instant {
    Instant::ZERO + Span::from_millis(ms)
}

/// The scheduler of a virtual processor with one activity, of 90 ms, that was released at 100 ms.
fn released(virtual_processor: &mut VirtualProcessor) -> Scheduler {
    let mut scheduler = Scheduler::new(ACTIVITIES_MAX, &RMDP);
    let id = ActivityId(0);
    let params = ActivityParams::new(Span::from_millis(90), Span::from_millis(1));
    scheduler.handle(at(100), Input::Create { id, params, terms: Terms::default() }).unwrap();
    scheduler.handle(at(100), Input::Run { id, at: at(100) }).unwrap();
    virtual_processor.set_order(id, Some(0));
    scheduler
}

/// Work over its budget that must wait is no work until then, and the refill of its budget shows it
/// with its rank (docs/decisions/0016).
#[test]
fn a_domain_whose_work_waits_for_credit_passes_the_turn_and_shows_when_it_wants_it() {
    let (mut virtual_processor, peer, _) = virtual_processor();
    let mut scheduler = released(&mut virtual_processor);
    // The job began at 100 ms, and yields over its budget of 1 ms. The next window begins at 190.
    assert!(scheduler.poll_command(at(100)).is_some());
    let yielded = Input::Returned { pdus: 0, outcome: Outcome::Yielded };
    scheduler.handle(at(101), yielded).unwrap();
    virtual_processor.publish(&scheduler);
    let over = peer.best(at(101).as_nanos()).unwrap().unwrap();
    let within = Rank::new(90_000_000, 0);
    assert!(over > within);
    assert_eq!(virtual_processor.next(&scheduler, at(101)), Next::Own);
    virtual_processor.set_surplus(Some(at(130)), true);
    assert_eq!(virtual_processor.next(&scheduler, at(101)), Next::Nobody);
    virtual_processor.publish(&scheduler);
    let expected = [(129, None), (130, Some(over)), (189, Some(over)), (190, Some(within))];
    for (ms, expected) in expected {
        assert_eq!(peer.best(at(ms).as_nanos()), Ok(expected), "{ms}");
    }
    assert_eq!(peer.summary(at(101).as_nanos()).unwrap().next_release_ns(), at(130).as_nanos());
    // An activity of worse rank than the work over budget, and within its own, goes on until 190.
    let running = Rank::new(500_000_000, 7);
    let rival = peer.rival(running, at(101).as_nanos()).unwrap();
    assert_eq!((rival.preempts_at_ns, rival.best), (at(190).as_nanos(), None));
    // When the credit suffices, the work is ready as before.
    virtual_processor.set_surplus(None, true);
    assert_eq!(virtual_processor.next(&scheduler, at(131)), Next::Own);
    virtual_processor.publish(&scheduler);
    assert_eq!(peer.best(at(101).as_nanos()), Ok(Some(over)));
}

/// The daemon keeps a part of the CPU free of real-time threads (docs/decisions/0016).
#[test]
fn only_work_without_a_reservation_waits_until_the_daemon_lets_it_run() {
    let (mut virtual_processor, _, daemon) = virtual_processor();
    let [reserved, refused] = [0, 1].map(ActivityId);
    virtual_processor.set_order(reserved, Some(UNRESERVED - 1));
    virtual_processor.set_order(refused, Some(UNRESERVED));
    let waits = |id, ms| virtual_processor.unreserved_from(id, at(ms));
    assert_eq!(waits(refused, 100), None);
    daemon.set_unreserved_from(at(130).as_nanos());
    assert_eq!([reserved, refused].map(|id| waits(id, 129)), [None, Some(at(130))]);
    assert_eq!(waits(refused, 130), None);
    daemon.set_unreserved_from(0);
    assert_eq!(waits(refused, 129), None);
}

/// A domain that is far beyond its reservation keeps its debts, so it need not be woken.
#[test]
fn a_domain_that_keeps_its_debts_does_not_await_an_idle_cpu() {
    let (mut virtual_processor, peer, _) = virtual_processor();
    let scheduler = released(&mut virtual_processor);
    assert!(scheduler.awaits_idle());
    for (at, forgives_debts) in [(None, true), (None, false), (Some(at(130)), true)] {
        virtual_processor.set_surplus(at, forgives_debts);
        virtual_processor.publish(&scheduler);
        // Before, the daemon woke a domain whose work waits for credit at each idle moment: 40,000
        // times a second, seen in the row `backlog` of the bench `hostile`.
        assert_eq!(peer.awaits_idle(), forgives_debts && at.is_none());
    }
}

#[test]
fn a_deferring_domain_goes_on_while_a_better_rank_has_waited_less() {
    let (mut virtual_processor, mut control, _, daemon) =
        virtual_processor_and_control(Span::from_millis(5));
    let (other, mut theirs) = peer_domain(&daemon);
    let domain = other.domain;
    control.introduce(other);
    assert!(virtual_processor.take_in_peers());
    let mut scheduler = released(&mut virtual_processor);
    // The peer's handler is released at 110 ms, with a better rank.
    let rank = Rank::new(40_000_000, 1);
    let slot = Slot { next_release_ns: at(110).as_nanos(), rank, state: SlotState::Waiting };
    theirs.set(0, slot).unwrap();
    theirs.publish(None);
    assert_eq!(virtual_processor.next(&scheduler, at(109)), Next::Own);
    assert_eq!(virtual_processor.next(&scheduler, at(114)), Next::Own, "it has waited for 4 ms");
    assert_eq!(virtual_processor.next(&scheduler, at(115)), Next::Other(domain));
    // The same at a boundary, which also returns when to ask again.
    let _ = scheduler.poll_command(at(115));
    assert_eq!(virtual_processor.may_go_on(&scheduler, at(114)), Some(at(115)));
    assert_eq!(virtual_processor.may_go_on(&scheduler, at(115)), None);
    // The same for a handler that was ready when the peer lost the turn. The peer published since
    // when it has been ready.
    theirs.set(0, Slot::FREE).unwrap();
    theirs.publish(Some(Pending { since_ns: at(112).as_nanos(), ..rank.into() }));
    assert_eq!(virtual_processor.may_go_on(&scheduler, at(116)), Some(at(117)));
    assert_eq!(virtual_processor.may_go_on(&scheduler, at(117)), None);
    // A domain with nothing to run defers no peer.
    let returned = Input::Returned { pdus: 1, outcome: Outcome::Done };
    scheduler.handle(at(113), returned).unwrap();
    while scheduler.poll_notice().is_some() {}
    virtual_processor.found = None;
    assert_eq!(virtual_processor.next(&scheduler, at(113)), Next::Other(domain));
}

#[test]
fn events_decide_among_equals_at_a_choice_and_never_at_a_boundary() {
    for defer_preemption in [Span::ZERO, Span::from_millis(5)] {
        let (mut virtual_processor, mut control, peer, daemon) =
            virtual_processor_and_control(defer_preemption);
        let (other, mut theirs) = peer_domain(&daemon);
        let domain = other.domain;
        control.introduce(other);
        assert!(virtual_processor.take_in_peers());
        let (id, mut scheduler) = (ActivityId(0), Scheduler::new(ACTIVITIES_MAX, &RMDP));
        let params = ActivityParams::new(Span::from_millis(90), Span::from_millis(50));
        let terms = Terms { wins_ties: true, ..Terms::default() };
        let mut handle = |input| scheduler.handle(at(100), input).unwrap();
        handle(Input::Create { id, params, terms });
        handle(Input::Run { id, at: at(100) });
        handle(Input::Posted { id, rank: 20 });
        virtual_processor.set_order(id, Some(4));
        virtual_processor.publish(&scheduler);
        let shown = Rank { event: 20, ..Rank::new(90_000_000, 4) };
        assert_eq!(peer.best(at(100).as_nanos()), Ok(Some(shown)));
        // Two ranks of the same period: one with a better place, one with a more urgent event.
        let first = Rank::new(90_000_000, 3);
        let urgent = Rank { event: 10, ..Rank::new(90_000_000, 5) };
        let mut show = |rank: Rank| theirs.publish(Some(rank.into()));
        show(first);
        assert_eq!(virtual_processor.next(&scheduler, at(110)), Next::Own);
        show(urgent);
        assert_eq!(virtual_processor.next(&scheduler, at(110)), Next::Other(domain));
        // The handler was chosen with its event, and then takes it.
        let _ = scheduler.poll_command(at(110));
        scheduler.handle(at(110), Input::Taken { id, events: 1 }).unwrap();
        for equal in [first, urgent] {
            theirs.publish(Some(equal.into()));
            assert!(virtual_processor.may_go_on(&scheduler, at(111)).is_some(), "{equal:?}");
        }
        theirs.publish(Some(Rank::new(89_000_000, 9).into()));
        assert_eq!(virtual_processor.may_go_on(&scheduler, at(111)), None);
    }
}

#[test]
fn a_domain_publishes_since_when_it_waits_if_preemption_is_deferred() {
    for (defer_preemption, since) in [(Span::from_millis(5), at(100)), (Span::ZERO, Instant::ZERO)]
    {
        let (mut virtual_processor, _control, peer, _daemon) =
            virtual_processor_and_control(defer_preemption);
        let mut scheduler = released(&mut virtual_processor);
        scheduler.handle(at(103), Input::Tick).unwrap();
        virtual_processor.publish(&scheduler);
        let worst = Rank::new(u64::MAX - 1, 0);
        assert_eq!(peer.rival(worst, 0).unwrap().preempts_at_ns, since.as_nanos());
        let before = since.as_nanos().wrapping_sub(1);
        assert_eq!(peer.best(before).unwrap().is_some(), defer_preemption.is_zero());
        assert!(peer.best(since.as_nanos()).unwrap().is_some());
    }
}

/// The next moment at which the holder looks again is the sign that it yielded.
#[test]
fn a_holder_looks_again_soon_while_a_peer_may_be_woken() {
    let (mut virtual_processor, mut control, _, daemon) = virtual_processor_and_control(Span::ZERO);
    let (other, theirs) = peer_domain(&daemon);
    let domain = other.domain;
    control.introduce(other);
    assert!(virtual_processor.take_in_peers());
    let mut scheduler = released(&mut virtual_processor);
    let _ = scheduler.poll_command(at(100));
    let page = virtual_processor.pages.turn.clone();
    let mut looks_again = || {
        let until = virtual_processor.may_go_on(&scheduler, crate::clock::now()).unwrap();
        until < crate::clock::now() + Span::from_secs(3_600)
    };
    assert!(!looks_again());
    // The daemon runs below the domains, so it may be notified for long.
    assert!(!page.wake_word(DomainId::DAEMON).notify() && !looks_again());
    // A thread of the peer's process wakes it.
    assert!(page.wake_word(domain).prepare_wait());
    assert!(!looks_again(), "it sleeps");
    SharedNotifier::new(page.clone(), domain).notify();
    assert!(page.need_resched() && looks_again());
    daemon.set_state(domain, State::Stopped);
    assert!(!looks_again(), "it was stopped");
    daemon.set_state(domain, State::Attached);
    assert!(looks_again(), "it has not run yet");
    assert!(page.wake_word(domain).acknowledge());
    assert!(!looks_again(), "it has run");
    // The peer sleeps on the word of a stream.
    theirs.set_outside_wakes(true);
    assert!(looks_again() && looks_again());
    theirs.set_outside_wakes(false);
    assert!(!looks_again());
}

/// Before, the holder yielded only when the daemon requested it.
#[test]
fn a_holder_lets_domains_of_other_users_and_their_kls_threads_run() {
    let (mut virtual_processor, mut control, _, daemon) = virtual_processor_and_control(Span::ZERO);
    let (proxy, shows) = peer_of_number(0, &daemon);
    let (peer, theirs) = peer_domain(&daemon);
    control.introduce(peer);
    control.introduce(proxy);
    assert!(virtual_processor.take_in_peers());
    virtual_processor.peers.update(&virtual_processor.pages.kernel);
    let woken = || {
        let Pages { kernel, turn, .. } = &virtual_processor.pages;
        virtual_processor.peers.may_be_woken(kernel, turn)
    };
    assert_eq!(woken(), None);
    theirs.set_outside_wakes(true);
    assert_eq!(woken(), Some(Woken::Peers));
    shows.set_outside_wakes(true);
    assert_eq!(woken(), Some(Woken::OfOthers));
    theirs.set_outside_wakes(false);
    assert_eq!(woken(), Some(Woken::OfOthers));
    shows.set_outside_wakes(false);
    assert_eq!(woken(), None);
}

#[test]
fn a_domain_shows_that_it_sleeps_on_streams_and_asks_the_holder_to_look() {
    let (mut virtual_processor, peer, _daemon) = virtual_processor();
    virtual_processor.set_outside_wakes(true);
    assert!(peer.has_outside_wakes() && virtual_processor.must_ask.get());
    virtual_processor.must_ask.set(false);
    virtual_processor.set_outside_wakes(true);
    assert!(!virtual_processor.must_ask.get(), "nothing changed");
    virtual_processor.set_outside_wakes(false);
    assert!(!peer.has_outside_wakes() && !virtual_processor.must_ask.get());
}
