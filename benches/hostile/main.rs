//! The cost of hostile and broken domains for the others. One attacker at a time runs beside two
//! victims. All are processes of their own on one CPU under one daemon.
//!
//! For each attack the bench prints the victims' jobs, misses and worst response, and how the
//! attacker ended. The daemon must survive all attacks and must attach the next domain after each.
//! It must not have grown after thousands of domains that were killed. `-- NAME` runs only attacks
//! whose name contains NAME. The exit status is 1 if something does not hold.
//!
//! Each attack is repeated until the host is calm ([`Calm`]). Every try is printed, and one is
//! judged. A row holds only if all of this is true:
//!
//! - The attacker said that it acts, had a quarter of its time for it, and did not panic.
//! - The attacker still runs, or ended if its attack is that (`ends`).
//! - Each victim reported. Each job that was due by its period ended in time.
//! - The watchdog took no measure against a victim.
//! - An ordinary program beside got a quarter of the CPU.
//! - Domains that came during the attack were attached, and in time.
//! - The daemon lives, and attaches a domain afterwards.
//!
//! The verdict at the end counts the rows. It names those that do not hold, and those that are
//! skipped: no try was calm, or a program or a right is missing. Victims miss if the machine
//! delivers a timer late, so most rows also limit that ([`CALM`], [`CALM_QUICK`]). The module
//! [`outcome`] has the rule, and the tests of this package check it.

#![forbid(unsafe_code)]

mod arguments;
mod attack;
mod attacks;
mod child;
mod daemon;
mod flat;
mod outcome;
mod outside;
mod raw;
mod victim;

use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use upcall_benches::calm::{Calm, TimersOf, Try, why_none_is_judged};
use upcall_benches::{heading, smoke};

use arguments::Request;
use attack::{ATTACKING, Attack, BREACH, Beside, DaemonOptions, Outside, Victims};
use child::{ROLE, Running, start, start_as_other};
use daemon::{Server, VICTIMS};
use outcome::{AttackerReport, Outcome};

/// Time from the victims' start to the attacker's start, and from the attacker's end to theirs.
const LEAD: Duration = Duration::from_millis(300);
/// How long after its end a process of a row may still report. The CPU may be taken from it.
const REPORT_LIMIT: Duration = Duration::from_secs(10);
/// How long a domain may take to attach during an attack. By the rule of turns, each of its three
/// messages waits for one message of the attacker, which takes some milliseconds of the server's
/// time. The server and the domain are ordinary threads, and share the CPUs with the attacker.
const ARRIVAL_MAX: Duration = Duration::from_millis(500);
/// The kernel counts steal time in steps of 10 ms, and the victims have some 4 ms to spare. So a
/// try in which the host took any time of their CPU is not judged. Attacks that
/// keep both CPUs busy make this host take time, so rows have many tries.
///
/// A host may also delay timers at a steal time of 0. Rows without an attack (`low rank, honest`)
/// then missed up to 10 of 1,200 jobs. In runs by turns, an older commit missed as often. So a try
/// in which a timer of any CPU came 2 ms late is not judged: a victim has 4 ms to spare, and the
/// watchdog acts from the other CPU. The start and the end of the bench's own processes delay some
/// timers by up to 1.1 ms.
const CALM: Calm =
    Calm { timer_late_us_max: Some(2_000), timers_of: TimersOf::AllowedCpus, ..CALM_WITHOUT_PROBE };

/// The same without a limit for timers, for attacks that may delay timers themselves
/// ([`Attack::long_calls`](attack::Attack::long_calls)).
const CALM_WITHOUT_PROBE: Calm =
    Calm { tries_max: 12, stolen_ms_max: 0, wait_s_max: 20, ..Calm::ONCE };

/// The same beside [`Victims::QUICK`]. Their worst response is 0.2 ms while all timers come in
/// time, so a timer that is 0.8 ms late makes a job late. The probe sees each such delay: it looks
/// every 0.25 ms. In all of 49 tries of `none, quick` with a miss it saw a delay of over 0.7 ms. A
/// phase of late timers lasts minutes. The attackers of these rows make no long system calls.
const CALM_QUICK: Calm = Calm { timer_late_us_max: Some(500), ..CALM_WITHOUT_PROBE };

