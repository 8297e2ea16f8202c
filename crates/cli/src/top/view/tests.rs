//! The screen of a made-up status, and the effect of keys.

use super::*;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use upcall::status::{ActivityState, CpuStatus, VirtualProcessorState};

fn virtual_processor(
    used_ns: u64,
    state: VirtualProcessorState,
    jobs: u64,
) -> VirtualProcessorStatus {
    let counters = DomainCounters {
        upcalls: 2 * jobs,
        switches: 3 * jobs,
        jobs,
        misses: 1,
        pdus: 4 * jobs,
        handoffs: jobs / 2,
        slack_ns_min: -1_500_000,
    };
    let fault = String::new();
    VirtualProcessorStatus {
        cpu: 1,
        tid: 11,
        state,
        offences: 2,
        reserved_ppm: 1,
        part_ppm: None,
        lag_ns: None,
        used_ns,
        counters,
        fault,
    }
}

fn activity(order: u32, name: &str, reserved_ppm: u64) -> ActivityStatus {
    ActivityStatus {
        order,
        cpu: 1,
        period_ns: 40_000_000,
        deadline_ns: 20_000_000,
        batch: 8,
        quantum: 1,
        pdu_cost_ns: 250_000,
        lag_ns: None,
        reserved_ppm,
        response_ns_max: 9_000_000,
        unscreened: false,
        state: ActivityState::Waiting,
        next_release_ns: 5_012_000_000,
        name: name.to_owned(),
    }
}

fn domain(number: u32, name: &str) -> DomainStatus {
    DomainStatus {
        domain: number,
        generation: u64::from(number),
        pid: 4_000 + number,
        uid: 1000,
        at_ns: 5_000_000_000,
        name: name.to_owned(),
        virtual_processors: Vec::new(),
        activities: Vec::new(),
    }
}

fn made_up() -> Status {
    let mut player = domain(1, "player");
    player.virtual_processors =
        vec![virtual_processor(700_000_000, VirtualProcessorState::Demoted, 300)];
    player.activities = vec![activity(0, "video", 50_000), activity(2, "audio", 250_000)];
    let mut robot = domain(2, "arm\u{1b}[2J");
    robot.virtual_processors = Vec::new();
    robot.activities = vec![activity(1, "joint", 100_000)];
    robot.activities[0].state = ActivityState::Suspended;
    robot.activities[0].next_release_ns = u64::MAX;
    Status {
        switch_cost_ns: 20_000,
        policy: "rmdp".to_owned(),
        real_time: true,
        cpus: vec![CpuStatus { cpu: 1, reserved_ppm: 400_000, limit_ppm: 900_000 }],
        domains: vec![player, robot],
        packet_quotas: Vec::new(),
        owned_interfaces: Vec::new(),
        flows: Vec::new(),
        programs: Vec::new(),
        hidden_domains: 0,
    }
}

/// The status a second before: 100 jobs and 200 ms of CPU time fewer.
fn a_second_before() -> Status {
    let mut status = made_up();
    for domain in &mut status.domains {
        domain.at_ns -= 1_000_000_000;
    }
    status.domains[0].virtual_processors =
        vec![virtual_processor(500_000_000, VirtualProcessorState::Attached, 200)];
    status
}

fn view() -> View {
    let mut view = View::new(Path::new("/run/upcall.sock"), a_second_before());
    view.take(Ok(made_up()));
    view
}

fn drawn(view: &mut View, width: u16, height: u16) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| view.draw(frame)).unwrap();
    let buffer = terminal.backend().buffer();
    let cells = buffer.content.chunks(usize::from(width));
    let line = |cells: &[ratatui::buffer::Cell]| {
        cells.iter().map(ratatui::buffer::Cell::symbol).collect::<String>().trim_end().to_owned()
    };
    cells.map(line).collect()
}

