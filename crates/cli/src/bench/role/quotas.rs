//! The owner of the quotas at the receivers' interface. The quotas go with this process.

use std::net::IpAddr;
use std::time::Duration;

use upcall_daemon::early_drop::{Destination, EarlyDrop, Mode, Request};
use upcall_daemon::interface;
use upcall_daemon::quota_page::{Owner, Quota};

use super::counts::Quotas;
use super::dialogue::{now_ns, print_counts, times};
use crate::bench::load::{Config, RECEIVERS};
use crate::bench::wire::ADDRESS;
use crate::exit::Failure;

const UDP: u8 = 17;
/// The slot of all receivers, or of the first one. Slot 0 is for packets to others.
const FIRST_SLOT: u32 = 1;
/// So long after the end packets may still be under way.
const SETTLE: Duration = Duration::from_millis(50);

/// Keeps the quotas of configuration `config` at `interface`.
///
/// # Errors
/// The configuration has no quotas, or the kernel refuses the program.
pub fn keep(interface: &str, config: u8) -> Result<(), Failure> {
    let config = Config::of_number(config).filter(|config| config.has_quotas());
    let config = config.ok_or_else(|| Failure::new("found a configuration without quotas"))?;
    let index = interface::index(interface).map_err(Failure::of_error)?;
    let mut early_drop = EarlyDrop::attach(index, Request::Auto).map_err(Failure::of_error)?;
    let pages = early_drop.map_quota_page().map_err(Failure::of_error)?;
    let page = Owner::new(pages).map_err(Failure::of_error)?;
    for (receiver, own_slot) in RECEIVERS.iter().zip(FIRST_SLOT..) {
        let slot = if config == Config::OneQuota { FIRST_SLOT } else { own_slot };
        if let Some(rule) = config.quota(receiver) {
            let quota = Quota::new(rule.interval_ns, rule.step_ns, rule.depth);
            page.set_quota(slot, quota.map_err(Failure::of_error)?);
        }
        let address = IpAddr::V4(ADDRESS);
        let destination = Destination { address, protocol: UDP, port: receiver.port };
        early_drop.insert(destination, slot).map_err(Failure::of_error)?;
    }
    let Some(times) = times()? else { return Ok(()) };
    std::thread::sleep(Duration::from_nanos(times.end_ns.saturating_sub(now_ns())) + SETTLE);
    let slots = (FIRST_SLOT..).take(RECEIVERS.len());
    let counters = slots.map(|slot| page.counters(slot));
    let dropped = counters.map(|of| of.dropped + of.contended).sum();
    print_counts(&Quotas { native: early_drop.mode() == Mode::Native, dropped })
}
