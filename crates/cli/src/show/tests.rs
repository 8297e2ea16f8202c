//! The sentences of a comparison match its figures, and docs/screens.md explains each label.

use comfy_table::Table;

use super::{compare, comparison, plan, run};
use crate::output::{
    Activity, Background, Cost, Cpu, Dropped, Machine, Offence, PacketQuota, Percentiles, Plan,
    PlannedActivity, Platform, Range, Refusal, Run, Stream, Switches, Test,
};

const PAGE: &str = include_str!("../../../../docs/screens.md");

/// Fails unless the page has each label between backquotes.
#[track_caller]
pub(crate) fn assert_explained(labels: &[String]) {
    for label in labels.iter().filter(|label| !label.is_empty()) {
        assert!(PAGE.contains(&format!("`{label}`")), "docs/screens.md has no `{label}`");
    }
}

/// The titles of a table.
pub(crate) fn header(table: &Table) -> Vec<String> {
    let row = table.header().expect("a table has titles");
    row.cell_iter().map(comfy_table::Cell::content).collect()
}

/// The text before the first number or colon of each line outside tables. Names of this test's
/// activities become NAME.
fn labels(text: &str, tables: &[&Table]) -> Vec<String> {
    let rows: Vec<String> = tables.iter().map(ToString::to_string).collect();
    let is_row = |line: &str| rows.iter().any(|table| table.lines().any(|row| row == line));
    let label = |line: &str| {
        let line = ["video", "guest", "hog"].iter().fold(line.to_owned(), |line, name| {
            let words = line.split(' ').map(|word| match word.strip_prefix(name) {
                Some(rest) => format!("NAME{rest}"),
                None => word.to_owned(),
            });
            words.collect::<Vec<_>>().join(" ")
        });
        let end = line.find(|c: char| c == ':' || c.is_ascii_digit()).unwrap_or(line.len());
        line[..end].trim().to_owned()
    };
    text.lines().filter(|line| !line.is_empty() && !is_row(line)).map(label).collect()
}

fn activity(name: &str, misses: u64, slack_ns: i64) -> Activity {
    Activity {
        name: name.to_owned(),
        domain: "main".to_owned(),
        cpu: 1,
        jobs: 100,
        completed: 99,
        misses,
        response_ns: Percentiles { p50: 1_000_000, p99: 2_000_000, max: 7_540_000 },
        slack_ns_min: Some(slack_ns),
        preemptions: 3,
        pdus: 100,
        period_ns: 20_000_000,
        deadline_ns: 20_000_000,
        response_ns_max: Some(6_000_000),
        responses_above_max: Some(2),
        skipped: 0,
        overruns: 1,
        quantum_overruns: 4,
        pdu_cost_ns: Cost { declared: 1_000_000, measured: Some(2_000_000), max: 3_000_000 },
        wakeup_latency_ns: Percentiles::default(),
        faulted: false,
        lag_ns: None,
        promise: crate::output::Promise::Deadlines,
        window: None,
        window_violations: None,
    }
}

fn stream(name: &str, lost: u64, late: u64) -> Stream {
    Stream {
        name: name.to_owned(),
        offered: 1000,
        received: 1000 - lost,
        processed: 1000 - lost,
        dropped: Dropped { interface: 0, queue: 0, socket: lost },
        throughput_bps: 40_000,
        direction: "receive",
        unread: 0,
        late: Some(late),
        delay_ns_max: Some(25_000_000),
        errors: 0,
        work: None,
    }
}

