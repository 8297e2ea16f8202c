//! A part of a CPU.

use core::fmt;

/// Part of a CPU, in millionths. `0 < share <= 1_000_000`.
///
/// ```
/// # extern crate upcall_core as upcall;
/// use upcall::admission::Share;
///
/// assert_eq!(Share::from_ppm(900_000), Some(Share::CPU_LIMIT_DEFAULT)); // 90 %
/// assert_eq!(Share::from_ppm(0), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Share(u32);

impl Share {
    /// The whole CPU.
    pub const WHOLE: Share = Share(1_000_000);

    /// The part of a CPU that admission grants by default, 90 %. By default the kernel stops the
    /// whole real-time class above 95 % (`sched_rt_runtime_us`).
    pub const CPU_LIMIT_DEFAULT: Share = Share(900_000);

    /// The highest safe limit, 95 %. Above it the kernel may stop the whole real-time class for a
    /// while, the watchdog included.
    pub(crate) const CPU_LIMIT_SAFE: Share = Share(950_000);

    /// `ppm` millionths, `None` outside `1 ..= 1_000_000`.
    pub const fn from_ppm(ppm: u32) -> Option<Share> {
        match ppm {
            1..=1_000_000 => Some(Share(ppm)),
            _ => None,
        }
    }

    /// The share in millionths.
    pub const fn ppm(self) -> u32 {
        self.0
    }

    /// The share as a fraction of 1.
    pub fn as_f64(self) -> f64 {
        f64::from(self.0) / 1e6
    }
}

impl fmt::Display for Share {
    /// Prints percent, with as many decimal places as needed: `90 %`, `33.3333 %`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&percent(u64::from(self.0)))
    }
}

/// Millionths as percent, without trailing zeros.
pub(crate) fn percent(ppm: u64) -> String {
    let (whole, fraction) = (ppm / 10_000, format!("{:04}", ppm % 10_000));
    match fraction.trim_end_matches('0') {
        "" => format!("{whole} %"),
        fraction => format!("{whole}.{fraction} %"),
    }
}
