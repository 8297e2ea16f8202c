//! What the activities of each process claim, the parts of the CPU that follow from it, and the
//! quantum in which they are served.

use upcall::activity::Claim;
use upcall::admission::Share;
use upcall::discipline::{Discipline, ps_with_quantum};
use upcall::time::Span;

/// The time quantum, and the length of a PDU.
pub(crate) const QUANTUM: Span = Span::from_micros(100);

/// The discipline of the daemon and the domains.
pub(crate) static PS_OF_QUANTUM: Discipline = ps_with_quantum(QUANTUM);

/// The share of the first process, and that of the second beside more than one other.
const SHARES_PPM: [u32; 2] = [200_000, 100_000];

/// The claims of each of `processes` processes: first shares, then growing weights. Every second
/// process with weights has two activities, so that its own scheduler divides its part.
pub(crate) fn claims(processes: u32) -> Vec<Vec<Claim>> {
    let shares = if processes > 2 { 2 } else { 1 };
    let claims_of = |place: u32| {
        let Some(base) = place.checked_sub(shares) else {
            let share = Share::from_ppm(SHARES_PPM[place as usize]);
            return vec![Claim::Share(share.expect("it is in range"))];
        };
        let first = Claim::Weight(base + 1);
        let second = Claim::Weight(2 * (base + 1));
        if (processes - place) % 2 == 1 { vec![first, second] } else { vec![first] }
    };
    (0..processes).map(claims_of).collect()
}

/// The part of each process, in what all processes get together: its shares, and by its weights a
/// part of what all shares leave of the limit (docs/decisions/0022).
pub(crate) fn parts(of: &[Vec<Claim>]) -> Vec<f64> {
    let limit = f64::from(Share::CPU_LIMIT_DEFAULT.ppm());
    let sums: Vec<(f64, f64)> = of.iter().map(|claims| sums_of(claims)).collect();
    let shares: f64 = sums.iter().map(|of| of.0).sum();
    let weights: f64 = sums.iter().map(|of| of.1).sum();
    sums.iter().map(|of| (of.0 + (limit - shares) * of.1 / weights) / limit).collect()
}

/// The shares in millionths, and the weights.
fn sums_of(claims: &[Claim]) -> (f64, f64) {
    claims.iter().fold((0.0, 0.0), |(shares, weights), claim| match claim {
        Claim::Share(share) => (shares + f64::from(share.ppm()), weights),
        Claim::Weight(weight) => (shares, weights + f64::from(*weight)),
    })
}

/// The claims of a process in a word, for its role: `share:200000` or `weight:1+weight:2`.
pub(crate) fn text(claims: &[Claim]) -> String {
    let words = claims.iter().map(|claim| match claim {
        Claim::Share(share) => format!("share:{}", share.ppm()),
        Claim::Weight(weight) => format!("weight:{weight}"),
    });
    words.collect::<Vec<_>>().join("+")
}

/// The claims in such a word.
pub(crate) fn parse(text: &str) -> Vec<Claim> {
    let claim = |word: &str| {
        let (kind, number) = word.split_once(':').expect("a kind and a number");
        let number = number.parse().expect("a number");
        match kind {
            "share" => Claim::Share(Share::from_ppm(number).expect("it is in range")),
            _ => Claim::Weight(number),
        }
    };
    text.split('+').map(claim).collect()
}