/// An outcome of `video` alone, with these misses, losses and late packets.
fn outcome(mode: &'static str, [misses, lost, late]: [u64; 3], kernel: u64) -> Run {
    let slack_ns = if misses > 0 { -3_000_000 } else { 14_000_000 };
    let clean = [misses, lost, late] == [0, 0, 0];
    Run {
        mode,
        policy: "rmdp",
        duration_ns: 10_000_000_000,
        activities: vec![activity("video", misses, slack_ns)],
        streams: vec![stream("video", lost, late)],
        background: vec![Background {
            name: "hog".into(),
            cpu_ns: 2_700_000_000,
            lifetime_ns: 10_800_000_000,
        }],
        switches: Switches { activity: 10, domain: 5, kernel },
        platform: Platform::Machine(Box::new(machine())),
        seed: None,
        promised: mode == "upcall",
        kept: clean,
        broken: if clean { Vec::new() } else { vec![format!("video: {misses} missed")] },
        refusals: Vec::new(),
        interrupted: false,
    }
}

fn machine() -> Machine {
    Machine {
        cpu_model: String::new(),
        kernel: String::new(),
        cpus_online: 2,
        cpus: vec![1],
        real_time: true,
        memory_locked: true,
        switch_cost_ns: 121,
        wakeup_latency_ns: Some(Percentiles { p50: 1, p99: 2, max: 3 }),
        steal_ns: 40_000_000,
        date: String::new(),
        notices: Vec::new(),
        offences: Vec::new(),
    }
}

fn refusal(optional: bool) -> Refusal {
    let hint = Some("a cost of 2 ms would fit".to_owned());
    Refusal { name: "guest".into(), reason: "no room".into(), hint, optional }
}

/// The line below the table that begins with `mode`.
fn sentence(runs: &[Run], mode: &str) -> String {
    let text = comparison(runs);
    let (_, behind) = text.split_once("\n\n").expect("sentences behind the table");
    let line = behind.lines().find(|line| line.starts_with(mode));
    line.unwrap_or_else(|| panic!("nothing of {mode}: {text}")).to_owned()
}

#[test]
fn a_better_mode_is_named_with_its_figures() {
    let runs = [outcome("upcall", [0, 0, 0], 380), outcome("fifo", [3, 20, 7], 1326)];
    assert_eq!(
        sentence(&runs, "upcall"),
        "upcall ran: 0 of 100 deadlines missed, 0 of 1000 packets lost, 0 late: every promise kept"
    );
    assert_eq!(
        sentence(&runs, "fifo"),
        "fifo ran: 3 of 100 deadlines missed, 20 of 1000 packets lost, 7 late: worse than upcall"
    );
    assert_eq!(sentence(&runs, "kernel"), "kernel switches: upcall 380, fifo 1326 (more)");
    let closest = "closest to its deadline, or latest: upcall video 14 ms before, \
                   fifo video 3 ms after";
    assert_eq!(sentence(&runs, "closest"), closest);
}

#[test]
fn no_mode_is_called_better_without_figures() {
    for (own, other, word) in [
        ([0, 0, 0], [0, 0, 0], "as good as"),
        ([2, 5, 1], [2, 5, 1], "as good as"),
        ([2, 5, 1], [0, 0, 0], "better than"),
        ([2, 5, 1], [2, 5, 0], "better than"),
        ([2, 5, 1], [3, 4, 1], "in part better and in part worse than"),
        ([2, 5, 1], [2, 5, 2], "worse than"),
    ] {
        let runs = [outcome("upcall", own, 900), outcome("fifo", other, 800)];
        let said = sentence(&runs, "fifo");
        assert!(said.ends_with(&format!(": {word} upcall")), "{own:?} {other:?}: {said}");
        let kept = if own == [0, 0, 0] { "every promise kept" } else { "promises BROKEN" };
        assert!(sentence(&runs, "upcall").ends_with(kept), "{own:?}");
        assert!(sentence(&runs, "kernel").ends_with("fifo 800 (fewer)"));
    }
    let equal = [outcome("upcall", [0, 0, 0], 9), outcome("fifo", [0, 0, 0], 9)];
    assert!(sentence(&equal, "kernel").ends_with("fifo 9 (as many)"));
}

