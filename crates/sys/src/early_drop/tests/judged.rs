//! The kernel runs the program on packets (`BPF_PROG_TEST_RUN`), and the reference judges each one.

use super::super::*;
use super::packets::{IPV4, IPV6, PORTS, Random, ethernet, ipv4, random_frame, transport};
use super::reference::{FragmentKey, Kind, Quota, kind, slot_of};
use crate::clock::monotonic_ns;
use aya::programs::{TestRun, TestRunOptions};
use core::sync::atomic::Ordering::Relaxed;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

/// What the kernel does with a packet (`enum xdp_action`).
const DROP: u32 = 1;
const PASS: u32 = 2;
const REDIRECT: u32 = 4;

/// Words of a slot, and of the last slot (`quota_page.h`).
const INTERVAL: usize = 0;
const STEP: usize = 1;
const DEPTH: usize = 2;
const ACTION: usize = 3;
const LIMIT: usize = 5;
const LINK: usize = 6;
const NEXT_ELIGIBLE: usize = 8;
const PASSED: usize = 9;
const DROPPED: usize = 10;
const CONTENDED: usize = 11;
const UNDELIVERED: usize = 12;
const PASSED_BYTES: usize = 13;
const DROPPED_BYTES: usize = 14;
const BEHIND: usize = 15;
const OUTCOMES: u32 = 1023;
const NOT_IP: usize = 0;
const DISCOVERY: usize = 1;
const MALFORMED: usize = 2;
const UNKNOWN: usize = 3;
const KNOWN: usize = 4;
const LOST: usize = 5;
const HIDDEN: usize = 6;

const ACTION_PASS: u64 = 0;
const ACTION_REDIRECT: u64 = 1;
const ACTION_DROP: u64 = 2;

/// Slots that the test uses.
const SLOTS: u32 = 12;

/// The fragments map holds 4096. The kernel forgets some before it is full, never so few.
const FRAGMENTS_KEPT: usize = 2000;

/// A link address as the owner writes it.
fn link_word(link: [u8; 6]) -> u64 {
    link.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte))
}

fn word(slot: u32, word: usize) -> usize {
    slot as usize * 16 + word
}

/// The program, and what it must have done so far.
struct Judge {
    loaded: Loaded,
    pages: QuotaPages,
    destinations: std::collections::HashMap<Destination, u32>,
    fragments: std::collections::HashMap<FragmentKey, (u32, bool)>,
    /// Every word of the quota page.
    expected: Vec<u64>,
    /// Slots whose action is to redirect to a socket that exists.
    socket: u32,
    /// Packets on which the reference has no opinion, because a limit fell into the run.
    undecided: u64,
    /// Later fragments whose first one the kernel had forgotten.
    forgotten: u64,
    verdicts: [u64; 5],
}

impl Judge {
    fn new() -> Judge {
        let loaded = Loaded::load().unwrap();
        let pages = QuotaPages::map(loaded.slots.fd().as_fd()).unwrap();
        let expected = vec![0; pages.words().len()];
        let mut judge = Judge {
            loaded,
            pages,
            destinations: Default::default(),
            fragments: Default::default(),
            expected,
            socket: 3,
            undecided: 0,
            forgotten: 0,
            verdicts: [0; 5],
        };
        let any4 = Ipv4Addr::UNSPECIFIED.to_ipv6_mapped();
        let any6 = Ipv6Addr::UNSPECIFIED;
        for (slot, address, protocol, port) in [
            (1, IPV4[0].to_ipv6_mapped(), 17, PORTS[0]),
            (2, any4, 17, PORTS[1]),
            (3, IPV6[0], 17, PORTS[0]),
            (4, any6, 17, PORTS[1]),
            (5, any4, 6, PORTS[2]),
            (6, any6, 6, PORTS[2]),
            (7, any4, 17, PORTS[3]),
            (8, any4, 1, 0),
            (9, any6, 58, 0),
            (10, IPV4[2].to_ipv6_mapped(), 17, PORTS[0]),
            (11, any6, 17, PORTS[3]),
        ] {
            let destination = Destination { address: address.into(), protocol, port };
            judge.loaded.destinations.insert(destination.key(), slot, 0).unwrap();
            judge.destinations.insert(destination, slot);
        }
        judge
    }

    fn set(&mut self, slot: u32, at: usize, value: u64) {
        self.pages.words()[word(slot, at)].store(value, Relaxed);
        self.expected[word(slot, at)] = value;
    }

    fn set_quota(&mut self, slot: u32, quota: Quota) {
        self.set(slot, INTERVAL, quota.interval);
        self.set(slot, STEP, quota.step);
        self.set(slot, DEPTH, quota.depth * quota.interval);
    }

