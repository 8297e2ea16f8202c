//! Event channels within one process, with handlers in threads. The tests cover each kind of
//! notification, filters, and that each end finds how the other end went.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};

use upcall_runtime::channel::{
    self, CallError, ChannelEvent, ChannelOpenError, Client, FastAnswer, FastError, Form, Forms,
    Gone, HANDLER_TERMS, HandlerTerms, Posted, Raise, RaiseError, Raiser, Refused, Route, Service,
    ServiceRefusal, ServiceTerms, TakeError, Verdict, When, Words,
};
use upcall_runtime::clock;
use upcall_runtime::time::{Instant, Span};

fn a_minute() -> Option<Instant> {
    Some(clock::now() + Span::from_secs(60))
}

/// A name that no other test has.
fn name(of: &str) -> String {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    format!("{of}-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed))
}

const RINGS: Forms =
    Forms { to_service: Form::Ring { slots: 64 }, to_client: Form::Ring { slots: 64 } };

const fn word(word: u64) -> Words {
    [word, 0, 0, 0, 0]
}

fn raise(number: u64) -> Raise {
    Raise::row(0).words(word(number))
}

/// What a route's handlers saw.
#[derive(Debug, PartialEq, Eq)]
enum Seen {
    Event(ChannelEvent),
    Gone(Gone),
}

/// A route that shows everything that its handlers get.
fn shows() -> (Route, mpsc::Receiver<Seen>) {
    let (sender, receiver) = mpsc::channel();
    let gone = sender.clone();
    let route = Route::to(move |events| {
        while let Some(event) = events.take() {
            let _ = sender.send(Seen::Event(event));
        }
    });
    let route = route.on_gone(move |_, how| {
        let _ = gone.send(Seen::Gone(how));
    });
    (route, receiver)
}

/// The word of an event that stops the thread which handles it.
const HOLD: u64 = 1_000;

/// Holds the thread that serves a route. One poll then finds all events that are posted meanwhile.
struct HeldThread {
    held: mpsc::Receiver<()>,
    go_on: mpsc::Sender<()>,
}

/// `route` with a first filter that holds the thread, and the handle of the held thread. The filter
/// does not pass on the event that makes it hold.
fn holding(route: Route) -> (Route, HeldThread) {
    let (holds, held) = mpsc::channel();
    let (go_on, goes_on) = mpsc::channel();
    let route = route.through(move |events| {
        while let Some(event) = events.take() {
            if event.words[0] == HOLD {
                events.discard();
                holds.send(()).expect("the test still runs");
                goes_on.recv().expect("the test still runs");
            }
        }
    });
    (route, HeldThread { held, go_on })
}

impl HeldThread {
    /// Calls `posts`, which posts events, while the thread is stopped. Then notifies once.
    fn while_held(&self, raiser: &Raiser, posts: impl FnOnce()) {
        assert_eq!(raiser.raise(&raise(HOLD)), Ok(Posted::Stored));
        let held = self.held.recv_timeout(std::time::Duration::from_secs(60));
        held.expect("the thread never stopped");
        posts();
        raiser.notify().expect("the service is there");
        self.go_on.send(()).expect("the thread is stopped");
    }
}

fn next(seen: &mpsc::Receiver<Seen>) -> Seen {
    seen.recv_timeout(std::time::Duration::from_secs(60)).expect("no event came")
}

fn next_word(seen: &mpsc::Receiver<Seen>) -> u64 {
    match next(seen) {
        Seen::Event(event) => event.words[0],
        gone => panic!("{gone:?}"),
    }
}

fn take(client: &mut Client) -> Result<ChannelEvent, TakeError> {
    loop {
        match client.take()? {
            Some(event) => return Ok(event),
            None => assert!(client.wait(a_minute()), "never notified"),
        }
    }
}

#[test]
fn events_of_every_form_go_both_ways() {
    for form in [
        Form::Counter,
        Form::Typed { types: 3 },
        Form::Slots { levels: 3, depth: 2 },
        Form::Ring { slots: 4 },
    ] {
        let echo = Route::to(|events| {
            while let Some(event) = events.take() {
                let answer = Raise::row(event.row).words(event.words);
                assert_ne!(events.raise(event.peer, &answer), Ok(Posted::Lost));
            }
        });
        let name = name("echo");
        let forms = Forms { to_service: form, to_client: form };
        let service = Service::in_thread(&name, ServiceTerms::new(forms, echo)).unwrap();
        let mut client = Client::polled(&name).unwrap();
        let rows = if matches!(form, Form::Typed { .. } | Form::Slots { .. }) { 3 } else { 1 };
        for number in 0..100 {
            let row = u32::try_from(number % rows).unwrap();
            let words = [number, 1, 2, 3, u64::MAX];
            assert_eq!(client.raise(&Raise::row(row).words(words)), Ok(Posted::Stored));
            let event = take(&mut client).unwrap();
            let expected = if form == Form::Counter { [0; 5] } else { words };
            assert_eq!((event.row, event.words, event.peer), (row, expected, client.service()));
        }
        assert!(matches!(client.raise(&Raise::row(3)), Err(RaiseError::Post(_))), "{form:?}");
        assert_eq!(service.clients().len(), 1);
        drop(service);
        assert_eq!(take(&mut client), Err(TakeError::Gone(Gone::Ended)));
        assert_eq!(client.raise(&raise(0)), Err(RaiseError::Gone(Gone::Ended)));
    }
}

#[test]
fn many_deferred_events_cost_one_invocation_and_at_most_one_system_call() {
    let name = name("batch");
    let (route, seen) = shows();
    let (route, thread) = holding(route);
    let service = Service::in_thread(&name, ServiceTerms::new(RINGS, route)).unwrap();
    let client = Client::polled(&name).unwrap();
    let raiser = client.raiser();
    thread.while_held(&raiser, || {
        let before = raiser.system_calls();
        (0..50).for_each(|number| assert_eq!(raiser.post(&raise(number)), Ok(Posted::Stored)));
        raiser.notify().unwrap();
        raiser.notify().unwrap();
        assert!(raiser.system_calls() <= before + 1);
    });
    assert_eq!((0..50).map(|_| next_word(&seen)).collect::<Vec<_>>(), (0..50).collect::<Vec<_>>());
    drop(client);
    assert_eq!(next(&seen), Seen::Gone(Gone::Ended));
    // The filter that holds the thread was invoked twice: the event that makes it hold came alone.
    let invocations: Vec<_> = service.counts().iter().map(|counts| counts.invocations).collect();
    assert_eq!(invocations, [2, 1]);
}

#[test]
fn the_raiser_sets_when_and_in_which_order_events_are_handled() {
    let name = name("when");
    let (route, seen) = shows();
    let (route, thread) = holding(route);
    let _service = Service::in_thread(&name, ServiceTerms::new(RINGS, route)).unwrap();
    let client = Client::polled(&name).unwrap();
    let later = When::After(Span::from_millis(20));
    let raiser = client.raiser();
    thread.while_held(&raiser, || {
        raiser.post(&raise(4).when(later)).unwrap();
        raiser.post(&raise(2).rank(7)).unwrap();
        raiser.post(&raise(1).rank(3).when(When::BeforeScheduling)).unwrap();
        raiser.post(&raise(3).rank(7).when(When::Now)).unwrap();
    });
    assert_eq!((0..4).map(|_| next_word(&seen)).collect::<Vec<_>>(), [1, 2, 3, 4]);
}

#[test]
fn an_event_with_a_delay_is_handled_no_earlier() {
    let name = name("later");
    let (route, seen) = shows();
    let _service = Service::in_thread(&name, ServiceTerms::new(RINGS, route)).unwrap();
    let client = Client::polled(&name).unwrap();
    let from = clock::now();
    client.raise(&raise(1).when(When::After(Span::from_millis(20)))).unwrap();
    assert_eq!(next_word(&seen), 1);
    assert!(clock::now() >= from + Span::from_millis(20));
    // An event for a thread that sleeps costs a system call. The thread sleeps soon.
    let raiser = client.raiser();
    let wakes = (0..1_000).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(1));
        raiser.raise(&raise(2)).unwrap();
        assert_eq!(next_word(&seen), 2);
        raiser.system_calls() > 0
    });
    assert!(wakes, "no event was a system call");
    // The route says when, for events that do not.
    let (route, seen) = shows();
    let name = format!("{name}-route");
    let terms = ServiceTerms::new(RINGS, route.when(When::After(Span::from_millis(20))));
    let _service = Service::in_thread(&name, terms).unwrap();
    let client = Client::polled(&name).unwrap();
    let from = clock::now();
    client.raise(&raise(3)).unwrap();
    assert_eq!(next_word(&seen), 3);
    assert!(clock::now() >= from + Span::from_millis(20));
}

