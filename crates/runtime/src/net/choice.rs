//! Which device an interface gets, and why.

use super::device::{Area, Device, DeviceError};
use super::file::FileDevice;
use super::xdp::XdpDevice;
use std::sync::Arc;

use upcall_sys::af_xdp::CopyMode;

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
    /// The caller inserts [`XdpDevice::socket`] into the XDP program.
    Xdp(Box<XdpDevice>),
    /// Works without a program.
    Packet(FileDevice),
}

impl Chosen {
    /// The device, whichever it is.
    pub fn into_device(self) -> Box<dyn Device + Send> {
        match self {
            Chosen::Xdp(device) => device,
            Chosen::Packet(device) => Box::new(device),
        }
    }
}

/// A device, and why it is this one.
#[derive(Debug)]
pub struct Choice {
    /// The device.
    pub device: Chosen,
    /// One sentence for the user.
    pub reason: String,
}

/// Opens `queue` of the interface in the best way that works: AF_XDP without a copy, AF_XDP with
/// one, a packet socket. Allocates.
///
/// # Errors
/// That of the packet socket, which works everywhere with the right `CAP_NET_RAW`.
pub fn choose(
    area: &Arc<Area>,
    interface: u32,
    queue: u32,
    redirect: Redirect,
) -> Result<Choice, DeviceError> {
    let packet = |reason| {
        let device = Chosen::Packet(FileDevice::packet(area, interface)?);
        Ok(Choice { device, reason })
    };
    if redirect == Redirect::Missing {
        return packet(
            "packet socket: no XDP program of the interface redirects frames to a socket".into(),
        );
    }
    let open = |mode| XdpDevice::open(area, interface, queue, mode);
    let zero = match open(CopyMode::Zero) {
        Ok(device) => {
            let reason = "AF_XDP without a copy: the driver uses the frames itself".into();
            return Ok(Choice { device: Chosen::Xdp(Box::new(device)), reason });
        }
        Err(error) => error,
    };
    match open(CopyMode::Copy) {
        Ok(device) => {
            let reason = format!("AF_XDP with one copy: the driver cannot do without ({zero})");
            Ok(Choice { device: Chosen::Xdp(Box::new(device)), reason })
        }
        Err(error) => packet(format!("packet socket: AF_XDP does not work here ({error})")),
    }
}
