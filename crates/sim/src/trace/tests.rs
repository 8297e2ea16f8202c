//! Records survive writing and reading, and the reader refuses a file that is no trace.

use super::fields::{Field, Kind, decode, encode};
use super::*;
use crate::vopr::scenario;
use crate::{SimSpec, Simulation};
use proptest::prelude::*;
use std::collections::BTreeMap;
use upcall_core::activity::ActivityId;
use upcall_core::activity::{ActivityParams, Backlog, Claim, GroupId, Terms, Window, WorkClass};
use upcall_core::admission::Share;
use upcall_core::discipline::DISCIPLINES;
use upcall_core::policy::ps::Group;
use upcall_core::record::JobRecord;
use upcall_core::scheduler::{Command, Input, Outcome};
use upcall_core::time::{Instant, Span};

const ID: ActivityId = ActivityId(3);

const fn at(ns: u64) -> Instant {
    Instant::from_nanos(ns)
}

/// Every input, with different values for all arguments.
fn inputs() -> Vec<Input> {
    let params = ActivityParams {
        period: Span::from_nanos(1001),
        deadline: Span::from_nanos(1002),
        offset: Span::from_nanos(1003),
        batch: 1004,
        quantum: 1005,
        pdu_cost: Span::from_nanos(1006),
    };
    let full = Terms {
        share: Share::from_ppm(1007),
        weight: Some(1008),
        group: Some(GroupId(1018)),
        window: Some(Window { misses: 1009, periods: 1010 }),
        work_conserving: true,
        delay_bound: Some(Span::from_nanos(1011)),
        class: WorkClass::Background,
        workahead_max: 1012,
        on_demand: true,
        wins_ties: true,
        backlog: Backlog::Latest,
    };
    let class = |class| Terms { class, ..Terms::default() };
    let create = |terms| Input::Create { id: ID, params, terms };
    let returned = |outcome| Input::Returned { pdus: 1019, outcome };
    vec![
        create(full),
        create(class(WorkClass::RealTime)),
        create(class(WorkClass::Interactive)),
        create(Terms { backlog: Backlog::Skip, ..Terms::default() }),
        Input::Run { id: ID, at: at(1013) },
        Input::Suspend { id: ID },
        Input::Close { id: ID },
        Input::Reweigh { id: ID, claim: Claim::Share(Share::WHOLE) },
        Input::Reweigh { id: ID, claim: Claim::Weight(1018) },
        Input::Arrived { id: ID, messages: 1014 },
        Input::Advance { id: ID, critical: at(1015) },
        Input::Message { id: ID, critical: at(1015), from: at(1010) },
        Input::Posted { id: ID, rank: u64::MAX - 1016 },
        Input::Taken { id: ID, events: 1016 },
        Input::EventServer { share: Share::from_ppm(1017) },
        Input::EventServer { share: None },
        Input::DomainShare { share: Share::from_ppm(1019) },
        Input::DomainShare { share: None },
        Input::GroupPart { group: GroupId(1021), part: Share::WHOLE },
        Input::SwitchCost { cost: Span::from_nanos(1020) },
        Input::PassedOver,
        Input::Interrupted { length: Span::from_nanos(1030) },
        Input::Idle,
        Input::Tick,
        Input::Boundary,
        returned(Outcome::Yielded),
        returned(Outcome::Done),
        returned(Outcome::Finished),
    ]
}

fn commands() -> Vec<Option<Command>> {
    let job = |completed| {
        Some(Command::JobDone(JobRecord {
            id: ID,
            job: 1,
            release: at(2),
            deadline: at(3),
            start: at(4),
            end: at(5),
            run: Span::from_nanos(6),
            pdus: 7,
            preemptions: 8,
            completed,
        }))
    };
    let upcall =
        |resumed| Some(Command::Upcall { id: ID, pdus_max: 9, resumed, check_at: Instant::FAR });
    vec![
        None,
        upcall(true),
        upcall(false),
        Some(Command::Proceed { check_at: at(10) }),
        Some(Command::Yield),
        job(true),
        job(false),
        Some(Command::Inactive { id: ID }),
        Some(Command::Closed { id: ID }),
    ]
}