#[test]
fn filters_drop_merge_and_pass_on_before_the_handler() {
    let name = name("filter");
    let (route, seen) = shows();
    let (route, thread) = holding(route);
    let route = route
        .through(|events| {
            while let Some(event) = events.take() {
                if event.words[0] % 2 == 1 {
                    events.discard();
                }
            }
        })
        .through(|events| {
            while let Some(event) = events.take() {
                if event.words[0] >= 10 {
                    events.merge();
                }
            }
        });
    let service = Service::in_thread(&name, ServiceTerms::new(RINGS, route)).unwrap();
    let client = Client::polled(&name).unwrap();
    let raiser = client.raiser();
    thread.while_held(&raiser, || {
        for number in [1, 2, 3, 4, 10, 5, 12] {
            raiser.post(&raise(number)).unwrap();
        }
    });
    let events: Vec<_> = (0..2)
        .map(|_| match next(&seen) {
            Seen::Event(event) => (event.words[0], event.merged),
            gone => panic!("{gone:?}"),
        })
        .collect();
    assert_eq!(events, [(2, 0), (12, 2)]);
    drop(client);
    // The counts are published before that.
    assert_eq!(next(&seen), Seen::Gone(Gone::Ended));
    let counts = service.counts();
    assert_eq!((counts.len(), counts[0].dropped), (4, 1));
    assert_eq!((counts[1].dropped, counts[3].merged), (3, 2));
    // No pending event is leaked: as many events fit as before.
    let mut client = Client::polled(&name).unwrap();
    for _ in 0..20 {
        for number in [2, 10, 12, 14] {
            client.raise(&raise(number)).unwrap();
        }
        assert_eq!(client.take(), Ok(None));
    }
}

