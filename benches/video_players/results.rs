//! The results of all steps: the tables, and what must hold.

use std::collections::BTreeMap;

use upcall::time::Span;
use upcall_benches::calm::Try;

use crate::costs::Costs;
use crate::setup::{CLASSES, CPU_LIMIT, PERIOD, RATE, class_name, required_rate};
use crate::step::Outcome;
use crate::variant::Variant;

/// A player holds its rate if it shows 30.0 frames/s, rounded.
const HELD: f64 = RATE - 0.05;
/// Two rates that differ by no more are equal.
const EQUAL_WITHIN: f64 = 0.1;
/// Windows count from the first release on, and the measured seconds end inside a window.
const WINDOW_SLACK: f64 = 1.0;
/// The daemon keeps so much of the CPU free beside players that it refused.
const KEPT_FREE: f64 = 0.07;
/// Beyond saturation, decoding would take at least this part of the CPU that the host left, by the
/// cost of decoding in that step. The host's other guests change both.
const ABOVE_SATURATION: f64 = 1.1;

/// By the number of players and the variant.
pub struct Results {
    pub costs: Costs,
    pub variants: Vec<Variant>,
    pub steps: BTreeMap<usize, BTreeMap<Variant, Step>>,
}

/// All tries of a step.
pub struct Step {
    pub tries: Vec<Try<Outcome>>,
}

impl Step {
    /// The judged try. If the host was never calm, the first one, which no verdict uses.
    pub fn outcome(&self) -> &Outcome {
        let judged = self.tries.iter().find(|tried| tried.judged);
        &judged.unwrap_or(&self.tries[0]).result
    }

    /// Whether the host left the judged try alone.
    fn is_calm(&self) -> bool {
        self.tries.iter().any(|tried| tried.judged)
    }
}

impl Results {
    /// The steps of one variant, by the number of players.
    pub fn of(&self, variant: Variant) -> impl DoubleEndedIterator<Item = (usize, &Outcome)> {
        self.steps.iter().filter_map(move |(&players, variants)| {
            Some((players, variants.get(&variant)?.outcome()))
        })
    }

    /// The steps of one variant that may be judged: the host was calm.
    fn calm(&self, variant: Variant) -> impl Iterator<Item = (usize, &Outcome)> {
        self.steps.iter().filter_map(move |(&players, variants)| {
            let step = variants.get(&variant).filter(|step| step.is_calm())?;
            Some((players, step.outcome()))
        })
    }

    pub fn players_max(&self) -> usize {
        self.steps.keys().copied().max().unwrap_or(1)
    }

    /// The mean cost of decoding a frame over all steps.
    fn cost_mean(&self) -> Span {
        let steps = || self.steps.values().flat_map(BTreeMap::values);
        let costs = || steps().map(|step| step.outcome().cost_mean());
        let steps = costs().count().max(1) as u64;
        Span::from_nanos(costs().map(Span::as_nanos).sum::<u64>() / steps)
    }

    /// The number of players that fill the CPU.
    pub fn saturation(&self) -> f64 {
        PERIOD.as_nanos() as f64 / self.cost_mean().as_nanos().max(1) as f64
    }

    /// The steps of a variant whose load fulfils `predicate`.
    fn with_load(
        &self,
        variant: Variant,
        predicate: impl Fn(f64) -> bool,
    ) -> impl Iterator<Item = (usize, &Outcome)> {
        self.calm(variant)
            .filter(move |(players, outcome)| predicate(outcome.load(*players as f64)))
    }

    /// Prints frames/s of all steps.
    pub fn print_rates(&self) {
        println!(
            "\nframes/s shown in time: mean of the players, and the worst and the best of them"
        );
        print!("{:>7}", "players");
        self.variants.iter().for_each(|variant| print!(" {:>17}", variant.name()));
        println!();
        for (players, variants) in &self.steps {
            print!("{players:>7}");
            for variant in &self.variants {
                match variants.get(variant).map(|step| step.outcome().mean_worst_best()) {
                    Some([mean, worst, best]) => print!(" {mean:>5.1} {worst:>5.1} {best:>5.1}"),
                    None => print!(" {:>17}", "-"),
                }
            }
            println!();
        }
    }

