//! A host in user space, with an address that the kernel does not have: it answers ARP and ping,
//! and sends back each datagram to port 7 (echo, RFC 862). The kernel sees only Ethernet.
//!
//! With a network interface of its own (TAP), which needs `CAP_NET_ADMIN`:
//!
//! ```sh
//! cargo build --release -p upcall --example own_address
//! sudo target/release/examples/own_address 10.9.0.2/24 --tap upcall0
//! ```
//!
//! In another shell give the kernel an address at the other end, and talk to the host:
//!
//! ```sh
//! sudo ip address add 10.9.0.1/24 dev upcall0 && sudo ip link set upcall0 up
//! ping -c 3 10.9.0.2
//! echo hello | nc -u -w 1 10.9.0.2 7
//! ```
//!
//! On a network that exists, by a packet socket with rings, which needs `CAP_NET_RAW`. Take a free
//! address of that network. Other machines reach the host; the kernel of this machine does not,
//! because what it sends does not arrive at its own interface:
//!
//! ```sh
//! sudo target/release/examples/own_address 192.168.1.77/24 --interface eth1 --gateway 192.168.1.1
//! ```
//!
//! It ends by Ctrl-C, or after the datagrams of `--packets N`, and prints what it did:
//!
//! ```text
//! echoed 1 datagrams, 5 packets for the host (ARP, ping)
//! ```
//!
//! ```text
//!   kernel or wire <-> device <-> owner (ARP, ping, UDP) <-> flow of port 7 <-> echo
//!                                 \____ one handler, upcalled each millisecond ____/
//! ```

use std::error::Error;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use upcall::activity::ActivityParams;
use upcall::net::host::{AddressPrefix, HostSettings};
use upcall::net::{
    Checksums, Device, FileDevice, FlowError, FlowTerms, FrameForm, FrameSize, Owner,
    OwnerSettings, PacketRingDevice, UdpFlow, area, interfaces,
};
use upcall::time::Span;
use upcall::{Config, Runtime, clock};

const USAGE: &str = "own_address ADDRESS/PREFIX (--tap NAME | --interface NAME) \
                     [--gateway ADDRESS] [--packets N]";
/// Echo, RFC 862.
pub const PORT: u16 = 7;
/// The address of the device behind the TAP interface: one that no maker gave (IEEE 802).
const LINK: [u8; 6] = [2, 0, 0, 0, 0, 1];
/// How often the handler looks, and the most CPU time that it takes then.
const PERIOD: Span = Span::from_millis(1);
const COST: Span = Span::from_micros(200);
/// The most packets in each direction that it processes in a period.
const PACKETS_MAX: u32 = 64;
/// Frames of 2 KiB: half of them to receive into.
const FORM: FrameForm = FrameForm { frames: 1024, size: FrameSize::Half };

/// Where the host is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// Behind a new TAP interface with this name.
    Tap(String),
    /// Beside the kernel, on this interface.
    Interface(String),
}

/// The arguments of the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The address of the host.
    pub address: AddressPrefix,
    /// Where it is.
    pub place: Place,
    /// Where packets to other networks go.
    pub gateway: Option<IpAddr>,
    /// How many datagrams it sends back. `None`: until Ctrl-C.
    pub packets: Option<u64>,
}

impl Request {
    /// # Errors
    /// If an argument is unknown, missing, or no address, prefix or number.
    pub fn parse(arguments: impl IntoIterator<Item = String>) -> Result<Self, Box<dyn Error>> {
        let (mut address, mut place, mut gateway, mut packets) = (None, None, None, None);
        let mut arguments = arguments.into_iter();
        while let Some(argument) = arguments.next() {
            if !argument.starts_with('-') && address.is_none() {
                address = Some(argument.parse()?);
                continue;
            }
            let value = arguments.next().ok_or(USAGE)?;
            match &*argument {
                "--tap" => place = Some(Place::Tap(value)),
                "--interface" => place = Some(Place::Interface(value)),
                "--gateway" => gateway = Some(value.parse()?),
                "--packets" => packets = Some(value.parse()?),
                _ => return Err(USAGE.into()),
            }
        }
        let (address, place) = (address.ok_or(USAGE)?, place.ok_or(USAGE)?);
        Ok(Request { address, place, gateway, packets })
    }
}

