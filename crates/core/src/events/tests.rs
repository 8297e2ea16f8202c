use super::*;
use crate::time::Span;
use proptest::prelude::*;

const fn at(ns: u64) -> Instant {
    Instant::from_nanos(ns)
}

const fn terms(pending_max: u32, invocations_max: u32, span_ns: u64) -> HandlerTerms {
    HandlerTerms { pending_max, invocations_max, span: Span::from_nanos(span_ns) }
}

/// A delivery with handlers that hold 8 events and have no limit of invocations, and a source for
/// each route.
fn delivery<const N: usize>(handlers: u32, routes: [&[u32]; N]) -> (Delivery, [SourceId; N]) {
    let mut delivery = Delivery::new();
    for _ in 0..handlers {
        delivery.add_handler(terms(8, 1000, 1)).unwrap();
    }
    let sources = routes.map(|route| {
        let route: Vec<_> = route.iter().copied().map(EventHandlerId).collect();
        delivery.add_source(&route).unwrap()
    });
    (delivery, sources)
}

fn raise(delivery: &mut Delivery, event: QueuedEvent) -> Result<(), Refused> {
    delivery.raise(at(0), event, When::Now)
}

fn tokens(delivery: &mut Delivery, handler: u32) -> Vec<u64> {
    core::iter::from_fn(|| delivery.take(EventHandlerId(handler)))
        .map(|event| event.token)
        .collect()
}

const fn invoke(handler: u32) -> Option<Next> {
    Some(Next::Invoke(EventHandlerId(handler)))
}

#[test]
fn the_handler_with_the_most_urgent_event_is_first_and_takes_all_it_has() {
    let (mut delivery, [a, b]) = delivery(2, [&[0], &[1]]);
    assert_eq!((delivery.next(at(0)), delivery.best()), (None, None));
    for event in
        [QueuedEvent::new(a, 5, 50), QueuedEvent::new(b, 4, 40), QueuedEvent::new(b, 9, 90)]
    {
        raise(&mut delivery, event).unwrap();
    }
    raise(&mut delivery, QueuedEvent::new(a, 5, 51)).unwrap();
    assert_eq!(delivery.best(), Some((EventHandlerId(1), 4)));
    assert_eq!(delivery.next(at(0)), invoke(1));
    assert_eq!(tokens(&mut delivery, 1), [40, 90]);
    assert_eq!(delivery.next(at(0)), invoke(0));
    assert_eq!(tokens(&mut delivery, 0), [50, 51]);
    assert_eq!(delivery.next(at(0)), None);
    assert_eq!(delivery.counts(EventHandlerId(0)).unwrap().invocations, 1);
}

#[test]
fn many_deferred_events_come_to_one_invocation() {
    let (mut delivery, [a]) = delivery(1, [&[0]]);
    for (token, when) in [
        (1, When::NextCrossing),
        (2, When::BeforeScheduling),
        (3, When::After(Span::from_nanos(10))),
        (4, When::NextCrossing),
    ] {
        delivery.raise(at(5), QueuedEvent::new(a, 0, token), when).unwrap();
    }
    assert_eq!((delivery.next(at(14)), delivery.pending(EventHandlerId(0))), (None, 4));
    assert_eq!(delivery.next_deadline(), Some(at(15)));
    delivery.crossing();
    assert_eq!(delivery.next(at(14)), invoke(0));
    assert_eq!(tokens(&mut delivery, 0), [1, 4]);
    delivery.before_scheduling();
    assert_eq!(delivery.next(at(15)), invoke(0));
    assert_eq!(tokens(&mut delivery, 0), [2, 3]);
    assert_eq!((delivery.next_deadline(), delivery.pending(EventHandlerId(0))), (None, 0));
}

