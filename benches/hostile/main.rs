//! The cost of hostile and broken domains for the others. One attacker at a time runs beside two
//! victims. All are processes of their own on one CPU under one daemon.
//!
//! For each attack the bench prints the victims' jobs, misses and worst response, and how the
//! attacker ended. The daemon must survive all attacks and must attach the next domain after each.
//! It must not have grown after thousands of domains that were killed. `-- NAME` runs only attacks
//! whose name contains NAME.
//!
//! Each attack is repeated until the host is calm ([`Calm`]). Every try is printed, and one is
//! judged: no job of a victim may miss its deadline, and an ordinary program beside must get a
//! quarter of the CPU. The verdict at the end counts the rows. It names those that do not hold, and
//! those that are skipped: no try was calm, or a program or a right is missing.

#![forbid(unsafe_code)]

mod attack;
mod attacks;
mod child;
mod daemon;
mod flat;
mod outside;
mod raw;
mod victim;

use std::fmt::Write as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use upcall_benches::calm::{Calm, Try};
use upcall_benches::{heading, smoke};

use attack::{Attack, Beside, DaemonOptions, Outside};
use child::{ROLE, start, start_as_other};
use daemon::{Server, VICTIMS};
use victim::VictimReport;

/// Time from the victims' start to the attacker's start, and from the attacker's end to theirs.
const LEAD: Duration = Duration::from_millis(300);
/// The part of the CPU that an ordinary program must get. The victims use 30 %, and a demoted
/// attacker shares the rest.
const ORDINARY_PERCENT_MIN: u64 = 25;
/// 0.25 % of two CPUs for four seconds. A try that the host disturbs more is not judged.
const CALM: Calm = Calm { tries_max: 5, stolen_ms_max: 20, wait_s_max: 20 };

fn main() {
    match std::env::var(ROLE).as_deref().map(|role| role.split('|').collect::<Vec<_>>()) {
        Err(_) => suite(),
        Ok(role) => match role[..] {
            ["daemon", socket, kill, descriptors_max] => {
                let options = DaemonOptions {
                    kill: kill == "true",
                    descriptors_max: descriptors_max.parse().expect("a number"),
                };
                daemon::serve(Path::new(socket), options);
            }
            ["victim", name, socket, millis] => {
                victim::run(Path::new(socket), name, millis.parse().expect("a number"));
            }
            ["ordinary", millis] => victim::spin_as_ordinary(millis.parse().expect("a number")),
            ["attack", name, socket] => {
                let attack = attacks::all().find(|attack| attack.name == name).expect("known");
                (attack.act)(Path::new(socket));
            }
            ["attach", socket] => {
                let _raw = raw::Raw::attach(Path::new(socket), "short");
                println!("attached");
                loop {
                    std::thread::sleep(Duration::from_secs(1));
                }
            }
            _ => panic!("unknown role {role:?}"),
        },
    }
}

