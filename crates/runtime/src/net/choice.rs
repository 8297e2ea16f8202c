//! Which device an interface gets, and why.

use super::device::{Area, Device, DeviceError};
use super::packet_ring::PacketRingDevice;
use super::udp_device::UdpDevice;
use super::xdp::XdpDevice;
use std::sync::Arc;

use upcall_sys::af_xdp::CopyMode;
use upcall_sys::interface::{self, XdpMode};

/// Whether an XDP program can redirect frames of the interface to a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Redirect {
    /// One is attached, and the caller will insert the socket.
    Attached,
    /// None is attached, so nothing would arrive at an AF_XDP socket.
    Missing,
}

/// The device that [`choose`] opened.
#[derive(Debug)]
pub enum Chosen {
    /// The caller inserts [`XdpDevice::sockets`] into the XDP program.
    Xdp(Box<XdpDevice>),
    /// Works without a program.
    PacketRing(Box<PacketRingDevice>),
    /// Works without any right, for all interfaces. The caller binds its addresses.
    Udp(Box<UdpDevice>),
}

impl Chosen {
    /// The device, whichever it is.
    pub fn into_device(self) -> Box<dyn Device + Send> {
        match self {
            Chosen::Xdp(device) => device,
            Chosen::PacketRing(device) => device,
            Chosen::Udp(device) => device,
        }
    }
}

/// A device, and why it is this one.
#[derive(Debug)]
pub struct Choice {
    /// The device.
    pub device: Chosen,
    /// One sentence for the user: what it is, and why not a better one.
    pub reason: String,
}

/// Opens the interface in the best way that works: AF_XDP without a copy, AF_XDP with one (native
/// or generic, as the program is), the rings of a packet socket, UDP sockets. AF_XDP has all the
/// receive queues that the interface has by now. Allocates, and asks the kernel about the
/// interface.
///
/// # Errors
/// That of the packet socket, unless only the right for it is missing.
pub fn choose(area: &Arc<Area>, interface: u32, redirect: Redirect) -> Result<Choice, DeviceError> {
    let why = match redirect {
        Redirect::Missing => "no XDP program of the interface redirects frames to a socket".into(),
        Redirect::Attached => match xdp(area, interface) {
            Ok(choice) => return Ok(choice),
            Err(why) => why,
        },
    };
    match PacketRingDevice::open(area, interface) {
        Ok(device) => {
            let reason = format!("packet socket with rings: {why}");
            Ok(Choice { device: Chosen::PacketRing(Box::new(device)), reason })
        }
        Err(DeviceError::Os(error)) if error.is_permission() => {
            let reason = format!("UDP sockets: {why}; packet sockets do not work here ({error})");
            Ok(Choice { device: Chosen::Udp(Box::new(UdpDevice::new(area))), reason })
        }
        Err(error) => Err(error),
    }
}

/// AF_XDP, without a copy if that works; or why it does not work.
fn xdp(area: &Arc<Area>, interface: u32) -> Result<Choice, String> {
    let all = interface::all().unwrap_or_default();
    let found = all.into_iter().find(|of| of.index == interface);
    let queues = found.as_ref().map_or(Ok(1), |of| interface::receive_queues(&of.name));
    let queues = queues.map_err(|error| format!("its queues are not known ({error})"))?;
    let open = |mode| XdpDevice::open(area, interface, queues, mode);
    let chosen = |device, reason| {
        let of = if queues > 1 { format!(", {queues} queues") } else { String::new() };
        Choice { device: Chosen::Xdp(Box::new(device)), reason: format!("{reason}{of}") }
    };
    let attached = found.and_then(|of| of.xdp);
    let is_generic = attached.is_some_and(|program| program.mode == XdpMode::Generic);
    let (kind, why_copy) = if is_generic {
        // A socket without a copy would bind, and get nothing from such a program.
        ("generic", "its XDP program runs after the driver".into())
    } else {
        match open(CopyMode::Zero) {
            Ok(device) => {
                let reason = "AF_XDP without a copy: the driver uses the frames itself";
                return Ok(chosen(device, reason.to_owned()));
            }
            Err(error) => ("native", format!("the driver cannot do without ({error})")),
        }
    };
    match open(CopyMode::Copy) {
        Ok(device) => Ok(chosen(device, format!("AF_XDP with one copy, {kind}: {why_copy}"))),
        Err(error) => Err(format!("AF_XDP does not work here ({error})")),
    }
}
