//! Compares several schedulers of one CPU, one for each domain, with a single scheduler that holds
//! all activities. Both make the same upcalls at the same moments (split-level-1991 §3.2).
//!
//! A domain that does not run does not learn the time. The running domain uses what the others
//! published when they ran last, or when an event was posted to them. The order is that of
//! `upcall_shm::user_area::Rank`; `Rank::preempts` defines preemption.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use chance::Chance;
use upcall_core::activity::{ActivityId, ActivityParams, Terms, Window, WorkClass};
use upcall_core::admission::Share;
use upcall_core::discipline::{DISCIPLINES, Discipline, DomainOrder, by_name};
use upcall_core::policy::Standing;
use upcall_core::scheduler::{Command, EVENTS_MAX, Input, Outcome, Scheduler};
use upcall_core::time::{Instant, Span};

#[path = "chance/mod.rs"]
#[allow(dead_code, reason = "each driver draws what it needs")]
mod chance;

/// A place in the order of all domains: key, event, and order of admission.
type Place = (u64, u64, u32);

/// Stands for the event of an activity without events.
const NONE: u64 = u64::MAX;

/// An activity of the set, its demand, and its domain.
#[derive(Clone, Copy, Debug)]
struct Member {
    params: ActivityParams,
    terms: Terms,
    domain: usize,
    /// PDUs ahead of their releases that are reported to it at the start.
    ahead: u32,
}

/// One upcall: its time, its activity, and its number of PDUs.
type Upcall = (Instant, u32, u32);

struct Domain {
    scheduler: Scheduler,
    /// The numbers of its own activities in the set.
    members: Vec<u32>,
}

/// The set, in as many schedulers as there are domains.
struct Machine<'a> {
    set: &'a [Member],
    domains: Vec<Domain>,
    now: Instant,
    upcalls: Vec<Upcall>,
    hand_offs: u32,
    last: Option<usize>,
    /// The events that come: the same sequence for machines that behave the same.
    chance: Chance,
    /// How many events wait for each activity.
    events: Vec<u32>,
    posted: u64,
    /// Whether the policy drops jobs.
    drops: bool,
}

impl<'a> Machine<'a> {
    fn new(set: &'a [Member], discipline: &Discipline, together: bool) -> Self {
        let domain_of = |member: &Member| if together { 0 } else { member.domain };
        let count = set.iter().map(domain_of).max().unwrap() + 1;
        let mut domains: Vec<_> = (0..count)
            .map(|_| Domain { scheduler: Scheduler::new(16, discipline), members: Vec::new() })
            .collect();
        for domain in &mut domains {
            let share = Some(Share::WHOLE);
            domain.scheduler.handle(Instant::ZERO, Input::DomainShare { share }).unwrap();
        }
        for (member, number) in set.iter().zip(0..) {
            let domain = &mut domains[domain_of(member)];
            let id = ActivityId(u32::try_from(domain.members.len()).unwrap());
            domain.members.push(number);
            let (params, terms) = (member.params, member.terms);
            let mut handle = |input| domain.scheduler.handle(Instant::ZERO, input).unwrap();
            handle(Input::Create { id, params, terms });
            handle(Input::Run { id, at: Instant::ZERO });
            handle(Input::Arrived { id, messages: member.ahead });
        }
        let now = Instant::ZERO;
        let (chance, events) = (Chance(set.len() as u64 + 7), vec![0; set.len()]);
        let (upcalls, drops) = (Vec::new(), discipline.name == "dwcs");
        let (hand_offs, last, posted) = (0, None, 0);
        Machine { set, domains, now, upcalls, hand_offs, last, chance, events, posted, drops }
    }

    /// The domain of an activity, and the number of the activity in that domain.
    fn place_of(&self, activity: u32) -> (usize, ActivityId) {
        let mut all = self.domains.iter().enumerate();
        all.find_map(|(domain, of)| {
            let at = of.members.iter().position(|&member| member == activity)?;
            Some((domain, ActivityId(u32::try_from(at).unwrap())))
        })
        .unwrap()
    }

    /// Posts an event to some activity, or none. No two events have the same rank, because each
    /// scheduler knows only the order in which its own were posted.
    fn post(&mut self) {
        let activity = u32::try_from(self.chance.below(self.set.len() as u64 * 2)).unwrap();
        let rank = self.chance.below(50) * 1_000_000 + self.posted;
        match self.events.get_mut(activity as usize) {
            Some(waiting) if *waiting < EVENTS_MAX => *waiting += 1,
            _ => return,
        }
        self.posted += 1;
        let (domain, id) = self.place_of(activity);
        self.handle(domain, Input::Posted { id, rank });
    }

    /// The upcalled activity takes some of its events.
    fn take(&mut self, activity: u32) {
        let (domain, id) = self.place_of(activity);
        let waiting = &mut self.events[activity as usize];
        let events = u32::try_from(self.chance.below(3)).unwrap().min(*waiting);
        *waiting -= events;
        self.handle(domain, Input::Taken { id, events });
    }