fn main() -> ExitCode {
    match std::env::var(ROLE).as_deref().map(|role| role.split('|').collect::<Vec<_>>()) {
        Err(_) => main_of_bench(),
        Ok(role) => {
            act_as(&role);
            ExitCode::SUCCESS
        }
    }
}

/// How the bench is called.
const USAGE: &str = "\
usage: cargo bench -p upcall-benches --bench hostile -- [NAME] [--smoke]
  NAME     only the rows whose names contain NAME
  --smoke  short runs, which are not judged
Exit status: 0 all rows hold or are skipped, 1 something does not hold, 2 a wrong argument.";

/// Reads the arguments and runs the rows. The exit status is 1 if something does not hold, and 2
/// after a mistake in the arguments. A short run (`--smoke`) is not judged.
fn main_of_bench() -> ExitCode {
    attacks::check_names();
    let names: Vec<&str> = attacks::all().map(|attack| attack.name).collect();
    match arguments::parse(std::env::args().skip(1), &names) {
        Ok(Request::Help) => println!("{}\nRows: {}", USAGE, names.join("; ")),
        Ok(Request::Run { row }) => {
            if !suite(row.as_deref()) && !smoke() {
                return ExitCode::from(1);
            }
        }
        Err(why) => {
            eprintln!("error: {why}\n{}", USAGE);
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
}

/// Acts as a process that the bench has started.
fn act_as(role: &[&str]) {
    let number = |text: &str| text.parse().expect("a number");
    match *role {
        ["daemon", socket, kill, descriptors_max, claims_within_s, all_cpus] => {
            let options = DaemonOptions {
                kill: kill == "true",
                descriptors_max: number(descriptors_max),
                claims_within_s: number(claims_within_s),
                all_cpus: all_cpus == "true",
            };
            daemon::serve(Path::new(socket), options);
        }
        ["victim", name, socket, millis, attack] => {
            victim::run(Path::new(socket), name, number(millis), attacks::named(attack).victims);
        }
        ["ordinary", millis] => victim::spin_as_ordinary(number(millis)),
        ["arrivals", socket, millis] => {
            victim::attach_again_and_again(Path::new(socket), number(millis));
        }
        ["attack", name, socket] => {
            std::panic::set_hook(Box::new(|panic| {
                println!("{PANIC}{}", panic.to_string().replace('\n', " "));
            }));
            (attacks::named(name).act)(Path::new(socket));
        }
        ["attach", socket] => {
            let _raw = raw::Raw::attach(Path::new(socket), "short");
            println!("attached");
            loop {
                std::thread::sleep(Duration::from_secs(1));
            }
        }
        _ => panic!("unknown role {role:?}"),
    }
}

/// The begin of the line of an attacker that panics.
const PANIC: &str = "panic ";

/// Runs all rows, or those whose names contain `row`. Returns whether everything held.
fn suite(row: Option<&str>) -> bool {
    let (millis, rounds) = if smoke() { (700, 50) } else { (4_000, 10_000) };
    println!("{}", heading("hostile"));
    println!(
        "victims: 2 processes of 2 handlers with periods of 10 ms and 20 ms, 1 ms of work each, {millis} ms an attack;\n\
         quick victims, in the rows `none, quick` and of slots: periods of 1 ms and 2 ms, 0.02 ms of work each"
    );
    let [calm, calm_quick, calm_without_probe] =
        if smoke() { [Calm::ONCE; 3] } else { [CALM, CALM_QUICK, CALM_WITHOUT_PROBE] };
    println!(
        "domains that attach during an attack: each within {ARRIVAL_MAX:?}, as each of its 3 messages waits for \
         one of the attacker"
    );
    println!("{}", calm.describe());
    println!("beside quick victims: {}", calm_quick.describe());
    println!("attacks that may delay timers themselves: {}", calm_without_probe.describe());
    println!();
    println!("{HEADING}");
    let mut verdict = Verdict::default();
    let mut server = Server::start(DaemonOptions::USUAL);
    for attack in attacks::all().filter(|attack| row.is_none_or(|row| attack.name.contains(row))) {
        if attack.daemon != server.options() {
            verdict.stopped(server.stop());
            server = Server::start(attack.daemon);
        }
        if let Some(why) = cannot_run(attack) {
            println!("SKIPPED: {}: {why}", attack.name);
            verdict.skip(attack, why);
            continue;
        }
        let calm = if attack.victims == Victims::QUICK {
            calm_quick
        } else if attack.long_calls {
            calm_without_probe
        } else {
            calm
        };
        let tries = calm.runs(|| {
            let mut outcome = run_attack(&mut server, attack, millis);
            if let Err(why) = end_row(&mut server) {
                outcome.troubles.push(why);
            }
            outcome
        });
        for tried in &tries {
            println!("{:>7} {}", tried.marked(), table_row(attack, tried));
        }
        verdict.add(attack, &tries);
    }
    println!("\n{}", verdict.text());
    let mut holds = verdict.holds();
    let mut show = |result: Result<String, String>| match result {
        Ok(found) => println!("{found}"),
        Err(why) => {
            println!("DOES NOT HOLD: {why}");
            holds = false;
        }
    };
    if row.is_none() {
        show(flat::attach_and_kill(&mut server, rounds));
    }
    if let Err(why) = server.stop() {
        show(Err(why));
    }
    holds
}

/// Ends what is left of a row. The daemon must live and attach a domain. If not, a new one starts.
fn end_row(server: &mut Server) -> Result<(), String> {
    child::end_strays(server.pid());
    let ended = if !server.lives() {
        "the daemon ended".to_owned()
    } else if !flat::attach_soon(&server.socket) {
        "the daemon attached no domain afterwards".to_owned()
    } else {
        return Ok(());
    };
    server.restart()?;
    Err(ended)
}

/// Why an attack cannot be made here.
fn cannot_run(attack: &Attack) -> Option<&'static str> {
    let program = match attack.outside {
        Outside::Trace => Some(("strace", "no strace here")),
        Outside::Debugger => Some(("gdb", "no gdb here")),
        _ => None,
    };
    let is_missing = |name: &str| {
        let found = Command::new(name).arg("--version").stdout(Stdio::null()).status();
        !found.is_ok_and(|status| status.success())
    };
    match program {
        Some((name, why)) if is_missing(name) => Some(why),
        _ if attack.other_user && upcall_sys::process::effective_user() != 0 => {
            Some("only root can start another user's process")
        }
        _ => None,
    }
}

const HEADING: &str = " stolen  attack              missed of due   worst ms late timers ordinary ms attaches worst ms  what became of the attacker                                  what it does";

/// A try in the table.
fn table_row(attack: &Attack, tried: &Try<Outcome>) -> String {
    let outcome = &tried.result;
    let dash = || "-".to_owned();
    let ordinary = outcome.ordinary_ms.flatten().map_or_else(dash, |ms| ms.to_string());
    let arrivals = outcome.arrivals.iter().flatten().next();
    let count = arrivals.map_or_else(dash, |report| report.count.to_string());
    let worst = arrivals.map_or_else(dash, |it| format!("{:.1}", it.worst.as_secs_f64() * 1e3));
    let timers = tried.timers.map_or_else(dash, |timers| timers.to_string());
    format!(
        "{:<18} {:>7} {:>7} {:>10.2} {timers:>11} {ordinary:>11} {count:>8} {worst:>8}  {:<60} {}",
        attack.name,
        outcome.missed(),
        outcome.due(),
        outcome.worst_ms(),
        outcome.became(),
        attack.what,
    )
}

/// What the judged tries say together.
#[derive(Debug, Default)]
struct Verdict {
    rows: usize,
    tries: usize,
    broken: Vec<String>,
    skipped: Vec<String>,
    /// Daemons that did not end well.
    daemons: Vec<String>,
}

impl Verdict {
    fn add(&mut self, attack: &Attack, tries: &[Try<Outcome>]) {
        self.rows += 1;
        self.tries += tries.len();
        match tries.iter().find(|tried| tried.judged).map(|tried| tried.result.faults()) {
            None => self.skipped.push(format!("{} ({})", attack.name, why_none_is_judged(tries))),
            Some(faults) if faults.is_empty() => {}
            Some(faults) => self.broken.push(format!("{} ({})", attack.name, faults.join("; "))),
        }
    }

    fn skip(&mut self, attack: &Attack, why: &str) {
        self.rows += 1;
        self.skipped.push(format!("{} ({why})", attack.name));
    }

    fn stopped(&mut self, result: Result<(), String>) {
        self.daemons.extend(result.err());
    }

    fn holds(&self) -> bool {
        self.broken.is_empty() && self.daemons.is_empty()
    }

    /// The rows that hold, those that do not, and those that nothing was learnt about.
    fn text(&self) -> String {
        let (broken, skipped) = (self.broken.len(), self.skipped.len());
        let mut text = format!(
            "attacked, no job missed, no victim accused, no ordinary program starved, attached again: {} rows of {}, in {} tries",
            self.rows - broken - skipped,
            self.rows,
            self.tries
        );
        if broken > 0 {
            let _ = write!(text, "\nDOES NOT HOLD: {broken} rows: {}", self.broken.join(", "));
            if self.broken.iter().any(|row| row.starts_with("none (")) {
                text.push_str(
                    "\n`none` attacks nobody: another program or the host disturbed this run, so no row is judged",
                );
            }
        }
        for why in &self.daemons {
            let _ = write!(text, "\nDOES NOT HOLD: {why}");
        }
        if skipped > 0 {
            let _ = write!(text, "\nSKIPPED: {skipped} rows: {}", self.skipped.join(", "));
        }
        text
    }
}

/// Runs one attack for `millis` milliseconds, and [`REPORT_LIMIT`] more at most.
fn run_attack(server: &mut Server, attack: &Attack, millis: u64) -> Outcome {
    let socket = server.socket.display().to_string();
    server.take_events();
    let mut victims: Vec<Running> = Vec::new();
    if attack.beside != Beside::Ordinary {
        let role = |victim| format!("victim|{victim}|{socket}|{millis}|{}", attack.name);
        victims.extend(VICTIMS.map(|victim| start(&role(victim))));
    }
    let has_ordinary = attack.beside != Beside::Victims;
    let ordinary = has_ordinary.then(|| start(&format!("ordinary|{millis}")));
    std::thread::sleep(LEAD);
    let role = format!("attack|{}|{socket}", attack.name);
    let begin = Instant::now();
    let mut attacker = if attack.other_user { start_as_other(&role) } else { start(&role) };
    let rest = Duration::from_millis(millis).saturating_sub(2 * LEAD);
    let arrivals =
        attack.arrivals.then(|| start(&format!("arrivals|{socket}|{}", rest.as_millis())));
    let done = outside::act(attack.outside, server, &attacker.process, rest);
    let deadline = begin + Duration::from_millis(millis) + REPORT_LIMIT;
    let report = |victim| victim::report(victim, deadline, attack.victims, millis);
    let mut outcome = Outcome {
        millis,
        victims: victims.iter().map(report).collect(),
        ordinary_ms: ordinary.as_ref().map(|it| victim::ordinary_cpu_ms(it, deadline)),
        arrivals: arrivals.as_ref().map(|it| victim::arrival_report(it, deadline)),
        arrival_max: ARRIVAL_MAX,
        shares_user: attack.shares_user(),
        ends: attack.ends,
        attack: begin.elapsed(),
        outside: done.showed,
        troubles: done.trouble.into_iter().collect(),
        measures: done.measures,
        ..Outcome::default()
    };
    outcome.attacker = attacker_report(&mut attacker);
    if let Some(mut tracer) = done.tracer {
        let _ = (tracer.kill(), tracer.wait());
    }
    drop((attacker, victims, ordinary, arrivals));
    // The daemon reports the detachment last.
    std::thread::sleep(Duration::from_millis(50));
    outcome.measures.extend(server.take_events().measures);
    outcome
}

/// What the attacker said until now, and how it ended.
fn attacker_report(attacker: &mut Running) -> AttackerReport {
    let ended = attacker.ended_within(Duration::ZERO).map(|status| status.to_string());
    let mut report = AttackerReport { ended, ..AttackerReport::default() };
    for (at, line) in attacker.lines_so_far() {
        if line == ATTACKING {
            report.acted.get_or_insert(at.elapsed());
        } else if let Some(breach) = line.strip_prefix(BREACH) {
            report.breaches.push(breach.to_owned());
        } else if let Some(panic) = line.strip_prefix(PANIC) {
            report.panic.get_or_insert(panic.to_owned());
        }
    }
    report
}