#[test]
fn a_filter_drops_merges_and_passes_on() {
    let (mut delivery, [a]) = delivery(2, [&[0, 1]]);
    for (token, rank) in [(1, 7), (2, 6), (3, 9), (4, 5)] {
        raise(&mut delivery, QueuedEvent::new(a, rank, token)).unwrap();
    }
    let to = Ok(Some(EventHandlerId(1)));
    let verdicts = [Verdict::Drop, Verdict::Merge, Verdict::Pass, Verdict::Merge];
    for (verdict, expected) in verdicts.into_iter().zip([Ok(None), to, to, to]) {
        let event = delivery.take(EventHandlerId(0)).unwrap();
        assert_eq!(delivery.conclude(at(0), event, verdict), expected);
    }
    let counts = delivery.counts(EventHandlerId(1)).unwrap();
    assert_eq!((counts.merged, delivery.counts(EventHandlerId(0)).unwrap().dropped), (1, 1));
    // By rank came 4 (dropped), 2 (nothing to merge with), 1 (passed), 3 (into 1).
    let taken: Vec<_> = core::iter::from_fn(|| delivery.take(EventHandlerId(1)))
        .map(|event| (event.token, event.rank, event.merged))
        .collect();
    assert_eq!(taken, [(2, 6, 0), (3, 7, 1)]);
    assert_eq!(delivery.next(at(0)), None);
}

#[test]
fn an_event_that_leads_back_to_its_handler_is_refused() {
    let (mut delivery, [to_service, to_client]) = delivery(2, [&[0], &[1]]);
    let (service, client) = (EventHandlerId(0), EventHandlerId(1));
    raise(&mut delivery, QueuedEvent::new(to_service, 0, 1)).unwrap();
    let event = delivery.take(service).unwrap();
    let again = QueuedEvent::new(to_service, 0, 2).because(event.led_by(service));
    assert_eq!(raise(&mut delivery, again), Err(Refused::Recursion(service)));
    let reply = QueuedEvent::new(to_client, 0, 3).because(event.led_by(service));
    assert_eq!(raise(&mut delivery, reply), Ok(()));
    let reply = delivery.take(client).unwrap();
    let back = QueuedEvent::new(to_service, 0, 4).because(reply.led_by(client));
    assert_eq!(raise(&mut delivery, back), Err(Refused::Recursion(service)));
    assert_eq!(delivery.counts(service).unwrap().recursions, 2);
    // The same, called directly.
    let within = delivery.call(at(0), service, Ancestry::NONE).unwrap();
    let deeper = delivery.call(at(0), client, within).unwrap();
    assert_eq!(delivery.call(at(0), service, deeper), Err(Refused::Recursion(service)));
    assert_eq!(delivery.counts(service).unwrap().recursions, 3);
}

#[test]
fn a_route_that_leads_back_is_cut_at_that_handler() {
    let (mut delivery, [a]) = delivery(2, [&[0, 1]]);
    let led = QueuedEvent::new(a, 0, 1).led_by(EventHandlerId(1));
    raise(&mut delivery, QueuedEvent::new(a, 0, 2).because(led)).unwrap();
    let event = delivery.take(EventHandlerId(0)).unwrap();
    let refused = Err(Refused::Recursion(EventHandlerId(1)));
    assert_eq!(delivery.conclude(at(0), event, Verdict::Pass), refused);
    assert_eq!(delivery.conclude(at(0), event, Verdict::Merge), refused);
}