fn crossings() -> Vec<Crossing> {
    let inputs = inputs().into_iter();
    let inputs =
        inputs.flat_map(|input| [true, false].map(|refused| Crossing::Input { input, refused }));
    let polled = commands().into_iter().map(Crossing::Command);
    let notices = commands().into_iter().map(Crossing::Notice);
    inputs.chain(polled).chain(notices).chain([Crossing::Lost { records: 11 }]).collect()
}

fn header() -> Header {
    let named = |cpu, name: &str, domain: &str| Named {
        cpu,
        id: ID,
        name: name.to_owned(),
        domain: domain.to_owned(),
    };
    Header {
        process: 0,
        discipline: DISCIPLINES[0],
        time_quantum: DISCIPLINES[0].time_quantum,
        groups: Vec::new(),
        clock: Clock::Monotonic,
        start: at(5),
        cpus: vec![(2, 8), (0, 4)],
        activities: vec![named(2, "audio", "calls"), named(0, "video", "calls")],
    }
}

fn written(header: &Header, records: impl IntoIterator<Item = (u32, Record)>) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), header).unwrap();
    for (cpu, record) in records {
        writer.record(cpu, &record).unwrap();
    }
    writer.finish().unwrap()
}

/// One of each crossing, alternating between two CPUs.
fn one_of_each() -> Vec<(u32, Record)> {
    let cpus = [2, 0].into_iter().cycle();
    let now = (100..).map(at);
    let records = now.zip(crossings()).map(|(now, crossing)| Record { now, crossing });
    cpus.zip(records).collect()
}

#[test]
fn numbers_of_kinds_and_fields_are_their_positions() {
    for (place, (kind, _)) in (1..).zip(Kind::ALL) {
        assert_eq!((kind.iid(), Kind::of_iid(place)), (place, Some(*kind)));
    }
    for (place, (field, _)) in (1..).zip(Field::ALL) {
        assert_eq!((field.iid(), Field::of_iid(place)), (place, Some(*field)));
    }
    assert_eq!((Kind::of_iid(0), Field::of_iid(u64::MAX)), (None, None));
}

#[test]
fn every_crossing_survives_encoding() {
    for crossing in crossings() {
        let (kind, values) = encode(&crossing);
        assert_eq!(decode(kind, &values), Ok(Some(crossing)));
    }
}

#[test]
fn every_crossing_survives_the_file() {
    let all = one_of_each();
    let trace = read(&written(&header(), all.clone())).unwrap();
    let (found, expected) = (&trace.header, header());
    assert_eq!(found.discipline.name, expected.discipline.name);
    assert_eq!((found.clock, found.start), (expected.clock, expected.start));
    assert_eq!(found.cpus, expected.cpus);
    assert_eq!(found.activities, expected.activities);
    for (&(cpu, _), records) in found.cpus.iter().zip(&trace.records) {
        let of_cpu = all.iter().filter(|(of, _)| *of == cpu).map(|(_, record)| *record);
        assert_eq!(*records, of_cpu.collect::<Vec<_>>());
    }
}