    /// The best place that a domain's pages show at `now`. The pages show the activities that were
    /// ready when the domain ran, and the releases that have come since.
    fn best(&self, domain: &Domain) -> Option<Place> {
        let shown = domain.scheduler.best();
        let ready = shown.map(|standing| place(domain, standing));
        let came = upcoming(domain).filter(|(at, _)| *at <= self.now).map(|(_, place)| place);
        ready.into_iter().chain(came).min()
    }

    fn best_of_all(&self) -> Option<(Place, usize)> {
        let bests = self.domains.iter().enumerate();
        bests.filter_map(|(number, domain)| Some((self.best(domain)?, number))).min()
    }

    /// Runs until `until`; returns every upcall.
    fn run(mut self, until: Instant) -> (Vec<Upcall>, u32) {
        while self.now < until {
            match self.best_of_all() {
                Some((place, number)) => self.turn(number, place),
                None => {
                    let all = self.domains.iter().flat_map(upcoming);
                    self.now = all.map(|(at, _)| at).min().unwrap();
                }
            }
        }
        (self.upcalls, self.hand_offs)
    }

    /// A domain has the turn, and upcalls the activity for which it got the turn.
    fn turn(&mut self, number: usize, expected: Place) {
        self.hand_offs += u32::from(self.last.replace(number) != Some(number));
        let now = self.now;
        self.handle(number, Input::Tick);
        let found = self.best(&self.domains[number]);
        if found != Some(expected) {
            // DWCS: the job was lost, which the domain did not know.
            assert!(self.drops && found.is_none_or(|found| found > expected), "{found:?}");
            return;
        }
        let domain = &mut self.domains[number];
        let command = std::iter::from_fn(|| domain.scheduler.poll_command(now))
            .find(|command| matches!(command, Command::Upcall { .. }));
        let Some(Command::Upcall { id, pdus_max, check_at, .. }) = command else {
            panic!("domain {number} has nothing to do at {now:?}, {expected:?} was shown");
        };
        let activity = domain.members[id.0 as usize];
        assert_eq!(activity, expected.2, "at {now:?}");
        self.upcalls.push((now, activity, pdus_max));
        self.upcall(number, activity, pdus_max, check_at);
    }

    fn upcall(&mut self, number: usize, activity: u32, pdus_max: u32, own_check_at: Instant) {
        let params = self.set[activity as usize].params;
        let mut check_at = own_check_at.min(self.preempt_at(number));
        let mut pdus = 0;
        self.take(activity);
        loop {
            let quantum = params.quantum.min(pdus_max - pdus);
            self.now += params.pdu_cost * quantum;
            pdus += quantum;
            self.post();
            if pdus == pdus_max {
                return self.handle(number, Input::Returned { pdus, outcome: Outcome::Done });
            }
            if self.now < check_at {
                continue;
            }
            self.handle(number, Input::Boundary);
            let command = self.domains[number].scheduler.poll_command(self.now);
            let outranked = self.is_preempted(number);
            match command {
                Some(Command::Proceed { check_at: next }) if !outranked => {
                    check_at = next.min(self.preempt_at(number));
                }
                Some(Command::Proceed { .. } | Command::Yield) => {
                    return self
                        .handle(number, Input::Returned { pdus, outcome: Outcome::Yielded });
                }
                other => panic!("a boundary was answered by {other:?}"),
            }
        }
    }

    /// Whether another domain shows an activity that preempts the running one.
    fn is_preempted(&self, running: usize) -> bool {
        let own = self.running_place(running);
        let mut others = self.domains.iter().enumerate().filter(|(number, _)| *number != running);
        others.any(|(_, domain)| {
            let ready = domain.scheduler.best().map(|best| {
                let (key, event, _) = place(domain, best);
                (key, event, domain.members[best.first.0 as usize])
            });
            let came = upcoming(domain).filter(|(at, _)| *at <= self.now).map(|(_, place)| place);
            ready.into_iter().chain(came).any(|place| preempts(place, own))
        })
    }

    fn running_place(&self, number: usize) -> Place {
        let domain = &self.domains[number];
        place(domain, domain.scheduler.running_standing(self.now).unwrap())
    }

    /// The earliest moment at which another domain may outrank the running activity. If the running
    /// activity works ahead, it may itself become critical at that moment, so its handler asks
    /// then, too.
    fn preempt_at(&self, running: usize) -> Instant {
        let own = self.running_place(running);
        let others = self.domains.iter().enumerate().filter(|(number, _)| *number != running);
        let better = others
            .flat_map(|(_, domain)| upcoming(domain))
            .filter(|(at, place)| *at > self.now && preempts(*place, own));
        better.map(|(at, _)| at).min().unwrap_or(Instant::FAR)
    }

    fn handle(&mut self, number: usize, input: Input) {
        let scheduler = &mut self.domains[number].scheduler;
        scheduler.handle(self.now, input).unwrap();
        if !matches!(input, Input::Boundary) {
            while scheduler.poll_notice().is_some() {}
        }
    }
}