    fn quota(&self, slot: u32) -> Quota {
        let [interval, step, depth] =
            [INTERVAL, STEP, DEPTH].map(|at| self.expected[word(slot, at)]);
        let depth = depth.checked_div(interval).unwrap_or(1);
        Quota { interval, step, depth }
    }

    /// Gives a random slot another quota or action. Slot 0 mostly has none.
    fn change(&mut self, random: &mut Random) {
        let slot = u32::try_from(random.below(SLOTS as usize)).unwrap();
        let quota = Quota {
            interval: [0, 1, 700, 3_000, 50_000, 10_000_000_000][random.below(6)],
            step: [0, 0, 1, 4_000, 1_000_000][random.below(5)],
            depth: [1, 1, 2, 5, 50][random.below(5)],
        };
        self.set_quota(slot, quota);
        // A debt of an hour would let the slot drop all further packets.
        if self.expected[word(slot, NEXT_ELIGIBLE)] > monotonic_ns() + 1_000_000_000 {
            self.set(slot, NEXT_ELIGIBLE, 0);
        }
        let socket = u64::from(self.socket) << 32;
        let missing = 200 << 32;
        let action = match random.below(8) {
            0 => ACTION_DROP,
            1 => ACTION_REDIRECT | socket,
            2 => ACTION_REDIRECT | missing,
            _ => ACTION_PASS,
        };
        self.set(slot, ACTION, action);
        let passed = self.expected[word(slot, PASSED)];
        let limit = [0, 0, 0, passed, passed + 1, passed + 20][random.below(6)];
        self.set(slot, LIMIT, if slot == 0 { 0 } else { limit });
        // The address of most frames, and another one.
        let link = [2, 0, 0, 0, 0, [1, 9][random.below(2)]];
        self.set(slot, LINK, if random.below(2) == 0 { 0 } else { link_word(link) });
    }

    fn run(&self, frame: &[u8], repeat: u32) -> (u32, Duration) {
        let program: &Xdp = self.loaded.object.program(PROGRAM).unwrap().try_into().unwrap();
        let options = TestRunOptions { data_in: Some(frame), repeat, ..TestRunOptions::new() };
        let result = program.test_run(options).unwrap();
        (result.return_value, result.duration)
    }

    fn load(&self, slot: u32, at: usize) -> u64 {
        self.pages.words()[word(slot, at)].load(Relaxed)
    }

    /// Runs the program on `frame` and checks what it did.
    fn judge(&mut self, frame: &[u8]) {
        let unknown_before = self.load(OUTCOMES, UNKNOWN);
        let begun = monotonic_ns();
        let (verdict, _) = self.run(frame, 1);
        let ended = monotonic_ns();
        self.verdicts[verdict as usize] += 1;
        let what = kind(frame);
        let (outcome, slot, is_lost) = match what {
            Kind::NotIp => (Some(NOT_IP), None, false),
            Kind::Discovery => (Some(DISCOVERY), None, false),
            Kind::Malformed => (Some(MALFORMED), Some(0), false),
            Kind::Hidden => (Some(HIDDEN), Some(0), true),
            Kind::Whole(to) | Kind::First(to, _) => {
                (None, Some(slot_of(&self.destinations, to)), false)
            }
            Kind::Later(key) => {
                let known = self.fragments.get(&key).copied();
                let is_forgotten = self.load(OUTCOMES, UNKNOWN) != unknown_before;
                match known {
                    Some((slot, lost)) if !is_forgotten => {
                        (Some(if lost { LOST } else { KNOWN }), Some(slot), lost)
                    }
                    _ => {
                        self.forgotten += u64::from(known.is_some());
                        (Some(UNKNOWN), Some(0), false)
                    }
                }
            }
        };
        if let Some(outcome) = outcome {
            self.expected[word(OUTCOMES, outcome)] += 1;
        }
        let Some(slot) = slot else {
            assert_eq!(verdict, PASS, "{what:?}: {frame:x?}");
            return;
        };
        let slot = self.slot_to_charge(slot, frame);
        let expected = self.expect(slot, is_lost, frame.len() as u64, (begun, ended), verdict);
        assert_eq!(verdict, expected, "slot {slot}, {what:?}: {frame:x?}");
        if let Kind::First(_, key) = what {
            match (slot, verdict) {
                (0, verdict) if verdict != DROP => drop(self.fragments.remove(&key)),
                _ => drop(self.fragments.insert(key, (slot, verdict == DROP))),
            }
        }
    }