/// What the host did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Served {
    /// Datagrams that were sent back.
    pub echoed: u64,
    /// Packets for the host itself: ARP, discovery, ping, errors.
    pub control: u64,
}

fn main() -> Result<(), Box<dyn Error>> {
    let request = Request::parse(std::env::args().skip(1))?;
    let stop = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(signal_hook::consts::SIGINT, stop.clone())?;
    let Served { echoed, control } = serve(&request, stop)?;
    println!("echoed {echoed} datagrams, {control} packets for the host (ARP, ping)");
    Ok(())
}

/// Is the host until `stop`, or until it has sent back the requested datagrams.
///
/// # Errors
/// The device is refused, such as for want of a right, or the handler is.
pub fn serve(request: &Request, stop: Arc<AtomicBool>) -> Result<Served, Box<dyn Error>> {
    let area = area(FORM)?;
    let mut host = HostSettings::new(LINK, vec![request.address]);
    host.gateways.extend(request.gateway);
    let mut settings = OwnerSettings::default();
    let device: Box<dyn Device + Send> = match &request.place {
        Place::Tap(name) => Box::new(FileDevice::tap(&area, name)?),
        Place::Interface(name) => {
            let found = interfaces()?.into_iter().find(|found| found.name == *name);
            let found = found.ok_or_else(|| format!("there is no interface `{name}`"))?;
            // With the address of the interface, so that it takes what is sent to the host.
            host.link = found.link.ok_or("the interface has no address of Ethernet")?;
            host.mtu = u16::try_from(found.mtu_bytes).unwrap_or(u16::MAX).min(host.mtu);
            settings.checksums = Checksums::of(&found);
            Box::new(PacketRingDevice::open(&area, found.index)?)
        }
    };
    let mut owner = Owner::with_host(area, device, host, settings)?;
    let local = SocketAddr::new(request.address.address, PORT);
    let (_, mut flow) = owner.bind(FlowTerms::new(local))?;

    let mut runtime = Runtime::start(Config::default())?;
    for notice in runtime.notices() {
        eprintln!("{notice}");
    }
    let counts = Arc::new((AtomicU64::new(0), AtomicU64::new(0)));
    let packets_max = request.packets.unwrap_or(u64::MAX);
    let need = ActivityParams::new(PERIOD, COST);
    let handler = runtime.handler("host", need, {
        let counts = counts.clone();
        let mut echoed = 0;
        move |batch| {
            while batch.proceed() {
                let now = clock::now();
                // An error is no end: an interface that is down may come up.
                let _ = owner.input(now, PACKETS_MAX);
                echoed += match echo(&mut flow, packets_max - echoed) {
                    Ok(datagrams) => datagrams,
                    // Only a fault of this program: the owner is here.
                    Err(_) => return batch.finish(),
                };
                // After the echo, so that an answer leaves in the same period.
                let _ = owner.output(now, PACKETS_MAX);
                counts.0.store(echoed, Ordering::Relaxed);
                counts.1.store(owner.counts().control, Ordering::Relaxed);
            }
            if echoed == packets_max || stop.load(Ordering::Relaxed) {
                batch.finish();
            }
        }
    })?;
    runtime.run(handler)?;
    eprintln!("{local} sends back; Ctrl-C ends it");
    runtime.wait(&[handler], None);
    // The handler is dropped here, and with it the flow, the owner and the device.
    runtime.stop(|_, _| {});
    let [echoed, control] = [&counts.0, &counts.1].map(|count| count.load(Ordering::Relaxed));
    Ok(Served { echoed, control })
}

/// Sends back what has arrived, at most `most` datagrams. Returns how many those were.
fn echo(flow: &mut UdpFlow, most: u64) -> Result<u64, FlowError> {
    let (mut echoed, mut payload) = (0, [0; 2048]);
    while echoed < most
        && let Some((length, peer, _)) = flow.receive(&mut payload)?
    {
        // No frame is free for sending: as on a wire that is too slow, the datagram is lost.
        echoed += u64::from(flow.send(&payload[..length], peer)?);
    }
    flow.flush();
    Ok(echoed)
}
