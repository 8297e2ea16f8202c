//! The tables of Figure 7, and the text below them.

use upcall_benches::percentile;

use crate::set::PERIODS_MS;
use crate::step::{LateJob, Step};

/// The most late jobs of one step that are printed one by one. A step of which more are late has
/// one long cause, which the first of them show.
const LATE_MAX: usize = 100;

pub fn print(steps: &[Step]) {
    println!("\n1. Promises\n");
    promises(steps);
    println!("\n2. Figure 7: least time left to the deadline, in ms, by period\n");
    slack(steps);
    println!("\n3. The machine during each step\n");
    machine(steps);
    println!("\n4. Late jobs of admitted steps\n");
    late(steps);
    println!("\n{}", closing(steps));
}

fn load(step: &Step) -> &'static str {
    if step.loaded { "loaded" } else { "idle" }
}

fn promises(steps: &[Step]) {
    println!(
        "{:>5} {:<6} {:<9} {:>16} {:>6} {:>7} {:>14} {:>12} {:>12} {:>9}",
        "U",
        "load",
        "admission",
        "worst response",
        "jobs",
        "misses",
        "least slack",
        "beyond bound",
        "activity sw.",
        "kernel sw."
    );
    for step in steps {
        let worst = step
            .worst
            .as_ref()
            .map_or("unbounded".to_owned(), |(worst, name)| format!("{name} {worst:.3} D"));
        let least = step.slack_ns_min.iter().flatten().min();
        println!(
            "{:>5.2} {:<6} {:<9} {:>16} {:>6} {:>7} {:>11} ms {:>12} {:>12} {:>9}",
            step.utilization_percent / 100.0,
            load(step),
            if step.admitted() { "admitted" } else { "refused" },
            worst,
            step.jobs,
            step.misses(),
            least.map_or("-".to_owned(), |&ns| milliseconds(ns)),
            step.beyond_bound,
            step.activity_switches,
            step.kernel_switches,
        );
    }
    println!();
    println!(
        "worst response: by the analysis, in deadlines D. beyond bound: jobs whose response was"
    );
    println!("longer than the analysis allows, whether or not they missed.");
    let refusals: Vec<(f64, &String)> = steps
        .iter()
        .filter(|step| !step.loaded)
        .filter_map(|step| Some((step.utilization_percent / 100.0, step.refusal.as_ref()?)))
        .collect();
    if !refusals.is_empty() {
        println!("refused, and run without a promise:");
    }
    for (utilization, refusal) in refusals {
        println!("  {utilization:.2}: {refusal}");
    }
}

fn slack(steps: &[Step]) {
    print!("{:>5} {:<8}", "U", "");
    PERIODS_MS.iter().for_each(|period_ms| print!(" {:>8}", format!("{period_ms} ms")));
    println!();
    let line = |step: &Step, name: &str, slacks: &[Option<i64>]| {
        print!("{:>5.2} {name:<8}", step.utilization_percent / 100.0);
        for slack_ns in slacks {
            print!(" {:>8}", slack_ns.map_or("-".to_owned(), milliseconds));
        }
        println!();
    };
    for step in steps {
        if !step.loaded {
            line(step, "promised", &step.slack_promised_ns);
        }
        line(step, load(step), &step.slack_ns_min);
    }
}