#[test]
fn the_comparison_shows_longest_delay_and_slack() {
    let mut threads = outcome("threads", [0, 0, 0], 10);
    threads.streams[0].delay_ns_max = Some(404_000_000);
    let mut unknown = outcome("fifo", [0, 0, 0], 10);
    unknown.streams[0].delay_ns_max = None;
    let text = comparison(&[outcome("upcall", [0, 0, 0], 10), threads, unknown]);
    let row = text.lines().find_map(|line| line.trim_start().strip_prefix("longest delay"));
    let cells = row.expect("a row").split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(cells, "25 ms 404 ms -");
}

/// What one mode refused counts in no sum, and so affects no comparison.
#[test]
fn refused_activities_are_named_and_not_compared() {
    let mut threads = outcome("threads", [0, 0, 0], 10);
    threads.activities.push(activity("guest", 77, -1));
    threads.streams.push(stream("guest", 500, 9));
    let runs = [Run { refusals: vec![refusal(true)], ..outcome("upcall", [0, 0, 0], 10) }, threads];
    let text = comparison(&runs);
    assert!(text.contains("upcall refused guest: no room\n  a cost of 2 ms would fit\n"), "{text}");
    let said = sentence(&runs, "threads took");
    assert!(said.starts_with("threads took guest too; the others: 0 of 100 deadlines"), "{said}");
    assert!(said.ends_with("as good as upcall"), "{said}");
    let row = text.lines().find(|line| line.starts_with("guest")).expect("a row of the guest");
    assert!(row.contains("refused") && row.contains("77 of 100"), "{row}");
}

#[test]
fn a_response_above_its_bound_is_reported_and_counted() {
    let text = run(&outcome("upcall", [0, 0, 0], 10));
    assert!(text.contains("responses: 97 of 99 jobs within the bound\n"), "{text}");
    assert!(text.contains("above: video 2 of 99 jobs, 7.54 ms at most, bound 6 ms\n"), "{text}");
    assert!(text.contains("4 quanta were longer than declared"), "{text}");
    assert!(text.contains("the host took 40 ms"), "{text}");
    assert!(text.contains("promised: every job ends by its deadline; no packet lost"), "{text}");
    assert!(text.contains("0 late: every promise kept\n"), "{text}");
}

#[test]
fn a_mode_without_admission_promises_nothing_and_breaks_nothing() {
    for (faults, says) in [([0, 0, 0], "0 late: nothing broken\n"), ([1, 0, 0], "not kept: video")]
    {
        let text = run(&outcome("threads", faults, 10));
        assert!(text.contains("promised: nothing, mode threads has no admission"), "{text}");
        assert!(text.contains(says), "{text}");
        assert!(!text.contains("every promise kept") && !text.contains("BROKEN"), "{text}");
    }
    let text = run(&outcome("upcall", [1, 0, 0], 10));
    assert!(text.contains("BROKEN video: 1 missed\n"), "{text}");
    assert!(!text.contains("every promise kept"), "{text}");
    let soft = Run { promised: false, ..outcome("upcall", [0, 0, 0], 10) };
    assert!(run(&soft).contains("promised: nothing with --soft"), "{}", run(&soft));
}

#[test]
fn without_the_real_time_class_the_run_and_the_comparison_say_so() {
    let ordinary = Machine { real_time: false, ..machine() };
    let platform = Platform::Machine(Box::new(ordinary));
    let late = Run { platform, promised: false, ..outcome("upcall", [9, 0, 0], 10) };
    let line = "promised: nothing, no right to the real-time class; judged anyway:\n";
    let text = run(&late);
    assert!(text.contains(line) && text.contains("\nnot kept: video: 9 missed\n"), "{text}");
    assert!(!text.contains("BROKEN") && !text.contains("promise kept"), "{text}");
    let said = comparison(&[late, outcome("fifo", [0, 0, 0], 10)]);
    let below = "  without the real-time class other programs delay handlers: nothing is promised";
    assert!(said.contains(&format!("0 late: not kept\n{below}\n")), "{said}");
    assert!(said.contains("better than upcall") && !said.contains("BROKEN"), "{said}");
    assert!(!run(&outcome("upcall", [9, 0, 0], 10)).contains(line));
    assert!(!run(&outcome("threads", [9, 0, 0], 10)).contains(line));
}