#[test]
fn a_service_has_many_clients_and_a_client_many_services() {
    let names: Vec<_> = (0..3).map(|_| name("many")).collect();
    let services: Vec<_> = names
        .iter()
        .map(|name| {
            let terms = ServiceTerms::new(RINGS, Route::to(|_| {})).clients_max(2);
            Service::in_thread(name, terms).unwrap()
        })
        .collect();
    let mut clients: Vec<Vec<Client>> =
        (0..2).map(|_| names.iter().map(|name| Client::polled(name).unwrap()).collect()).collect();
    for name in &names {
        let full = Client::polled(name).unwrap_err();
        assert!(matches!(full, ChannelOpenError::Refused(ServiceRefusal::Full)), "{full}");
    }
    for (number, service) in services.iter().enumerate() {
        assert_eq!(service.raise_all(&raise(number as u64)), 2);
        let first = service.clients()[0];
        service.raise(first, &raise(100)).unwrap();
    }
    for (number, client) in clients.iter_mut().flat_map(|all| all.iter_mut().enumerate()) {
        assert_eq!(take(client).unwrap().words[0], number as u64);
    }
    for client in &mut clients[0] {
        assert_eq!(take(client).unwrap().words[0], 100);
    }
    assert!(clients[1].iter_mut().all(|client| client.take() == Ok(None)));
    // A client that leaves makes room for another.
    let left = clients[0].remove(0);
    drop(left);
    let give_up = a_minute().unwrap();
    while Client::polled(&names[0]).is_err() {
        assert!(clock::now() < give_up, "there is never room for another client");
        std::thread::yield_now();
    }
}