/// Two processes on one CPU, whose activities have the same numbers.
#[test]
fn processes_are_separated_in_any_order_of_packets() {
    let records = one_of_each();
    let mut whole = Vec::new();
    let mut writers = [1, 2].map(|process| {
        let mut header = Header { process, ..header() };
        header.activities[0].name = format!("audio of {process}");
        Writer::new(Vec::new(), &header).unwrap()
    });
    for (turn, (cpu, record)) in records.iter().enumerate() {
        for (writer, every) in writers.iter_mut().zip([2, 7]) {
            writer.record(*cpu, record).unwrap();
            // The last packets stay in the writer.
            if turn % every == 0 && turn + 1 < records.len() {
                whole.append(writer.out_mut());
            }
        }
    }
    let ends = writers.map(|writer| writer.finish().unwrap());
    assert!(!ends[1].is_empty());
    whole.extend(ends.concat());
    let traces = read_all(&whole).unwrap();
    assert_eq!(traces.iter().map(|trace| trace.header.process).collect::<Vec<_>>(), [1, 2]);
    let alone = read(&written(&header(), records)).unwrap();
    for trace in &traces {
        assert_eq!(trace.records, alone.records);
        assert_eq!((&trace.header.cpus, trace.header.activities.len()), (&vec![(2, 8), (0, 4)], 2));
        let name = &trace.header.activities[0].name;
        assert_eq!(*name, format!("audio of {}", trace.header.process));
    }
    let error = read(&whole).unwrap_err();
    assert_eq!(error.cause, Cause::Several { processes: 2 });
    assert!(error.to_string().ends_with("found a trace of 2 processes, expected one"));
    // The limit also applies to the sum, as for CPUs.
    let big = |process| {
        let cpus = vec![(7, CAPACITY_MAX / 2 + 1)];
        written(&Header { process, cpus, activities: Vec::new(), ..header() }, [])
    };
    let error = read_all(&[big(1), big(2)].concat()).unwrap_err().to_string();
    assert!(error.contains("capacity 131073 is out of range"), "{error}");
}

/// The header that `with_groups` would give.
fn grouped(groups: Vec<Group>) -> Header {
    let ps = upcall_core::discipline::by_name("ps").unwrap();
    Header { discipline: ps, time_quantum: ps.time_quantum, groups, ..header() }
}

#[test]
fn groups_survive_the_file_and_invalid_ones_are_refused() {
    let inside = |parent| Group { claim: Claim::Weight(2), parent: Some(GroupId(parent)) };
    let share = Group { claim: Claim::Share(Share::WHOLE), parent: None };
    let groups = vec![share, inside(0), inside(1)];
    let trace = read(&written(&grouped(groups.clone()), one_of_each())).unwrap();
    assert_eq!(trace.header.groups, groups);
    let refused = |header: &Header| read(&written(header, [])).unwrap_err().to_string();
    assert!(refused(&grouped(vec![share, inside(1)])).contains("group 1 is out of range"));
    let both = Group { parent: Some(GroupId(0)), ..share };
    assert!(refused(&grouped(vec![share, both])).contains("group 1 is out of range"));
    assert!(refused(&Header { groups, ..header() }).contains("group 0 is out of range"));
    // Each group takes memory for every activity.
    let mut many = grouped(vec![share; 2]);
    (many.cpus, many.activities) = (vec![(2, CAPACITY_MAX / 2)], Vec::new());
    assert!(refused(&many).contains("group 1 is out of range"));
}

#[test]
fn a_truncated_file_is_refused_or_shorter() {
    let whole = written(&header(), one_of_each());
    let (mut shorter, mut cut) = (0, 0);
    for length in 0..whole.len() {
        match read(&whole[..length]) {
            Ok(trace) => {
                assert!(trace.records.len() <= 2);
                shorter += 1;
            }
            Err(ReadError { cause: Cause::Truncated, offset }) => {
                assert!(offset < length);
                cut += 1;
            }
            // Before the first header there is nothing to read.
            Err(error) => assert_eq!(error.cause, Cause::NoTrace),
        }
    }
    assert!(shorter > 50 && cut > 1000, "{shorter} {cut}");
}