/// A background load lives longer than the run: from before the first release until the drain ends.
#[test]
fn the_share_of_the_background_is_of_its_own_lifetime() {
    let text = run(&outcome("upcall", [0, 0, 0], 10));
    assert!(text.contains("background hog: 2700 ms of CPU time (25 % of a CPU)\n"), "{text}");
    let compared = comparison(&[outcome("upcall", [0; 3], 10), outcome("fifo", [0; 3], 10)]);
    let row = compared.lines().find(|line| line.contains("background's CPU share"));
    assert!(row.is_some_and(|row| row.matches("25 %").count() == 2), "{compared}");
}

/// If other threads preempt a handler, the clock of mode upcall counts their time too.
#[test]
fn a_higher_pdu_cost_is_reported_only_where_cpu_time_is_measured() {
    let note = "NOTE video: a PDU costs 2 ms, more than the 1 ms that was admitted\n";
    for mode in ["upcall", "threads", "fifo"] {
        assert!(run(&outcome(mode, [0, 0, 0], 10)).contains(note), "{mode}");
    }
    let platform = Platform::Machine(Box::new(Machine { real_time: false, ..machine() }));
    let ordinary = Run { platform, promised: false, ..outcome("upcall", [0, 0, 0], 10) };
    assert!(!run(&ordinary).contains("NOTE"), "{}", run(&ordinary));
}

/// In the ordinary class the clock counts the time of other programs too.
#[test]
fn a_run_whose_executor_lost_its_class_says_so_and_accuses_no_activity_of_its_cost() {
    let line = "this process kept CPU 1 for 1.07 s: demoted".to_owned();
    let offence = |cpu| Offence { cpu, domain: None, lost_class: true, line: line.clone() };
    let of = |cpu| {
        let machine = Machine { offences: vec![offence(cpu)], ..machine() };
        Run { platform: Platform::Machine(Box::new(machine)), ..outcome("upcall", [0, 0, 0], 10) }
    };
    let lowered = of(0).activities[0].cpu;
    let (demoted, other) = (of(lowered), of(lowered + 1));
    let said = "NOTE this process kept CPU 1 for 1.07 s: demoted\n  \
                From then on other programs ran among the handlers, and measured times count them.\n";
    assert!(run(&demoted).contains(said), "{}", run(&demoted));
    assert!(!run(&demoted).contains("NOTE video: a PDU costs"), "{}", run(&demoted));
    assert!(run(&other).contains("NOTE video: a PDU costs"), "{}", run(&other));
}

#[test]
fn overruns_and_skipped_jobs_are_told_by_name() {
    let mut late = outcome("upcall", [0, 0, 0], 10);
    let audio = Activity { overruns: 0, quantum_overruns: 0, ..activity("audio", 0, 1) };
    let video = Activity { overruns: 3, quantum_overruns: 7, ..activity("video", 0, 1) };
    late.activities = vec![audio, Activity { skipped: 2, ..video }];
    let text = run(&late);
    let line = "  video: 3 releases, 7 quanta\n";
    assert!(text.contains(&format!("longer than declared\n{line}skipped: 2 jobs")), "{text}");
    assert!(text.contains("were dropped before they began (video 2)\n"), "{text}");
}

#[test]
fn the_lags_of_all_and_of_each_activity_are_told_where_there_are_any() {
    let mut shared = outcome("upcall", [0, 0, 0], 10);
    assert!(!run(&shared).contains("lag"), "{}", run(&shared));
    let lagging =
        |name, min, max| Activity { lag_ns: Some(Range { min, max }), ..activity(name, 0, 1) };
    shared.activities =
        vec![lagging("audio", -200_000, 500_000), lagging("video", -450_000, 100_000)];
    let line = "lag: -450 us to +500 us (audio -200 us to +500 us, video -450 us to +100 us)\n";
    assert!(run(&shared).contains(line), "{}", run(&shared));
    assert_explained(&["lag".to_owned()]);
}