    /// Prints how windows share the loss, and the other facts of each step.
    pub fn print_steps(&self) {
        println!(
            "\nframes/s of the worst player of each window, in brackets the rate that the window asks for;\n\
             frames of all players that were decoded late or not decoded; CPU time of decoding one;\n\
             the time for which the host took the CPUs during each try, * marks the judged one; the frames\n\
             that were sent more than 2 ms late, and the most by which one was"
        );
        print!("{:>7} {:>9}", "players", "");
        (0..CLASSES.len()).for_each(|class| print!(" {:>9}", class_name(class)));
        println!(
            " {:>6} {:>7} {:>9} {:>9} {:>9} {:>9}",
            "late", "dropped", "decode ms", "steal ms", "sent late", "source ms"
        );
        for (players, variants) in &self.steps {
            for variant in &self.variants {
                for tried in variants.get(variant).into_iter().flat_map(|step| &step.tries) {
                    print!("{players:>7} {:>9}", variant.name());
                    print_try(tried);
                }
            }
        }
    }

    /// Prints for each step how each Upcall variant, and the best of them, compares with the
    /// kernel's SCHED_RR.
    pub fn print_comparison(&self) {
        let upcall: Vec<Variant> =
            self.variants.iter().copied().filter(|variant| variant.is_upcall()).collect();
        println!(
            "\nframes/s more (+) or less (-) than under rr, by the means of the players; within \
             {EQUAL_WITHIN} they are equal (=);\nand the lead of the best of them over groups. Then \
             the same, as if each frame of\na rate below 30 had taken the mean time of all steps to \
             decode: the host's other guests change that time by a\nfifth from step to step. No \
             verdict uses it."
        );
        print!("{:>7}", "players");
        upcall.iter().for_each(|variant| print!(" {:>9}", variant.name()));
        print!(" {:>9} {:>9} |", "best", "groups");
        upcall.iter().for_each(|variant| print!(" {:>9}", variant.name()));
        println!();
        for &players in self.steps.keys() {
            print!("{players:>7}");
            for &variant in &upcall {
                print_lead(self.lead(players, variant, Variant::RoundRobin));
            }
            print_lead(self.best_lead(players, Variant::RoundRobin));
            print_lead(self.best_lead(players, Variant::Groups));
            print!(" |");
            for &variant in &upcall {
                print_lead(self.scaled_lead(players, variant, Variant::RoundRobin));
            }
            println!();
        }
    }

    /// How many frames/s more a variant shows than another one, by the means of the players. `None`
    /// if one of them was not measured, or the host was never calm.
    fn lead(&self, players: usize, variant: Variant, over: Variant) -> Option<f64> {
        let mean = |variant| Some(self.calm_step(players, variant)?.mean_worst_best()[0]);
        Some(mean(variant)? - mean(over)?)
    }

    /// As [`Self::lead`], as if each frame had taken the mean time of all steps to decode.
    fn scaled_lead(&self, players: usize, variant: Variant, over: Variant) -> Option<f64> {
        let mean = |variant| {
            let outcome = self.calm_step(players, variant)?;
            let [mean, ..] = outcome.mean_worst_best();
            let slower = outcome.cost_mean().as_nanos() as f64;
            let scaled = mean * slower / self.cost_mean().as_nanos().max(1) as f64;
            Some(if mean < HELD { scaled.min(RATE) } else { mean })
        };
        Some(mean(variant)? - mean(over)?)
    }

    fn calm_step(&self, players: usize, variant: Variant) -> Option<&Outcome> {
        let step = self.steps[&players].get(&variant).filter(|step| step.is_calm())?;
        Some(step.outcome())
    }

    /// The lead of the best Upcall variant.
    fn best_lead(&self, players: usize, over: Variant) -> Option<f64> {
        let upcall = self.variants.iter().filter(|variant| variant.is_upcall());
        upcall.filter_map(|&variant| self.lead(players, variant, over)).reduce(f64::max)
    }