#[test]
fn a_handler_that_runs_away_is_held_and_the_others_go_on() {
    let mut delivery = Delivery::new();
    let wild = delivery.add_handler(terms(8, 2, 100)).unwrap();
    let tame = delivery.add_handler(terms(8, 2, 100)).unwrap();
    let sources = [wild, tame].map(|handler| delivery.add_source(&[handler]).unwrap());
    for token in 0..3 {
        raise(&mut delivery, QueuedEvent::new(sources[0], 0, token)).unwrap();
    }
    raise(&mut delivery, QueuedEvent::new(sources[1], 1, 3)).unwrap();
    for now in [10, 20] {
        assert_eq!(delivery.next(at(now)), Some(Next::Invoke(wild)));
        assert!(delivery.take(wild).is_some());
    }
    let run_away = Next::RunAway { handler: wild, until: at(110) };
    assert_eq!(delivery.next(at(30)), Some(run_away));
    assert_eq!(delivery.next(at(30)), Some(Next::Invoke(tame)));
    assert_eq!(tokens(&mut delivery, 1), [3]);
    raise(&mut delivery, QueuedEvent::new(sources[0], 0, 4)).unwrap();
    assert_eq!((delivery.next(at(109)), delivery.next_deadline()), (None, Some(at(110))));
    let refused = Refused::RunAway { handler: wild, until: at(110) };
    assert_eq!(delivery.call(at(109), wild, Ancestry::NONE), Err(refused));
    assert_eq!(delivery.next(at(110)), Some(Next::Invoke(wild)));
    assert_eq!(tokens(&mut delivery, 0), [2, 4]);
    let counts = delivery.counts(wild).unwrap();
    assert_eq!((counts.invocations, counts.run_aways, counts.lost), (3, 2, 0));
}

#[test]
fn a_flood_fills_only_the_queue_of_its_handler() {
    let (mut delivery, [a, b]) = delivery(2, [&[0], &[1]]);
    let refused = Err(Refused::Full(EventHandlerId(0)));
    for token in 0..10 {
        let raised = delivery.raise(at(0), QueuedEvent::new(a, 0, token), When::NextCrossing);
        assert_eq!(raised, if token < 8 { Ok(()) } else { refused });
    }
    assert_eq!(raise(&mut delivery, QueuedEvent::new(b, 0, 0)), Ok(()));
    assert_eq!(delivery.counts(EventHandlerId(0)).unwrap().lost, 2);
    delivery.withdraw(a);
    delivery.crossing();
    assert_eq!((delivery.pending(EventHandlerId(0)), delivery.take(EventHandlerId(0))), (0, None));
    assert_eq!(raise(&mut delivery, QueuedEvent::new(a, 0, 0)), Ok(()));
}

#[test]
fn invalid_handlers_and_sources_are_not_added() {
    let mut delivery = Delivery::new();
    for (wrong, name, found, max) in [
        (terms(0, 1, 1), "pending_max", 0, 65_536),
        (terms(65_537, 1, 1), "pending_max", 65_537, 65_536),
        (terms(1, 0, 1), "invocations_max", 0, 65_536),
        (terms(1, 1, 0), "span", 0, u64::MAX),
    ] {
        assert_eq!(delivery.add_handler(wrong), Err(AddError::Terms { name, found, max }));
    }
    let handlers: Vec<_> = (0..64).map(|_| delivery.add_handler(terms(1, 1, 1)).unwrap()).collect();
    assert_eq!(delivery.add_handler(terms(1, 1, 1)), Err(AddError::TooMany));
    let [first, second] = [handlers[0], handlers[1]];
    for route in [&[][..], &[first, first], &[first, second, first], &handlers[..5]] {
        assert_eq!(delivery.add_source(route), Err(AddError::Route));
    }
    assert_eq!(Delivery::new().add_source(&[first]), Err(AddError::Route));
    let unknown = SourceId(7);
    assert_eq!(
        raise(&mut delivery, QueuedEvent::new(unknown, 0, 0)),
        Err(Refused::Source(unknown))
    );
}

/// The operations.
#[derive(Clone, Copy, Debug)]
enum Step {
    Raise {
        source: u32,
        rank: u64,
        when: u8,
        cause: bool,
    },
    Crossing,
    Scheduling,
    Pass(u64),
    /// Calls `next`; an invoked handler takes this many events, with this verdict on each.
    Next {
        takes: u8,
        verdict: u8,
    },
    Withdraw(u32),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0u32..3, 0u64..4, 0u8..4, 0u64..8).prop_map(|(source, rank, when, cause)| {
            let cause = cause == 3; // by handler 1
            Step::Raise { source, rank, when, cause }
        }),
        1 => Just(Step::Crossing),
        1 => Just(Step::Scheduling),
        3 => (0u64..6).prop_map(Step::Pass),
        6 => (0u8..4, 0u8..3).prop_map(|(takes, verdict)| Step::Next { takes, verdict }),
        1 => (0u32..3).prop_map(Step::Withdraw),
    ];
    prop::collection::vec(step, 0..150)
}