fn machine(steps: &[Step]) {
    println!(
        "{:>5} {:<6} {:>10} {:>10} {:>10} {:>9} {:>12} {:>10} {:>12} {:>12} {:>7}",
        "U",
        "load",
        "wake p50",
        "wake p99",
        "wake max",
        "steal",
        "waited",
        "over cost",
        "at most by",
        "competitors",
        "rivals"
    );
    for step in steps {
        let mut wakeups_ns = step.wakeups_ns.clone();
        let mut wakeup = |percent| microseconds(percentile(&mut wakeups_ns, percent));
        println!(
            "{:>5.2} {:<6} {:>7} us {:>7} us {:>7} us {:>6} ms {:>9} ms {:>10} {:>9} us {:>10.1} s {:>7}",
            step.utilization_percent / 100.0,
            load(step),
            wakeup(50.0),
            wakeup(99.0),
            wakeup(100.0),
            step.host.steal_ms,
            step.host.waited_ns.iter().sum::<u64>() / 1_000_000,
            step.over_cost,
            microseconds(step.over_cost_ns_max),
            step.competitors_cpu.as_secs_f64(),
            step.rivals.0.len(),
        );
    }
    println!();
    println!(
        "wake: from a release that found the thread asleep to its first upcall. steal: the host ran"
    );
    println!(
        "something else on this CPU. waited: the two threads could run and did not. over cost: jobs whose"
    );
    println!(
        "handlers ran longer than declared, by the wall clock. competitors: CPU time of the background"
    );
    println!("programs. rivals: threads of other programs seen in a real-time class on this CPU.");
}

fn late(steps: &[Step]) {
    let broken: Vec<&Step> =
        steps.iter().filter(|step| step.admitted() && step.misses() > 0).collect();
    if broken.is_empty() {
        println!("nothing");
    }
    for step in broken {
        println!(
            "{:.2} {}: {} late, {} never ended; the host took the CPU for {} ms, the threads were ready and did not run \
             for {} ms; latest wake-up {} ms, a handler ran up to {} ms longer than declared",
            step.utilization_percent / 100.0,
            load(step),
            step.late.len(),
            step.unfinished,
            step.host.steal_ms,
            step.host.waited_ns.iter().sum::<u64>() / 1_000_000,
            thousandths(step.wakeups_ns.last().copied().unwrap_or_default()),
            thousandths(step.over_cost_ns_max),
        );
        for (name, looks) in &step.rivals.0 {
            println!(
                "  another program's real-time thread on this CPU: {name}, seen {looks} times"
            );
        }
        step.late.iter().take(LATE_MAX).for_each(late_job);
        if step.late.len() > LATE_MAX {
            println!("  and {} more", step.late.len() - LATE_MAX);
        }
    }
}

fn late_job(late: &LateJob) {
    println!(
        "  {} job {}, released at {:.3} s: started after {} ms, ran {} of {} ms declared, ended {} ms late; the host \
         took the CPU for {} ms, threads of no domain for {} ms at most{}",
        late.name,
        late.record.job,
        late.after.as_secs_f64(),
        thousandths(late.record.wakeup_latency().as_nanos()),
        thousandths(late.record.run.as_nanos()),
        thousandths(late.declared.as_nanos()),
        thousandths(late.record.slack_ns().unsigned_abs()),
        late.host.steal_ms,
        thousandths(late.host.waited_by_others_ns(late.domain)),
        if late.cpu_was_taken() { "" } else { " (UNEXPLAINED)" },
    );
}

fn closing(steps: &[Step]) -> String {
    let admitted: Vec<&Step> = steps.iter().filter(|step| step.admitted()).collect();
    let broken = admitted.iter().filter(|step| step.misses() > 0).count();
    let jobs: u64 = admitted.iter().map(|step| step.jobs).sum();
    let misses: u64 = admitted.iter().map(|step| step.misses()).sum();
    let late = admitted.iter().flat_map(|step| &step.late);
    let explained = late.filter(|late| late.cpu_was_taken()).count() as u64;
    format!(
        "0 misses in {} of {} admitted steps ({misses} misses in {jobs} jobs).\n\
         In {explained} of the {misses} misses, the host and threads of no domain, Upcall's daemon among them, had the CPU\n\
         for at least as long as the job was late, while it was under way or in the same time and 100 ms before its release; {} must be explained otherwise.",
        admitted.len() - broken,
        admitted.len(),
        misses.saturating_sub(explained),
    )
}

fn milliseconds(ns: i64) -> String {
    format!("{:+.2}", ns as f64 / 1e6)
}

fn thousandths(ns: u64) -> String {
    format!("{:.3}", ns as f64 / 1e6)
}

fn microseconds(ns: u64) -> String {
    format!("{:.0}", ns as f64 / 1e3)
}