/// A fault has the words of the line above it, which has the sums.
#[test]
fn stream_faults_use_the_words_of_the_outcome() {
    let mut faulty = outcome("upcall", [0, 2, 3], 10);
    faulty.broken = crate::outcome::broken_promises(&faulty.activities, &faulty.streams);
    let end = "0 of 100 deadlines missed, 2 of 1000 packets lost, 3 late\n\
               BROKEN video: 2 of 1000 packets lost\nBROKEN video: 3 packets late\n";
    assert!(run(&faulty).ends_with(end), "{}", run(&faulty));
}

/// The core counts a turn when its first handler begins, even with one domain.
#[test]
fn turns_are_shown_only_with_several_domains() {
    let line = |domains: &[&str], turns| {
        let mut told = outcome("sim", [0, 0, 0], 0);
        told.switches.domain = turns;
        told.activities = domains
            .iter()
            .map(|&domain| Activity { domain: domain.to_owned(), ..activity("video", 0, 1) })
            .collect();
        let text = run(&told);
        text.lines().find(|line| line.starts_with("switches: ")).map(str::to_owned)
    };
    let said = |text: &str| Some(format!("switches: 10 between activities, {text}0 by the kernel"));
    assert_eq!(line(&["main", "main"], 5), said(""));
    assert_eq!(line(&["main", "calls"], 5), said("5 turns passed between domains, "));
    assert_eq!(line(&["main", "calls"], 1), said("1 turn passed between domains, "));
}

/// A stream's row has what it received: processed, unread, or dropped by the stream.
#[test]
fn unread_packets_have_a_column() {
    let mut told = outcome("sim", [0, 0, 0], 0);
    told.streams[0] = Stream { received: 901, processed: 897, unread: 4, ..stream("video", 0, 0) };
    let rows = run::streams(&told);
    let column = header(&rows).iter().position(|title| title == "unread").expect("a column");
    let row = rows.row_iter().next().expect("a row");
    let cells: Vec<String> = row.cell_iter().map(comfy_table::Cell::content).collect();
    assert_eq!(cells[column - 2..=column], ["901", "897", "4"]);
}

#[test]
fn missing_measurements_are_no_figures() {
    let mut unmeasured = machine();
    (unmeasured.wakeup_latency_ns, unmeasured.steal_ns) = (None, 0);
    let platform = Platform::Machine(Box::new(unmeasured));
    let text = run(&Run { platform, ..outcome("fifo", [0, 0, 0], 10) });
    assert!(text.contains("wake-up: not measured\n"), "{text}");
    assert!(!text.contains(" late at p50"), "{text}");
}

fn test(name: &'static str, passed: bool, deciding: bool) -> Test {
    Test { name, cpu: 1, passed, value: Some(0.9), bound: 0.78, deciding }
}

fn planned(tests: Vec<Test>, refusals: Vec<Refusal>) -> Plan {
    let activity = PlannedActivity {
        name: "video".into(),
        domain: "main".into(),
        cpu: Some(1),
        period_ns: 20_000_000,
        deadline_ns: 20_000_000,
        batch: 1,
        quantum: 1,
        pdu_cost_ns: 1_000_000,
        compute_ns: 1_000_000,
        response_ns_max: Some(6_000_000),
        buffer_bytes: 200,
        bandwidth_bps: 40_000,
        cost_measured: true,
        buffers: 2,
        delay_ns_max: None,
        group: None,
        same_cpu_as: None,
        receive: Some("udp://127.0.0.1:5004".into()),
        send: None,
        packet_quota: None,
    };
    Plan {
        admitted: refusals.iter().all(|refusal| refusal.optional),
        policy: "rmdp",
        cpus: vec![Cpu { cpu: 1, utilization: 0.7, limit: 0.9 }],
        activities: vec![activity],
        tests,
        refusals,
        switch_cost_ns: 121,
        wakeup_latency_ns: 0,
    }
}