/// When a waiting event of the model becomes ripe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ripe {
    Now,
    Crossing,
    Scheduling,
    At(Instant),
}

/// The same without any structure: lists, searched from end to end.
struct Model {
    now: Instant,
    serial: u64,
    waiting: Vec<(u32, QueuedEvent, Ripe)>,
    invocations: [Vec<Instant>; 3],
    held_until: [Option<Instant>; 3],
}

const ROUTES: [&[u32]; 3] = [&[0], &[1, 2], &[0, 2, 1]];
const ROOM: usize = 5;
const INVOCATIONS: usize = 2;
const SPAN: Span = Span::from_nanos(10);

impl Model {
    fn enter(&mut self, event: QueuedEvent, ripe: Ripe) -> Result<(), Refused> {
        let number = ROUTES[event.source.0 as usize][event.stage as usize];
        let handler = EventHandlerId(number);
        if event.ancestry.contains(handler) {
            return Err(Refused::Recursion(handler));
        }
        if self.waiting.iter().filter(|(of, ..)| *of == number).count() == ROOM {
            return Err(Refused::Full(handler));
        }
        self.waiting.push((number, QueuedEvent { serial: self.serial, ..event }, ripe));
        self.serial += 1;
        Ok(())
    }

    fn ripen(&mut self, is: impl Fn(Ripe) -> bool) {
        self.waiting.iter_mut().filter(|(.., ripe)| is(*ripe)).for_each(|at| at.2 = Ripe::Now);
    }

    fn next(&mut self) -> Option<Next> {
        let now = self.now;
        self.ripen(|ripe| matches!(ripe, Ripe::At(due) if due <= now));
        for held in &mut self.held_until {
            *held = held.filter(|&until| until > now);
        }
        let ready = |at: &&(u32, QueuedEvent, Ripe)| {
            at.2 == Ripe::Now && self.held_until[at.0 as usize].is_none()
        };
        let &(number, ..) = self.waiting.iter().filter(ready).min_by_key(|at| at.1.key())?;
        let times = &mut self.invocations[number as usize];
        let recent: Vec<_> = times.iter().copied().filter(|&time| time + SPAN > now).collect();
        let handler = EventHandlerId(number);
        if recent.len() >= INVOCATIONS {
            let until = recent[recent.len() - INVOCATIONS] + SPAN;
            self.held_until[number as usize] = Some(until);
            return Some(Next::RunAway { handler, until });
        }
        times.push(now);
        Some(Next::Invoke(handler))
    }

    fn take(&mut self, number: u32) -> Option<QueuedEvent> {
        let mine = self.waiting.iter().enumerate().filter(|(_, at)| at.0 == number);
        let ripe = mine.filter(|(_, at)| at.2 == Ripe::Now);
        let (index, _) = ripe.min_by_key(|(_, at)| at.1.key())?;
        Some(self.waiting.remove(index).1)
    }