#[test]
fn a_client_gets_events_in_a_thread_of_its_own() {
    let name = name("thread");
    let service = Service::in_thread(&name, ServiceTerms::new(RINGS, Route::to(|_| {}))).unwrap();
    let (route, seen) = shows();
    let mut client = Client::in_thread(&name, route).unwrap();
    for number in 0..500 {
        assert_eq!(service.raise_all(&raise(number)), 1);
        assert_eq!(next_word(&seen), number);
    }
    assert_eq!(client.take(), Err(TakeError::Handled));
    assert!(client.counts()[0].invocations <= 500);
    drop(service);
    assert_eq!(next(&seen), Seen::Gone(Gone::Ended));
}

#[test]
fn a_client_gets_one_real_time_signal_for_many_events() {
    let name = name("signal");
    let service = Service::in_thread(&name, ServiceTerms::new(RINGS, Route::to(|_| {}))).unwrap();
    let number = channel::real_time_signals().start() + 7;
    let came = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(number, came.clone()).unwrap();
    let mut client = Client::signalled(&name, number, 5).unwrap();
    assert_eq!(client.take(), Ok(None));
    let raiser = service.raiser(service.clients()[0]).unwrap();
    for round in 1..=3 {
        (0..10).for_each(|number| assert_eq!(raiser.raise(&raise(number)), Ok(Posted::Stored)));
        let give_up = a_minute().unwrap();
        while !came.swap(false, Ordering::SeqCst) {
            assert!(clock::now() < give_up, "no signal came");
            std::thread::yield_now();
        }
        assert!((0..10).all(|number| client.take().unwrap().unwrap().words[0] == number));
        assert_eq!(client.take(), Ok(None));
        assert_eq!(raiser.system_calls(), round);
    }
    for wrong in [0, 9, number + 100] {
        let refused = Client::signalled(&name, wrong, 0).unwrap_err();
        assert!(
            matches!(refused, ChannelOpenError::Refused(ServiceRefusal::Signal)),
            "{wrong}: {refused}"
        );
    }
}

#[test]
fn a_handler_on_the_clients_behalf_drops_or_merges_events() {
    let name = name("behalf");
    let terms = ServiceTerms::new(RINGS, Route::to(|_| {})).on_behalf(|_, raise| match raise {
        _ if *raise == self::raise(1) => Verdict::Drop,
        _ if *raise == self::raise(2) => Verdict::Merge,
        _ => Verdict::Pass,
    });
    let service = Service::in_thread(&name, terms).unwrap();
    let mut client = Client::polled(&name).unwrap();
    assert_eq!(client.take(), Ok(None));
    let to = service.clients()[0];
    assert_eq!(service.raise(to, &raise(1)), Err(RaiseError::Dropped));
    assert_eq!(service.raise(to, &raise(2)), Ok(Posted::Stored));
    assert!(!client.wait(Some(clock::now() + Span::from_millis(5))), "notified of a merged event");
    assert_eq!(service.raise(to, &raise(3)), Ok(Posted::Stored));
    assert!(client.wait(a_minute()));
    assert_eq!(take(&mut client).unwrap().words[0], 2);
    assert_eq!(take(&mut client).unwrap().words[0], 3);
}

#[test]
fn a_fast_call_runs_in_the_calling_thread_and_says_what_follows() {
    let name = name("fast");
    let caller = std::thread::current().id();
    let terms = ServiceTerms::new(RINGS, Route::to(|_| {}))
        .fast(move |words| {
            assert_eq!(std::thread::current().id(), caller);
            let answer = FastAnswer::done(word(words[0] + 1));
            match words[0] {
                1 => answer.and_call(),
                2 => answer.and_events(),
                3 => answer.and_schedule(),
                4 => panic!("a fast handler panics"),
                _ => answer,
            }
        })
        .call(|words| word(words[0] + 100));
    let service = Service::in_thread(&name, terms).unwrap();
    let client = Client::polled(&name).unwrap();
    for (number, answer, blocked, events) in
        [(0, 1, false, false), (1, 101, true, false), (2, 3, false, true), (3, 4, false, false)]
    {
        let done = client.fast(&word(number)).unwrap();
        assert_eq!((done.words, done.blocked, done.events), (word(answer), blocked, events));
    }
    assert_eq!(service.fast_counts().unwrap().invocations, 4);
    assert_eq!(client.fast(&word(4)), Err(FastError::Panicked));
    // From now on, the service behaves as if the fast handler always had to block.
    assert_eq!(client.fast(&word(0)).unwrap().words, word(100));
    drop(service);
    let mut client = client;
    assert_eq!(take(&mut client), Err(TakeError::Gone(Gone::Ended)));
    assert_eq!(client.fast(&word(0)), Err(FastError::Gone(Gone::Ended)));
}