/// The coming places of a domain's activities, and when they begin.
fn upcoming(domain: &Domain) -> impl Iterator<Item = (Instant, Place)> {
    let each = domain.members.iter().zip(0..).filter_map(|(&number, id)| {
        let (at, standing) = domain.scheduler.upcoming(ActivityId(id))?;
        debug_assert_eq!(domain.members[standing.id.0 as usize], number);
        Some((at, place(domain, standing)))
    });
    each.collect::<Vec<_>>().into_iter()
}

fn place(domain: &Domain, standing: Standing) -> Place {
    (standing.key, standing.event.unwrap_or(NONE), domain.members[standing.id.0 as usize])
}

/// Events count when a scheduler picks; an activity that runs with an event keeps its place among
/// equals.
fn preempts((key, _, order): Place, (own_key, event, own_order): Place) -> bool {
    key < own_key || (key == own_key && event == NONE && order < own_order)
}

fn random_set(seed: u64) -> Vec<Member> {
    let mut chance = Chance(seed);
    let domains = 1 + usize::try_from(chance.below(4)).unwrap();
    let classes =
        [WorkClass::RealTime, WorkClass::RealTime, WorkClass::Interactive, WorkClass::Background];
    (0..1 + chance.below(8))
        .map(|_| {
            let period = chance.one_of(&[10, 12, 15, 20, 30, 60, 90]);
            let batch = 1 + u32::try_from(chance.below(5)).unwrap();
            let quantum = 1 + u32::try_from(chance.below(u64::from(batch))).unwrap();
            let cost = Span::from_nanos(1 + chance.below(2));
            let params = ActivityParams::new(Span::from_nanos(period), cost)
                .batch(batch)
                .quantum(quantum)
                .offset(Span::from_nanos(chance.below(period)));
            let class = chance.one_of(&classes);
            let wins_ties = chance.below(3) > 0;
            let workahead_max = u32::try_from(chance.below(4)).unwrap();
            let periods = 1 + u32::try_from(chance.below(4)).unwrap();
            let misses = u32::try_from(chance.below(u64::from(periods))).unwrap();
            let window = Some(Window { misses, periods });
            Member {
                params,
                terms: Terms { class, workahead_max, wins_ties, window, ..Terms::default() },
                domain: usize::try_from(chance.below(domains as u64)).unwrap(),
                ahead: u32::try_from(chance.below(6)).unwrap(),
            }
        })
        .collect()
}

#[test]
fn domains_together_make_the_upcalls_of_one_scheduler() {
    for name in ["rmdp", "rm", "dws", "dwcs"] {
        let discipline = by_name(name).unwrap();
        let (mut upcalls, mut hand_offs) = (0, 0);
        for seed in 0..500 {
            let set = random_set(seed);
            let until = Instant::from_nanos(1_000);
            let (mut one, _) = Machine::new(&set, discipline, true).run(until);
            let (mut split, turns) = Machine::new(&set, discipline, false).run(until);
            if name == "dwcs" {
                // A handler may yield to a job that then turns out to be lost. One scheduler knows
                // earlier which jobs are lost.
                [&mut one, &mut split].into_iter().for_each(join_resumed);
            }
            assert_eq!(split, one, "{name}, seed {seed}: {set:?}");
            upcalls += split.len();
            hand_offs += turns;
        }
        println!("{name}: {upcalls} upcalls, {hand_offs} of them by hand-off");
        assert!(upcalls > 12_000 && hand_offs > 6_000);
    }
}

/// Makes one upcall of those that continue a job although no other upcall came between.
fn join_resumed(upcalls: &mut Vec<Upcall>) {
    upcalls.dedup_by(|next, first| next.1 == first.1 && next.2 < first.2);
}

#[test]
fn policies_whose_ranks_are_local_report_it() {
    let shows = |discipline: &Discipline| {
        let mut scheduler = Scheduler::new(1, discipline);
        let params = ActivityParams::new(Span::from_nanos(10), Span::from_nanos(1));
        let id = ActivityId(0);
        scheduler
            .handle(Instant::ZERO, Input::Create { id, params, terms: Terms::default() })
            .unwrap();
        scheduler.handle(Instant::ZERO, Input::Run { id, at: Instant::ZERO }).unwrap();
        (scheduler.best().is_some(), scheduler.upcoming(id).is_some())
    };
    let showing: Vec<_> = DISCIPLINES.iter().map(|d| (d.name, shows(d))).collect();
    for (discipline, (_, shown)) in DISCIPLINES.iter().zip(&showing) {
        let across = discipline.domain_order() == DomainOrder::Ranks;
        assert_eq!(*shown, (across, across), "{}", discipline.name);
    }
    let (yes, no) = ((true, true), (false, false));
    assert_eq!(showing, [("rmdp", yes), ("rm", yes), ("dws", yes), ("ps", no), ("dwcs", yes)]);
}