    /// `last` is the serial of the last event of the source that came to a stage, whether it still
    /// waits or not.
    fn conclude(
        &mut self,
        event: QueuedEvent,
        verdict: Verdict,
        last: Option<u64>,
    ) -> Result<Option<EventHandlerId>, Refused> {
        let route = ROUTES[event.source.0 as usize];
        let next = event.stage as usize + 1;
        if verdict == Verdict::Drop || next == route.len() {
            return Ok(None);
        }
        let to = EventHandlerId(route[next]);
        let ancestry = event.led_by(EventHandlerId(route[next - 1]));
        let event = QueuedEvent { stage: event.stage + 1, ancestry, ..event };
        let found = self.waiting.iter_mut().find(|at| Some(at.1.serial) == last);
        match found {
            Some(at) if verdict == Verdict::Merge && !ancestry.contains(to) => {
                at.1.rank = at.1.rank.min(event.rank);
                at.1.token = event.token;
                at.1.merged += event.merged + 1;
                at.1.ancestry = at.1.ancestry.and(ancestry);
            }
            _ => self.enter(event, Ripe::Now)?,
        }
        Ok(Some(to))
    }
}

proptest! {
    /// Any sequence of steps has the same result as lists searched from end to end.
    #[test]
    fn behaves_like_lists(steps in steps()) {
        let mut delivery = Delivery::new();
        let room = u32::try_from(ROOM).unwrap();
        for _ in 0..3 {
            let times = u32::try_from(INVOCATIONS).unwrap();
            let terms = HandlerTerms { pending_max: room, invocations_max: times, span: SPAN };
            delivery.add_handler(terms).unwrap();
        }
        for route in ROUTES {
            let route: Vec<_> = route.iter().copied().map(EventHandlerId).collect();
            delivery.add_source(&route).unwrap();
        }
        let mut model = Model {
            now: at(0),
            serial: 0,
            waiting: Vec::new(),
            invocations: Default::default(),
            held_until: [None; 3],
        };
        // The serial of the last event of each source that came to each stage.
        let mut last = [[None; ROUTE_MAX]; 3];
        let mut token = 0;
        for step in steps {
            match step {
                Step::Raise { source, rank, when, cause } => {
                    token += 1;
                    let event = QueuedEvent::new(SourceId(source), rank, token);
                    let led = event.led_by(EventHandlerId(1));
                    let event = if cause { event.because(led) } else { event };
                    let delay = Span::from_nanos(4);
                    let (when, ripe) = match when {
                        0 => (When::Now, Ripe::Now),
                        1 => (When::NextCrossing, Ripe::Crossing),
                        2 => (When::BeforeScheduling, Ripe::Scheduling),
                        _ => (When::After(delay), Ripe::At(model.now + delay)),
                    };
                    let raised = delivery.raise(model.now, event, when);
                    prop_assert_eq!(raised, model.enter(event, ripe));
                }
                Step::Crossing => {
                    delivery.crossing();
                    model.ripen(|ripe| ripe == Ripe::Crossing);
                }
                Step::Scheduling => {
                    delivery.before_scheduling();
                    model.ripen(|ripe| ripe == Ripe::Scheduling);
                }
                Step::Pass(ns) => model.now += Span::from_nanos(ns),
                Step::Next { takes, verdict } => {
                    let next = delivery.next(model.now);
                    prop_assert_eq!(next, model.next());
                    let Some(Next::Invoke(handler)) = next else { continue };
                    for _ in 0..takes {
                        let event = delivery.take(handler);
                        prop_assert_eq!(event, model.take(handler.0));
                        let Some(event) = event else { break };
                        let verdicts = [Verdict::Drop, Verdict::Merge, Verdict::Pass];
                        let verdict = verdicts[verdict as usize];
                        let newest = &mut last[event.source.0 as usize][event.stage as usize + 1];
                        let before = model.serial;
                        let expected = model.conclude(event, verdict, *newest);
                        if model.serial > before {
                            *newest = Some(before);
                        }
                        prop_assert_eq!(delivery.conclude(model.now, event, verdict), expected);
                    }
                }
                Step::Withdraw(source) => {
                    delivery.withdraw(SourceId(source));
                    model.waiting.retain(|at| at.1.source.0 != source);
                }
            }
            for number in 0..3 {
                let waiting = model.waiting.iter().filter(|at| at.0 == number).count();
                prop_assert_eq!(delivery.pending(EventHandlerId(number)), waiting);
            }
        }
    }
}