    /// Slot 0 instead of `slot` for a frame that its owner may not get.
    fn slot_to_charge(&self, slot: u32, frame: &[u8]) -> u32 {
        let link = self.expected[word(slot, LINK)];
        let is_redirected = self.expected[word(slot, ACTION)] & 0xffff_ffff == ACTION_REDIRECT;
        let to = <[u8; 6]>::try_from(&frame[..6]).unwrap();
        let is_tagged = [[0x81, 0], [0x88, 0xa8]].iter().any(|tag| frame[12..14] == *tag);
        let is_other = to[0] & 1 == 0 && link_word(to) != link;
        if is_redirected && link != 0 && (is_tagged || is_other) { 0 } else { slot }
    }

    /// The verdict that a packet of `slot` must get. Counts it.
    fn expect(
        &mut self,
        slot: u32,
        is_lost: bool,
        bytes: u64,
        (begun, ended): (u64, u64),
        verdict: u32,
    ) -> u32 {
        let action = self.expected[word(slot, ACTION)];
        let (action, socket) = (action & 0xffff_ffff, action >> 32);
        let limit = self.expected[word(slot, LIMIT)];
        if limit > 0 && self.expected[word(slot, PASSED)] >= limit {
            self.expected[word(slot, BEHIND)] += 1;
            self.expected[word(slot, DROPPED_BYTES)] += bytes;
            return DROP;
        }
        let passes = action != ACTION_DROP && !is_lost && self.charge(slot, begun, ended, verdict);
        let (counter, expected) = match (passes, action) {
            (false, _) => (DROPPED, DROP),
            (true, ACTION_REDIRECT) if socket == self.socket.into() => (PASSED, REDIRECT),
            (true, ACTION_REDIRECT) => (UNDELIVERED, DROP),
            (true, _) => (PASSED, PASS),
        };
        self.expected[word(slot, counter)] += 1;
        let counter = if counter == PASSED { PASSED_BYTES } else { DROPPED_BYTES };
        self.expected[word(slot, counter)] += bytes;
        expected
    }

    /// Whether the quota lets the packet pass. The program read the clock at a moment from `begun`
    /// to `ended`.
    fn charge(&mut self, slot: u32, begun: u64, ended: u64, verdict: u32) -> bool {
        let quota = self.quota(slot);
        if quota.interval == 0 {
            return true;
        }
        let before = self.expected[word(slot, NEXT_ELIGIBLE)];
        let after = self.load(slot, NEXT_ELIGIBLE);
        let [early, late] = [begun, ended].map(|now| quota.charge(before, now));
        let passes = after != before;
        match (early, late) {
            (Some(early), Some(late)) => {
                assert!((early..=late).contains(&after), "slot {slot}: {early} {after} {late}");
            }
            (None, None) => assert_eq!(after, before, "slot {slot}: {quota:?}"),
            // A later packet is never worse off.
            (None, Some(late)) => {
                self.undecided += 1;
                assert!(!passes || after <= late, "slot {slot}: {after} {late}");
            }
            (Some(_), None) => panic!("slot {slot}: {quota:?} from {begun} to {ended}: {verdict}"),
        }
        self.expected[word(slot, NEXT_ELIGIBLE)] = after;
        passes
    }

    /// Compares every word of the page.
    fn compare(&self) {
        for (at, expected) in self.expected.iter().enumerate() {
            let found = self.pages.words()[at].load(Relaxed);
            assert_eq!(found, *expected, "slot {}, word {}", at / 16, at % 16);
        }
    }
}

/// `UPCALL_PACKETS` and `UPCALL_SEED` choose how many packets and which.
#[test]
#[ignore = "needs root: loads a program into the kernel"]
fn the_kernel_and_the_reference_agree_on_random_packets() {
    let of_environment = |name: &str| std::env::var(name).ok()?.parse::<u64>().ok();
    let packets = of_environment("UPCALL_PACKETS").unwrap_or(100_000);
    let seed = of_environment("UPCALL_SEED").unwrap_or(1);
    let mut random = Random(seed);
    let mut judge = Judge::new();
    // SAFETY: takes only numbers.
    let socket = unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
    assert!(socket >= 0, "{}", OsError::last("socket(AF_XDP)"));
    judge.loaded.sockets.set(judge.socket, socket, 0).unwrap();
    for packet in 0..packets {
        if packet % 50 == 0 {
            judge.change(&mut random);
        }
        let frame = random_frame(&mut random);
        judge.judge(&frame);
        if packet % 10_000 == 0 {
            judge.compare();
        }
    }
    judge.compare();
    let kinds: Vec<u64> = (0..7).map(|at| judge.load(OUTCOMES, at)).collect();
    let [forgotten, keys] = [judge.forgotten, judge.fragments.len() as u64];
    println!(
        "{packets} packets of seed {seed}: verdicts {:?}, outcomes {kinds:?}, {} undecided, \
         {keys} fragments, {forgotten} forgotten",
        judge.verdicts, judge.undecided
    );
    assert!(judge.fragments.len() > FRAGMENTS_KEPT || forgotten == 0, "{forgotten} of {keys}");
    assert!((1..SLOTS).any(|slot| judge.load(slot, BEHIND) > 0), "no receiver was behind");
    // Every outcome and every verdict was seen, or the packets are not the intended ones.
    assert!(kinds.iter().all(|count| *count > 0), "{kinds:?}");
    assert!([DROP, PASS, REDIRECT].iter().all(|&verdict| judge.verdicts[verdict as usize] > 0));
    // SAFETY: closes the descriptor made above once.
    unsafe { libc::close(socket) };
}