/// Lines of 118 characters. The escape character in a name is not printed.
const EXPECTED: &str = "\
upcall top  /run/upcall.sock  rmdp, real-time class  domains 2  activities 3
CPU 1   [####====            ] reserved 40.0 % of 90.0 %, used 20.0 %
per second: jobs ended 100  upcalls 200  switches 300  turns passed 50

DOMAIN NAME             STATE         PID    UID RESERVED     USED OFFENCES    PASSED   \
    UPCALLS  MISSED      SLACK
     1 player           demoted      4001   1000   30.0 %   20.0 %        2       \
    150       600       1    -1.5 ms
     2 arm[2J           attaching    4002   1000   10.0 %    0.0 %        0         \
    0         0       0          -

 ORDER ACTIVITY         STATE      DOMAIN    CPU RESERVED   PERIOD DEADLINE     BATCH      \
    COST    NEXT
     0 video            waiting         1      1    5.0 %    40 ms    20 ms         8    \
    250 us   12 ms
     2 audio            waiting         1      1   25.0 %    40 ms    20 ms         8    \
    250 us   12 ms
     1 joint            suspended       2      1   10.0 %    40 ms    20 ms         8    \
    250 us       -

q quit  h help  s order: number  arrows scroll";

#[test]
fn the_screen_shows_all_of_a_status() {
    assert_eq!(drawn(&mut view(), 118, 14), EXPECTED.lines().collect::<Vec<_>>());
}

#[test]
fn without_an_earlier_status_there_are_no_rates() {
    let lines = drawn(&mut View::new(Path::new("/s"), made_up()), 118, 14);
    assert!(lines[1].ends_with("used -"), "{}", lines[1]);
    assert_eq!(lines[2], "per second: jobs ended -  upcalls -  switches -  turns passed -");
}

#[test]
fn s_sorts_domains_by_the_next_column() {
    let mut now = Status { domains: Vec::new(), ..made_up() };
    for (number, name) in [(5, "a"), (4, "b"), (3, "c"), (2, "d"), (1, "e")] {
        let mut one = domain(number, name);
        one.virtual_processors =
            vec![virtual_processor(500_000_000, VirtualProcessorState::Attached, 200)];
        now.domains.push(one);
    }
    let mut before = now.clone();
    before.domains.iter_mut().for_each(|domain| domain.at_ns -= 1_000_000_000);
    now.domains[3].activities = vec![activity(0, "t", 1)];
    now.domains[2].virtual_processors[0].used_ns += 1_000_000;
    now.domains[1].virtual_processors[0].counters.misses += 1;
    now.domains[0].virtual_processors[0].offences += 1;
    now.domains[3].virtual_processors[0].counters.slack_ns_min -= 1;
    let mut view = View::new(Path::new("/s"), before);
    view.take(Ok(now));
    let mut firsts = Vec::new();
    for (_, name) in Sort::ALL {
        let lines = drawn(&mut view, 118, 14);
        assert!(lines[13].contains(&format!("order: {name} ")), "{}", lines[13]);
        firsts.push(lines[5].split_whitespace().nth(1).unwrap_or_default().to_owned());
        view.sort_by_next();
    }
    assert_eq!(firsts, ["e", "a", "d", "c", "b", "a", "d"]);
    assert_eq!(view.sort, 0);
}

#[test]
fn activities_are_sorted_by_domain_name_or_reservation() {
    let mut view = view();
    let mut orders = Vec::new();
    for _ in 0..3 {
        let lines = drawn(&mut view, 118, 14);
        let names = lines[9..12].iter().filter_map(|line| line.split_whitespace().nth(1));
        orders.push(names.collect::<Vec<_>>().join(" "));
        view.sort_by_next();
    }
    assert_eq!(orders, ["video audio joint", "audio joint video", "audio joint video"]);
}

#[test]
fn scrolling_passes_domains_then_activities_and_stops_at_the_last() {
    let mut view = view();
    view.scroll(1);
    let lines = drawn(&mut view, 118, 14);
    assert!(lines[4].contains("DOMAIN") && lines[5].contains("arm"), "{lines:#?}");
    view.scroll(2);
    let lines = drawn(&mut view, 118, 14);
    // The domains and their header are scrolled out.
    assert!(lines[4].contains("ACTIVITY") && lines[5].contains("audio"), "{lines:#?}");
    view.scroll(isize::MAX);
    let lines = drawn(&mut view, 118, 14);
    assert!(lines[5].contains("joint") && lines[6].is_empty(), "{lines:#?}");
    view.scroll(isize::MIN);
    assert!(drawn(&mut view, 118, 14)[5].contains("player"));
    // The rows at the scroll position may go.
    view.scroll(4);
    view.take(Ok(Status::default()));
    let lines = drawn(&mut view, 118, 14);
    assert!(lines.iter().all(|line| !line.contains("joint")), "{lines:#?}");
}

#[test]
fn every_terminal_size_can_be_drawn() {
    let mut view = view();
    view.toggle_help();
    for (width, height) in [(1, 1), (3, 200), (200, 2), (10, 5)] {
        drawn(&mut view, width, height);
    }
}

#[test]
fn help_covers_the_tables_until_it_is_closed() {
    let mut view = view();
    view.toggle_help();
    assert!(drawn(&mut view, 118, 24).iter().any(|line| line.contains("watchdog")));
    view.close_help();
    assert!(drawn(&mut view, 118, 24).iter().all(|line| !line.contains("watchdog")));
}

#[test]
fn a_lost_daemon_is_shown_until_it_replies_again() {
    let mut view = view();
    view.take(Err(Failure::new("no daemon at /run/upcall.sock")));
    let lines = drawn(&mut view, 118, 14);
    assert!(lines[5].contains("player") && lines[13].contains("no daemon"), "{lines:#?}");
    view.take(Ok(made_up()));
    assert!(drawn(&mut view, 118, 14)[13].starts_with("q quit"));
}

#[test]
fn domains_of_other_users_are_counted_in_the_title() {
    let mut view = view();
    assert!(drawn(&mut view, 118, 14)[0].contains("domains 2  activities 3"));
    view.take(Ok(Status { hidden_domains: 4, ..made_up() }));
    let title = &drawn(&mut view, 118, 14)[0];
    assert!(title.contains("domains 2 (not shown: 4 of other users)"), "{title}");
}

#[test]
fn a_bar_shows_what_is_used_of_what_is_reserved() {
    assert_eq!(bar(500_000, 250_000), "#####=====          ");
    assert_eq!(bar(250_000, 500_000), "##########          ");
    assert_eq!(bar(u64::MAX, 0), "=".repeat(BAR));
    assert_eq!(bar(0, u64::MAX), "#".repeat(BAR));
}

#[test]
fn the_page_explains_every_column_and_rate_of_top() {
    let titles = DOMAIN_COLUMNS.iter().chain(&ACTIVITY_COLUMNS);
    let titles: Vec<String> = titles.map(|(title, ..)| (*title).to_owned()).collect();
    show::tests::assert_explained(&titles);
    let lines = drawn(&mut View::new(Path::new("/s"), made_up()), 118, 14);
    let rates = lines.iter().find_map(|line| line.strip_prefix("per second:"));
    let rates: Vec<String> = rates
        .expect("a line of rates")
        .split("  ")
        .map(|rate| rate.trim().trim_end_matches(" -").to_owned())
        .collect();
    assert_eq!(rates.len(), 4);
    show::tests::assert_explained(&rates);
}

#[test]
fn packet_quotas_have_a_line_each_with_their_rates() {
    let with = |passed, dropped, at_ns, quotas: usize| {
        let mut quota = ps::packet_quotas::tests::quota();
        (quota.counts.passed, quota.counts.dropped, quota.at_ns) = (passed, dropped, at_ns);
        Status { packet_quotas: vec![quota; quotas], ..made_up() }
    };
    let mut view = View::new(Path::new("/s"), with(10, 100, 1_000_000_000, 1));
    let line = |view: &mut View| {
        let lines = drawn(view, 118, 20);
        lines.iter().find(|line| line.starts_with("packets ")).cloned().unwrap_or_default()
    };
    assert!(
        line(&mut view).ends_with("quota 99.0/s  passed -  dropped -, in all 100"),
        "{}",
        line(&mut view)
    );
    view.take(Ok(with(60, 1_100, 1_500_000_000, 1)));
    let shown = line(&mut view);
    assert!(shown.starts_with("packets udp:5004 on eth1 for play"), "{shown}");
    assert!(shown.ends_with("quota 99.0/s  passed 100/s  dropped 2000/s, in all 1100"), "{shown}");
    view.take(Ok(with(0, 0, 0, QUOTAS_SHOWN + 2)));
    let lines = drawn(&mut view, 118, 20);
    assert!(lines.iter().any(|line| line == "and 2 more packet quotas (upcall net)"), "{lines:#?}");
}