#[test]
fn recursion_and_run_away_of_a_fast_call_are_refused_and_counted() {
    let name = name("wild");
    let again: Arc<Mutex<Option<Arc<Client>>>> = Arc::default();
    let found = again.clone();
    let within = HandlerTerms { invocations_max: 3, span: Span::from_secs(3600), ..HANDLER_TERMS };
    let terms = ServiceTerms::new(RINGS, Route::to(|_| {})).fast_within(within, move |_| {
        let client = found.lock().unwrap().clone();
        let refused = client.is_some_and(|client| {
            matches!(client.fast(&word(0)), Err(FastError::Refused(Refused::Recursion(_))))
        });
        FastAnswer::done(word(refused.into()))
    });
    let service = Service::in_thread(&name, terms).unwrap();
    let client = Arc::new(Client::polled(&name).unwrap());
    assert_eq!(client.fast(&word(0)).unwrap().words, word(0));
    *again.lock().unwrap() = Some(client.clone());
    assert_eq!(client.fast(&word(0)).unwrap().words, word(1));
    assert_eq!(client.fast(&word(0)).unwrap().words, word(1));
    let refused = client.fast(&word(0));
    assert!(matches!(refused, Err(FastError::Refused(Refused::RunAway { .. }))), "{refused:?}");
    let counts = service.fast_counts().unwrap();
    assert_eq!((counts.invocations, counts.recursions, counts.run_aways), (3, 2, 1));
    *again.lock().unwrap() = None;
}

#[test]
fn a_call_by_name_blocks_until_the_service_replies() {
    let called = name("call");
    let terms = ServiceTerms::new(RINGS, Route::to(|_| {})).call(|words| {
        std::thread::sleep(std::time::Duration::from_millis(2));
        words.map(|word| word.checked_add(1).expect("a call that panics"))
    });
    let service = Service::in_thread(&called, terms).unwrap();
    assert_eq!(channel::call(&called, &[u64::MAX; 5], a_minute()), Err(CallError::NoAnswer));
    std::thread::scope(|threads| {
        for number in 0..4 {
            let called = &called;
            threads.spawn(move || {
                let answer = channel::call(called, &[number; 5], a_minute());
                assert_eq!(answer, Ok([number + 1; 5]));
            });
        }
    });
    assert_eq!(channel::call(&called, &[0; 5], Some(Instant::ZERO)), Err(CallError::Late));
    drop(service);
    assert!(matches!(channel::call(&called, &[0; 5], None), Err(CallError::Os(_))));
    let mute = name("mute");
    let terms = ServiceTerms::new(RINGS, Route::to(|_| {}));
    let _service = Service::in_thread(&mute, terms).unwrap();
    let refused = channel::call(&mute, &[0; 5], a_minute());
    assert_eq!(refused, Err(CallError::Refused(ServiceRefusal::NoCall)));
    assert!(matches!(channel::call("a/b", &[0; 5], None), Err(CallError::Name(_))));
}