fn suite() {
    attacks::check_names();
    let (millis, rounds) = if smoke() { (900, 50) } else { (4_000, 10_000) };
    let only = std::env::args().skip(1).find(|argument| !argument.starts_with('-'));
    println!("{}", heading("hostile"));
    println!(
        "victims: 2 processes of 2 handlers with periods of 10 ms and 20 ms, 1 ms of work each, {millis} ms an attack"
    );
    let calm = if smoke() { Calm::ONCE } else { CALM };
    println!("{}", calm.describe());
    println!();
    println!("{}", Outcome::HEADING);
    let mut verdict = Verdict::default();
    let mut server = Server::start(DaemonOptions::default());
    for attack in attacks::all().filter(|attack| chosen(attack, only.as_deref())) {
        if attack.daemon != server.options() {
            assert!(server.stop(), "the daemon does not panic, whatever domains do");
            server = Server::start(attack.daemon);
        }
        if let Some(why) = cannot_run(attack) {
            println!("SKIPPED: {}: {why}", attack.name);
            verdict.skip(attack, why);
            continue;
        }
        let tries = calm.runs(|| {
            let outcome = run_attack(&mut server, attack, millis);
            assert!(
                server.lives() && flat::attach_soon(&server.socket),
                "the daemon attaches the next domain"
            );
            outcome
        });
        for tried in &tries {
            println!("{:>7} {}", tried.marked(), tried.result.row(attack));
        }
        verdict.add(attack, &tries, millis);
    }
    println!("\n{}", verdict.text());
    if only.is_none() {
        println!("{}", flat::attach_and_kill(&server, rounds));
    }
    assert!(server.stop(), "the daemon does not panic, whatever domains do");
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

fn chosen(attack: &Attack, only: Option<&str>) -> bool {
    only.is_none_or(|only| attack.name.contains(only))
}

/// What one run of an attack cost the others.
struct Outcome {
    victims: Vec<VictimReport>,
    /// CPU time of the ordinary program, if one ran.
    ordinary_ms: Option<u64>,
    /// What the daemon did, and how the attacker ended.
    attacker: String,
}

impl Outcome {
    const HEADING: &str = " stolen  attack               jobs missed   worst ms silent ordinary ms  what became of the attacker                                  what it does";

    fn sum(&self, of: fn(&VictimReport) -> u64) -> u64 {
        self.victims.iter().map(of).sum()
    }

    /// Victims that ran no job.
    fn silent(&self) -> usize {
        self.victims.iter().filter(|report| report.jobs == 0).count()
    }

    /// Whether no victim missed a deadline, each ran, and an ordinary program got its part of the
    /// `millis` of the run.
    fn holds(&self, millis: u64) -> bool {
        let starved = self.ordinary_ms.is_some_and(|ms| ms * 100 < millis * ORDINARY_PERCENT_MIN);
        self.sum(|report| report.misses) == 0 && self.silent() == 0 && !starved
    }

    fn row(&self, attack: &Attack) -> String {
        let worst_ns = self.victims.iter().map(|report| report.worst_ns).max().unwrap_or_default();
        format!(
            "{:<18} {:>6} {:>6} {:>10.2} {:>6} {:>11}  {:<60} {}",
            attack.name,
            self.sum(|report| report.jobs),
            self.sum(|report| report.misses),
            worst_ns as f64 / 1e6,
            self.silent(),
            self.ordinary_ms.map_or_else(|| "-".to_owned(), |ms| ms.to_string()),
            self.attacker,
            attack.what,
        )
    }
}

/// What the judged tries say together.
#[derive(Debug, Default)]
struct Verdict {
    rows: usize,
    tries: usize,
    broken: Vec<String>,
    skipped: Vec<String>,
}

impl Verdict {
    fn add(&mut self, attack: &Attack, tries: &[Try<Outcome>], millis: u64) {
        self.rows += 1;
        self.tries += tries.len();
        match tries.iter().find(|tried| tried.judged).map(|tried| &tried.result) {
            None => self.skipped.push(format!("{} (the host was never calm)", attack.name)),
            Some(outcome) if outcome.holds(millis) => {}
            Some(outcome) => {
                let (missed, silent) = (outcome.sum(|report| report.misses), outcome.silent());
                let ordinary = outcome.ordinary_ms.map(|ms| format!(", ordinary {ms} ms"));
                self.broken.push(format!(
                    "{} ({missed} missed, {silent} silent{})",
                    attack.name,
                    ordinary.unwrap_or_default()
                ));
            }
        }
    }

    fn skip(&mut self, attack: &Attack, why: &str) {
        self.rows += 1;
        self.skipped.push(format!("{} ({why})", attack.name));
    }

    /// The rows that hold, those that do not, and those that nothing was learnt about.
    fn text(&self) -> String {
        let (broken, skipped) = (self.broken.len(), self.skipped.len());
        let mut text = format!(
            "no job missed, no victim silent, no ordinary program starved: {} rows of {}, in {} tries",
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
        if skipped > 0 {
            let _ = write!(text, "\nSKIPPED: {skipped} rows: {}", self.skipped.join(", "));
        }
        text
    }
}

/// Runs one attack for `millis` milliseconds.
fn run_attack(server: &mut Server, attack: &Attack, millis: u64) -> Outcome {
    let socket = server.socket.display().to_string();
    server.take_events();
    let mut victims: Vec<Child> = Vec::new();
    if attack.beside != Beside::Ordinary {
        let role = |name| format!("victim|{name}|{socket}|{millis}");
        victims.extend(VICTIMS.map(|name| start(&role(name))));
    }
    let mut ordinary =
        (attack.beside != Beside::Victims).then(|| start(&format!("ordinary|{millis}")));
    std::thread::sleep(LEAD);
    let role = format!("attack|{}|{socket}", attack.name);
    let mut attacker = if attack.other_user { start_as_other(&role) } else { start(&role) };
    let rest = Duration::from_millis(millis).saturating_sub(2 * LEAD);
    let (tracer, mut became) = match attack.outside {
        Outside::Debugger => (None, outside::debug(server, &attacker, rest)),
        how => (outside::act(how, server, &attacker, rest), String::new()),
    };
    let reports = victims.iter_mut().map(VictimReport::read).collect();
    let ordinary_ms = ordinary.as_mut().and_then(victim::ordinary_cpu_ms);
    let ended = attacker.try_wait().ok().flatten();
    let _ = attacker.kill();
    let _ = attacker.wait();
    for mut process in victims.into_iter().chain(tracer).chain(ordinary) {
        let _ = process.kill();
        let _ = process.wait();
    }
    // The daemon reports the detachment last.
    std::thread::sleep(Duration::from_millis(50));
    for measure in server.take_events().measures {
        became.push_str(&measure);
        became.push_str(", ");
    }
    became.push_str(&ended.map_or_else(|| "runs".to_owned(), |status| status.to_string()));
    Outcome { victims: reports, ordinary_ms, attacker: became }
}