/// A sufficient test that does not hold refuses nothing.
#[test]
fn only_a_deciding_test_is_shown_as_failed() {
    let bounds = || vec![test("liu-layland", true, false), test("rmdp-bound", false, false)];
    let admitted = [bounds(), vec![test("response-time", true, true)]].concat();
    let text = plan(&planned(admitted, Vec::new()));
    assert!(text.contains("\nadmitted: video\n") && !text.contains("FAIL"), "{text}");
    assert!(text.contains("no answer (a sufficient test)"), "{text}");
    assert!(text.contains("passes, decides"), "{text}");
    let refused = [bounds(), vec![test("response-time", false, true)]].concat();
    let text = plan(&planned(refused, vec![refusal(false)]));
    assert_eq!(text.matches("FAILS, decides").count(), 1, "{text}");
    assert!(!text.contains("no answer") && !text.contains("\nadmitted"), "{text}");
    assert!(text.contains("REFUSED guest: no room\n"), "{text}");
}

/// The kernel's UDP needs no line.
#[test]
fn an_address_on_an_interface_is_shown_with_its_limit() {
    let mut ends = planned(Vec::new(), Vec::new());
    assert!(!plan(&ends).contains("://"));
    let video = ends.activities[0].clone();
    ends.activities.extend([
        PlannedActivity {
            receive: Some("xdp://eth1/10.0.0.2:5004".into()),
            packet_quota: Some(PacketQuota { interval_ns: 10_000_000, depth: 3 }),
            ..video.clone()
        },
        PlannedActivity { receive: None, send: Some("xdp://eth1/10.0.0.1:5006".into()), ..video },
    ]);
    let text = plan(&ends);
    let limit = "at most a packet each 10 ms and 3 ahead";
    assert!(
        text.contains(&format!("video receives at xdp://eth1/10.0.0.2:5004, {limit}\n")),
        "{text}"
    );
    assert!(text.contains("\nvideo sends to xdp://eth1/10.0.0.1:5006\n"), "{text}");
}

/// The word `admitted` alone, above REFUSED, would read as a contradiction.
#[test]
fn admitted_activities_are_named_without_refused_ones() {
    let mut both = planned(Vec::new(), vec![refusal(true)]);
    for name in ["guest", "file"] {
        let cpu = Some(1).filter(|_| name == "file");
        both.activities.push(PlannedActivity {
            name: name.into(),
            cpu,
            ..both.activities[0].clone()
        });
    }
    let text = plan(&both);
    assert!(text.contains("\nadmitted: video, file\nREFUSED guest (optional): "), "{text}");
}

#[test]
fn the_value_of_a_test_has_a_unit() {
    let units = [
        ("response-time", "of the deadline"),
        ("edf-demand", "of the time"),
        ("window-slots", "of the slots"),
        ("window-simulation", "windows violated"),
        ("cpu-limit", "of a CPU"),
    ];
    let tests = units.map(|(name, _)| test(name, true, true)).to_vec();
    let text = plan(&planned(tests, Vec::new()));
    for (name, unit) in units {
        let row = text.lines().find(|line| line.starts_with(name)).expect("a row");
        assert!(row.contains(&format!("0.900 0.780 {unit}")), "{row}");
    }
    assert_explained(&units.map(|(_, unit)| unit.to_owned()));
}

#[test]
fn the_page_explains_every_line_and_column_of_plan() {
    let both = vec![refusal(false), refusal(true)];
    let refused = planned(vec![test("rmdp-bound", false, false)], both);
    let (activities, tests) = (plan::activities(&refused), plan::tests(&refused));
    assert_explained(&header(&activities));
    assert_explained(&header(&tests));
    assert_explained(&labels(&plan(&refused), &[&activities, &tests]));
    let admitted = planned(vec![test("response-time", true, true)], Vec::new());
    assert_explained(&labels(&plan(&admitted), &[&activities, &plan::tests(&admitted)]));
    for (passed, deciding) in [(true, true), (false, true), (true, false), (false, false)] {
        let tests = [vec![test("t", passed, deciding)], vec![test("u", false, false)]].concat();
        let rows = plan::tests(&planned(tests, Vec::new()));
        let results = rows.row_iter().filter_map(|row| row.cell_iter().last());
        assert_explained(&results.map(comfy_table::Cell::content).collect::<Vec<_>>());
    }
}