    /// Prints what must hold, and the paper's results.
    pub fn print_verdicts(&self) {
        println!(
            "\nthe mean time to decode a frame, over all steps, is {}: {:.1} players fill the CPU; {} is \
             declared: {} are admitted",
            self.cost_mean(),
            self.saturation(),
            self.costs.most,
            self.costs.admitted()
        );
        for variant in [Variant::Rmdp, Variant::RmdpEvents, Variant::Dwcs, Variant::DwcsEvents] {
            let most = self.costs.most;
            let of = |(_, outcome): (usize, &Outcome)| outcome.worst_of_admitted(most);
            let (kept, longer) = self
                .calm(variant)
                .filter_map(of)
                .fold((0, 0), |(kept, longer), step| (kept + step.1, longer + step.2));
            self.verdict(
                &format!(
                    "each player that the daemon admitted, and of which no frame took longer than \
                     declared, holds its rate under {}",
                    variant.name()
                ),
                &format!(
                    "30.0 frames/s, by the worst of them at each step; {kept} of {} players in all \
                     steps are judged, the others took longer",
                    kept + longer
                ),
                self.calm(variant).filter(|step| of(*step).is_some_and(|of| of.0.is_some())),
                |players, outcome| {
                    let worst = of((players, outcome)).and_then(|of| of.0).unwrap_or_default();
                    (worst, worst >= HELD)
                },
            );
        }
        let best = |(players, _): &(usize, &Outcome)| {
            self.best_lead(*players, Variant::RoundRobin).is_some()
        };
        self.verdict(
            "the best Upcall variant shows as many frames as the kernel's SCHED_RR, or more",
            "the lead in frames/s, -0.1 at the least",
            self.calm(Variant::RoundRobin).filter(best),
            |players, _| {
                let lead = self.best_lead(players, Variant::RoundRobin).unwrap_or(f64::NAN);
                (lead, lead >= -EQUAL_WITHIN)
            },
        );
        for variant in [Variant::Dwcs, Variant::DwcsEvents] {
            self.verdict(
                &format!(
                    "beyond saturation windows share the loss under {} as configured",
                    variant.name()
                ),
                "above what they ask for, -1 frame/s at the least",
                self.with_load(variant, |load| load >= ABOVE_SATURATION)
                    .filter(|step| self.windows_fit(step)),
                |_, outcome| {
                    let margins = (0..CLASSES.len()).filter_map(|class| {
                        Some(outcome.worst_of_class(class)? - required_rate(class))
                    });
                    let least = margins.fold(f64::INFINITY, f64::min);
                    (least, least >= -WINDOW_SLACK)
                },
            );
        }
        println!("also measured, and not promised:");
        self.verdict(
            "beyond saturation players that the daemon refused share the loss equally under rmdp+ev",
            "the worst of them has three quarters of their mean at least",
            self.with_load(Variant::RmdpEvents, |load| load >= ABOVE_SATURATION)
                .filter(|(_, outcome)| outcome.mean_worst_of_refused().is_some()),
            |_, outcome| {
                let [mean, worst] = outcome.mean_worst_of_refused().unwrap_or_default();
                (worst / mean.max(0.1), worst >= 0.75 * mean)
            },
        );
        for variant in [Variant::RoundRobin, Variant::Groups] {
            self.verdict(
                &format!(
                    "each player holds its rate under {} where all are admitted",
                    variant.name()
                ),
                "30.0 frames/s, by the worst player of each step",
                self.calm(variant).filter(|(players, _)| *players <= self.costs.admitted()),
                |_, outcome| (outcome.mean_worst_best()[1], outcome.mean_worst_best()[1] >= HELD),
            );
        }
        self.verdict(
            "beyond saturation, without events, rmdp starves the players admitted last",
            "the worst has a quarter of the mean at most",
            self.with_load(Variant::Rmdp, |load| load >= ABOVE_SATURATION),
            |_, outcome| {
                let [mean, worst, _] = outcome.mean_worst_best();
                (worst / mean.max(0.1), worst <= 0.25 * mean)
            },
        );
        self.verdict(
            "Figure 4 against 5: beyond saturation slices of 150 us show less than half of the frames shown with events",
            "of the mean of rmdp+ev",
            self.with_load(Variant::Sliced, |load| load >= ABOVE_SATURATION),
            |players, outcome| {
                let part = outcome.mean_worst_best()[0] / self.mean(players, Variant::RmdpEvents);
                (part, part < 0.5)
            },
        );
        self.print_not_judged();
    }