/// Threads that run the program at once, and packets of each.
const THREADS: u64 = 4;
const PACKETS: u32 = 30_000;

#[test]
#[ignore = "needs root: loads a program into the kernel"]
fn no_packet_passes_twice_on_one_eligible_time() {
    let mut judge = Judge::new();
    let (depth, interval) = (50_000, 1 << 40);
    judge.set_quota(1, Quota { interval, step: 0, depth });
    let frame = ethernet(&[], 0x0800, &ipv4(IPV4[0], 17, 1, 0, &transport(PORTS[0], &[0; 22])));
    let begun = monotonic_ns();
    let judge = &judge;
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for _ in 0..PACKETS {
                    judge.run(&frame, 1);
                }
            });
        }
    });
    let ended = monotonic_ns();
    let [passed, dropped, contended] = [PASSED, DROPPED, CONTENDED].map(|at| judge.load(1, at));
    assert_eq!(passed + dropped + contended, THREADS * u64::from(PACKETS));
    assert_eq!(passed, depth, "{dropped} dropped, {contended} contended");
    let first = judge.load(1, NEXT_ELIGIBLE) - passed * interval;
    assert!((begun..=ended).contains(&first), "{begun} {first} {ended}");
}

/// Paths through the program are short of the kernel's limit, a million instructions, because other
/// kernels count differently.
const VERIFIED_MAX: u32 = 100_000;

#[test]
#[ignore = "needs root: loads a program into the kernel"]
fn the_verifier_has_little_to_do() {
    let loaded = Loaded::load().unwrap();
    let program: &Xdp = loaded.object.program(PROGRAM).unwrap().try_into().unwrap();
    let count = program.info().unwrap().verified_instruction_count().unwrap();
    println!("the verifier looked at {count} instructions");
    let slots = aya::maps::MapInfo::from_id(loaded.slots.info().unwrap().id()).unwrap();
    assert_eq!((slots.max_entries(), slots.value_size()), (quota_pages::SLOTS, 128));
    assert!(count < VERIFIED_MAX, "{count}");
}

/// Says what a packet costs. Run it with `--nocapture`.
#[test]
#[ignore = "needs root: loads a program into the kernel"]
fn the_cost_of_a_packet_is_measured() {
    let mut judge = Judge::new();
    let frame = |port| ethernet(&[], 0x0800, &ipv4(IPV4[0], 17, 1, 0, &transport(port, &[0; 22])));
    let no_wait = Quota { interval: 1, step: 0, depth: 1000 };
    let never = Quota { interval: 1 << 50, step: 0, depth: 1 };
    judge.set_quota(1, no_wait);
    judge.set_quota(2, never);
    judge.set(7, ACTION, ACTION_DROP);
    for (name, frame, verdict) in [
        ("not IP", ethernet(&[], 0x0806, &[0; 50]), PASS),
        ("a pass with a quota", frame(PORTS[0]), PASS),
        ("a pass without a slot", frame(PORTS[4]), PASS),
        ("a drop by the quota", frame(PORTS[1]), DROP),
        ("a drop by the action", frame(PORTS[3]), DROP),
    ] {
        judge.run(&frame, 1); // uses up the quota of slot 2
        let mut costs: Vec<u128> = (0..9)
            .map(|_| {
                let (found, duration) = judge.run(&frame, 200_000);
                assert_eq!(found, verdict, "{name}");
                duration.as_nanos()
            })
            .collect();
        costs.sort_unstable();
        println!("{name}: {} ns, median of 9, from {} to {}", costs[4], costs[0], costs[8]);
    }
}