#[test]
fn the_page_explains_every_line_and_column_of_run() {
    let mut runs = Vec::new();
    for mode in ["upcall", "threads", "fifo", "sim"] {
        for faults in [[0, 0, 0], [1, 2, 3]] {
            runs.push(outcome(mode, faults, 10));
        }
    }
    let unpromised = Run { promised: false, ..outcome("upcall", [1, 0, 0], 1) };
    let mut unmeasured = outcome("upcall", [0, 0, 0], 1);
    unmeasured.platform =
        Platform::Machine(Box::new(Machine { wakeup_latency_ns: None, ..machine() }));
    let ordinary = Machine { real_time: false, ..machine() };
    let platform = Platform::Machine(Box::new(ordinary));
    runs.push(Run { platform, promised: false, ..outcome("upcall", [9, 0, 0], 10) });
    let refusals = vec![refusal(true)];
    runs.extend([
        unpromised,
        unmeasured,
        Run { refusals, interrupted: true, ..outcome("upcall", [0; 3], 1) },
    ]);
    for outcome in &runs {
        let (activities, streams) = (run::activities(outcome), run::streams(outcome));
        assert_explained(&header(&activities));
        assert_explained(&header(&streams));
        assert_explained(&labels(&run(outcome), &[&activities, &streams]));
    }
}

#[test]
fn the_page_explains_every_line_and_row_of_compare() {
    for refusals in [Vec::new(), vec![refusal(true)]] {
        let upcall = Run { refusals, ..outcome("upcall", [0, 0, 0], 10) };
        let runs = [upcall, outcome("threads", [0, 1, 0], 9), outcome("fifo", [0, 0, 0], 11)];
        let counts = [super::judgement::Counts::default(); 3];
        let rows = compare::rows(&runs, &counts);
        assert_explained(&header(&rows));
        let measured = rows.row_iter().filter_map(|row| row.cell_iter().nth(1));
        assert_explained(&measured.map(comfy_table::Cell::content).collect::<Vec<_>>());
        let sums = rows.row_iter().filter_map(|row| row.cell_iter().next());
        let sums = sums.map(comfy_table::Cell::content).filter(|name| name != "video");
        assert_explained(&sums.collect::<Vec<_>>());
        assert_explained(&labels(&comparison(&runs), &[&compare::rows(&runs, &counts_of(&runs))]));
    }
}

fn counts_of(runs: &[Run]) -> Vec<super::judgement::Counts> {
    runs.iter().map(super::judgement::Counts::of).collect()
}

/// All Rust sources below `folder`, in one text.
fn sources(folder: &std::path::Path, into: &mut String) {
    for entry in std::fs::read_dir(folder).expect("a folder of the repository").flatten() {
        let path = entry.path();
        if path.is_dir() {
            sources(&path, into);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            *into += &std::fs::read_to_string(&path).expect("a source");
        }
    }
}

/// A name between backquotes that looks like a test's name must be one.
#[test]
fn every_test_named_on_the_page_exists() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut text = String::new();
    for folder in [root.join("src"), root.join("../../tests")] {
        sources(&folder, &mut text);
    }
    let is_test = |name: &&str| {
        name.matches('_').count() >= 3 && name.chars().all(|c| c.is_ascii_lowercase() || c == '_')
    };
    let named: Vec<&str> = PAGE.split('`').filter(is_test).collect();
    let fields = ["response_ns_max", "responses_above_max"];
    let tests = named.iter().filter(|name| !fields.contains(name));
    let missing: Vec<_> = tests.filter(|name| !text.contains(&format!("fn {name}("))).collect();
    assert!(named.len() > 15 && missing.is_empty(), "no such test: {missing:?}");
}