    /// The mean rate of a variant at a number of players, at least a tenth of a frame.
    fn mean(&self, players: usize, variant: Variant) -> f64 {
        let step = self.steps[&players].get(&variant);
        step.map_or(0.0, |step| step.outcome().mean_worst_best()[0]).max(0.1)
    }

    /// Names the steps that no verdict uses.
    fn print_not_judged(&self) {
        let steps = self.steps.iter().flat_map(|(players, variants)| {
            variants.iter().map(move |(variant, step)| (players, variant, step))
        });
        let names: Vec<String> = steps
            .filter(|(_, _, step)| !step.is_calm())
            .map(|(players, variant, step)| {
                format!("{players} {} ({} tries)", variant.name(), step.tries.len())
            })
            .collect();
        if !names.is_empty() {
            println!("SKIPPED, the host was never calm: {}", names.join(", "));
        }
    }

    /// Prints one line: whether each of these steps fulfils `judge`, and the figures that it uses.
    fn verdict<'a>(
        &self,
        what: &str,
        bound: &str,
        steps: impl Iterator<Item = (usize, &'a Outcome)>,
        judge: impl Fn(usize, &Outcome) -> (f64, bool),
    ) {
        let judged: Vec<_> = steps
            .map(|(players, outcome)| (players, judge(players, outcome), outcome.stolen_ms))
            .collect();
        let word = match judged.iter().all(|(_, (_, holds), _)| *holds) {
            _ if judged.is_empty() => "not measured",
            true => "holds",
            false => "DOES NOT HOLD",
        };
        let figures = judged.iter().map(|(players, (figure, holds), stolen_ms)| {
            let stolen = if *holds { String::new() } else { format!(" (!, steal {stolen_ms} ms)") };
            format!("{players}: {figure:.2}{stolen}")
        });
        println!("{word}: {what} ({bound}): {}", figures.collect::<Vec<_>>().join(", "));
    }

    /// Whether the CPU has room for the rates that the windows ask for, both at the cost of
    /// decoding in that step and at the declared cost without its margin.
    fn windows_fit(&self, &(players, outcome): &(usize, &Outcome)) -> bool {
        let required: f64 =
            (0..players).map(|player| required_rate(player % CLASSES.len()) / RATE).sum();
        let cost = self.costs.without_margin();
        let declared = required * cost.as_nanos() as f64 / PERIOD.as_nanos() as f64;
        declared.max(outcome.load(required)) <= CPU_LIMIT.as_f64().min(1.0 - KEPT_FREE)
    }
}

/// Prints a lead with its sign, in a column.
fn print_lead(lead: Option<f64>) {
    let text = match lead {
        None => "-".to_owned(),
        Some(lead) if lead.abs() <= EQUAL_WITHIN => format!("= {:.1}", lead.abs()),
        Some(lead) if lead > 0.0 => format!("+ {lead:.1}"),
        Some(lead) => format!("- {:.1}", lead.abs()),
    };
    print!(" {text:>9}");
}

/// Prints the rest of the line of one try.
fn print_try(tried: &Try<Outcome>) {
    let outcome = &tried.result;
    for class in 0..CLASSES.len() {
        let worst = outcome.worst_of_class(class);
        print!(" {:>9}", worst.map_or("-".to_owned(), |rate| format!("{rate:.1}")));
    }
    let [late, dropped] = outcome.late_and_dropped();
    println!(
        " {late:>6} {dropped:>7} {:>9.2} {:>9} {:>9} {:>9.1}",
        outcome.cost_mean().as_nanos() as f64 / 1e6,
        tried.marked(),
        outcome.sent.late,
        outcome.sent.late_max.as_nanos() as f64 / 1e6
    );
}
