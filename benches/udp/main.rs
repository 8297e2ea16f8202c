//! UDP in user space beside the kernel's: what a packet costs, how even paced packets leave, and
//! how streams share a link (docs/decisions/0024-network.md).
//!
//! `-- PART` measures one part: `packets`, `pacing`, `streams` or `loopback`. The bench needs root:
//! it makes network namespaces and attaches XDP programs. It asserts nothing about time.

#![forbid(unsafe_code)]

mod loopback;
mod pacing;
mod packets;
mod streams;
mod wire;

use upcall_benches::{heading, measured_cpu, smoke};
use upcall_sys::schedule;

use wire::ROLE;

fn main() {
    if let Ok(role) = std::env::var(ROLE) {
        return play(&role.split(' ').collect::<Vec<_>>());
    }
    if upcall_sys::process::effective_user() != 0 {
        return println!("skipped: udp: it needs root for network namespaces and XDP");
    }
    wire::go_inside();
    if wire::cpus().1.is_empty() {
        return println!("skipped: udp: it needs a CPU for the receiver and one for the sender");
    }
    println!("{}", heading("udp"));
    let cpu = measured_cpu();
    schedule::pin_thread(&[cpu]).expect("a CPU");
    if let Err(refusal) = schedule::set_fifo(50) {
        println!("without SCHED_FIFO ({refusal})");
    }
    let parts: Vec<String> = std::env::args().skip(1).filter(|it| !it.starts_with("--")).collect();
    let sizes: Vec<u32> = parts.iter().filter_map(|it| it.parse().ok()).collect();
    let all = if smoke() { &packets::SIZES[..1] } else { &packets::SIZES };
    let sizes = if sizes.is_empty() { all } else { &sizes };
    let asked = |part: &str| parts.is_empty() || parts.iter().any(|it| it == part);
    let ms = |whole| if smoke() { 200 } else { whole };
    if asked("packets") {
        packets::measure(ms(1_000), if smoke() { 1 } else { 7 }, sizes);
    }
    if asked("streams") {
        streams::measure(ms(3_000));
    }
    if asked("loopback") {
        loopback::measure(ms(3_000));
    }
    if asked("pacing") {
        pacing::measure(ms(10_000));
    }
}

/// What a child does.
fn play(role: &[&str]) {
    schedule::set_ordinary().expect("the ordinary class");
    schedule::pin_thread(&wire::cpus().1).expect("the CPUs are allowed");
    let number = |at: usize| role[at].parse::<u32>().expect("a number");
    match role[0] {
        "count" => streams::count(number(1).into()),
        "steady" => streams::send_steadily(number(1) as usize, number(2).into()),
        "stamps" => pacing::stamps(number(1).into()),
        "flood" => packets::flood(number(1) as usize, number(2).into()),
        other => panic!("unknown role {other}"),
    }
}