#[test]
fn a_panic_in_a_handler_ends_its_service_and_the_clients_find_it_dead() {
    let name = name("panic");
    let route = Route::to(|_| panic!("a handler panics"));
    let service = Service::in_thread(&name, ServiceTerms::new(RINGS, route)).unwrap();
    let mut client = Client::polled(&name).unwrap();
    client.raise(&raise(1)).unwrap();
    assert_eq!(take(&mut client), Err(TakeError::Gone(Gone::Died)));
    drop(service);
    // The name is free again. A client's handler is treated alike.
    let (route, seen) = shows();
    let service = Service::in_thread(&name, ServiceTerms::new(RINGS, route)).unwrap();
    let client = Client::in_thread(&name, Route::to(|_| panic!("a handler panics"))).unwrap();
    service.raise_all(&raise(1));
    assert_eq!(next(&seen), Seen::Gone(Gone::Died));
    drop(client);
}

#[test]
fn a_handler_that_runs_away_is_held_and_its_raiser_finds_the_segment_full() {
    let name = name("away");
    let (route, seen) = shows();
    let terms = HandlerTerms { pending_max: 4, invocations_max: 2, span: Span::from_millis(200) };
    let forms = Forms { to_service: Form::Ring { slots: 2 }, ..RINGS };
    let service = Service::in_thread(&name, ServiceTerms::new(forms, route.terms(terms))).unwrap();
    let client = Client::polled(&name).unwrap();
    let from = clock::now();
    let mut stored = 0;
    while service.counts()[0].run_aways == 0 {
        stored += u64::from(client.raise(&raise(stored)) == Ok(Posted::Stored));
        assert!(clock::now() < from + Span::from_secs(60), "the handler never runs away");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    // The handler is held. 4 events wait at the dispatcher and 2 in the segment, and nothing more
    // fits.
    let posted: Vec<_> = (0..8).map(|_| client.raise(&raise(stored)).unwrap()).collect();
    if posted[7] == Posted::Lost {
        assert!(posted.iter().filter(|&&posted| posted == Posted::Stored).count() <= 6);
    }
    stored += posted.iter().filter(|&&posted| posted == Posted::Stored).count() as u64;
    let all: Vec<_> = (0..stored).map(|_| next_word(&seen)).collect();
    assert!(all.is_sorted() && all[0] == 0);
}

#[test]
fn invalid_names_forms_and_routes_are_refused() {
    let route = || Route::to(|_| {});
    for wrong in ["", ".hidden", "a/b", "a b", &"x".repeat(65)] {
        let refused = Service::in_thread(wrong, ServiceTerms::new(RINGS, route())).unwrap_err();
        assert!(matches!(refused, ChannelOpenError::Name(_)), "{wrong}: {refused}");
    }
    let taken = name("taken");
    let _service = Service::in_thread(&taken, ServiceTerms::new(RINGS, route())).unwrap();
    let twice = Service::in_thread(&taken, ServiceTerms::new(RINGS, route())).unwrap_err();
    let user = upcall_sys::process::effective_user();
    let expected = format!("the name `{taken}` is taken: this process of user {user} serves it");
    assert_eq!(twice.to_string(), expected);
    let file = name("file");
    std::fs::write(channel::services_folder().join(&file), "").unwrap();
    let blocked = Service::in_thread(&file, ServiceTerms::new(RINGS, route())).unwrap_err();
    std::fs::remove_file(channel::services_folder().join(&file)).unwrap();
    assert!(matches!(blocked, ChannelOpenError::Taken { owner: None, .. }), "{blocked}");
    let forms = Forms { to_service: Form::Ring { slots: 3 }, ..RINGS };
    let odd = Service::in_thread(&name("odd"), ServiceTerms::new(forms, route())).unwrap_err();
    assert!(matches!(odd, ChannelOpenError::Layout(_)), "{odd}");
    let long = (0..4).fold(route(), |route, _| route.through(|_| {}));
    let long = Service::in_thread(&name("long"), ServiceTerms::new(RINGS, long)).unwrap_err();
    assert!(matches!(long, ChannelOpenError::Handlers(_)), "{long}");
    let many = ServiceTerms::new(RINGS, route()).clients_max(1_000);
    let many = Service::in_thread(&name("crowd"), many).unwrap_err();
    assert!(matches!(many, ChannelOpenError::Handlers(_)), "{many}");
    let none = Client::polled(&name("none")).unwrap_err();
    assert!(matches!(none, ChannelOpenError::Os(_)), "{none}");
}