#[test]
fn an_error_names_its_offset_and_cause() {
    let good = written(&header(), []);
    let refused = |bytes: &[u8]| read(bytes).unwrap_err().to_string();
    assert_eq!(refused(b""), "byte 0: found no trace that Upcall wrote");
    assert!(refused(b"[[task]]").contains("no Perfetto trace"));
    assert!(refused(&[0x0a, 0xff, 0xff, 0xff, 0x7f]).contains("at most 65536"));
    assert!(refused(&[0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 1]).contains("at most 65536"));
    assert!(refused(&[0x0a, 2, 0x5a, 9]).starts_with("byte 0: failed to decode"));
    let twice = [&good[..], &good[..]].concat();
    assert!(refused(&twice).contains("the header of a CPU appears twice"));
    let mut other = header();
    other.cpus = vec![(7, CAPACITY_MAX + 1)];
    other.activities.clear();
    assert!(refused(&written(&other, [])).contains("capacity 262145 is out of range"));
    // The limit also applies to the sum: a few bytes must not make a replay take memory for
    // millions.
    other.cpus = vec![(7, CAPACITY_MAX), (8, 1)];
    assert!(refused(&written(&other, [])).contains("capacity 1 is out of range"));
    other.cpus = (0..1025).map(|cpu| (cpu, 1)).collect();
    assert!(refused(&written(&other, [])).contains("capacity 1 is out of range"));
}

/// The file of a run: one writer for each process, one after another.
fn file_of(spec: SimSpec, duration: Span) -> Vec<u8> {
    let headers = Header::all(&spec);
    let process = |header: &Header| (header.process, Writer::new(Vec::new(), header).unwrap());
    let mut writers: BTreeMap<_, _> = headers.iter().map(process).collect();
    let simulation = Simulation::new(spec).unwrap();
    simulation.run_traced(duration, &mut |_| {}, &mut |process, cpu, record| {
        // A CPU without activities has no process.
        if let Some(writer) = writers.get_mut(&process) {
            writer.record(cpu, record).unwrap();
        }
    });
    writers.into_values().flat_map(|writer| writer.finish().unwrap()).collect()
}

#[test]
fn a_simulation_replays_the_same_under_every_policy() {
    for discipline in DISCIPLINES {
        let (mut commands, mut processes) = (0, 0);
        // The last two have processes under PS.
        for seed in (0..15).chain([50, 75]) {
            let scenario = scenario(discipline, seed);
            let headers = Header::all(&scenario.spec);
            let traces = read_all(&file_of(scenario.spec, scenario.duration)).unwrap();
            let names = |header: &Header| header.activities.clone();
            let found: Vec<_> = traces.iter().map(|trace| names(&trace.header)).collect();
            assert_eq!(found, headers.iter().map(names).collect::<Vec<_>>());
            processes = processes.max(traces.len());
            let each = traces
                .iter()
                .flat_map(|trace| trace.replay().into_iter().zip(trace.records.clone()));
            for (replayed, records) in each {
                let done = replayed.outcome.clone().unwrap_or_else(|error| {
                    panic!("{} seed {seed} CPU {}: {error}", discipline.name, replayed.cpu)
                });
                let compared = done.inputs + done.commands + done.silences;
                assert_eq!((compared, done.lost), (records.len() as u64, 0));
                commands += done.commands;
            }
        }
        assert!(commands > 1_000, "{}: {commands}", discipline.name);
        assert!(processes > 1, "{}", discipline.name);
    }
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = read(&bytes);
    }

    /// Changed bytes give an error or a trace. A trace gives a replay or a divergence.
    #[test]
    fn changed_bytes_do_no_harm(
        changes in proptest::collection::vec((any::<u16>(), any::<u8>()), 1..4),
    ) {
        let mut spec = scenario(DISCIPLINES[usize::from(changes[0].1) % DISCIPLINES.len()], 1).spec;
        spec.activities.truncate(3);
        spec.faults.clear();
        let duration = spec.activities.iter().map(|activity| activity.params.period).max().unwrap();
        let mut bytes = file_of(spec, duration);
        for (place, value) in changes {
            let place = usize::from(place) % bytes.len();
            bytes[place] = value;
        }
        if let Ok(trace) = read(&bytes) {
            let _ = trace.replay();
        }
    }
}
