//! Network interfaces behind one trait, and the account of their frames
//! (docs/decisions/0024-network.md, section 4).
//!
//! The owner of an interface makes a [`Device`] over an area of frames, and drives it through a
//! [`Port`], which writes down who has each frame. Nothing here blocks, and no call of a real
//! device allocates after it was made. A frame is bytes, and no protocol is known here. Only the
//! device over UDP sockets writes and reads headers, because its kernel keeps them.
//!
//! ```text
//!   Port                                    Device
//!   (1) supply: free frames      ---->      may receive into them
//!   (2) receive: parts           <----      frames that arrived
//!   (3) release, or lend to a flow
//!   (4) transmit: parts          ---->      sends them, in order
//!   (5) collect                  <----      frames that were sent
//!   (6) close: what the device still had is free again
//! ```
//!
//! | device | where frames move | system calls |
//! |---|---|---|
//! | [`XdpDevice`] | the kernel writes the area; in copy mode with one copy | receive: none while frames come, 1 if there is none; transmit: 1 per 32 frames |
//! | [`PacketRingDevice`] | the kernel copies into its rings, the device into the area | receive: none while frames come, 1 if there is none; transmit: 1 per batch |
//! | [`FileDevice`] (TAP, packet socket) | the kernel copies into the area | 1 per frame, and 1 that finds none |
//! | [`UdpDevice`] | the kernel copies payloads, the device writes and reads headers | receive: 1 per socket, for up to 512 datagrams; transmit: 1 per 64 frames of a socket |
//! | [`MemoryDevice`] | a model of a wire, for tests | none |
//!
//! Who is the host of the addresses ([`Paths`]) depends on the device:
//!
//! | device | rights | the kernel's addresses, [`Paths::Kernel`] | addresses of its own, [`Paths::Own`] |
//! |---|---|---|---|
//! | [`XdpDevice`] | `CAP_NET_RAW`; the XDP program `CAP_BPF`, `CAP_NET_ADMIN`, `CAP_PERFMON` | yes: `UdpInterface` (feature `xdp`) sends the packets of flows here, and the kernel gets the rest | no: the program leaves ARP to the kernel |
//! | [`PacketRingDevice`], [`FileDevice::packet`] | `CAP_NET_RAW` | no: the kernel works on each packet too, and refuses ports that it does not know | yes, if the kernel lacks the addresses |
//! | [`FileDevice::tap`] | `CAP_NET_ADMIN` | no: the kernel is at the other end | yes |
//! | [`UdpDevice`] | none | its sockets find the way; an owner over it was not tried | no: its sockets carry no ARP |
//! | [`MemoryDevice`] | none | for tests | for tests |
//!
//! [`Owner::with_host`] makes an owner with addresses of its own.

mod apart;
mod choice;
mod device;
mod file;
mod flow;
mod frame_lists;
#[cfg(feature = "xdp")]
mod interface;
mod memory;
mod open;
mod owner;
mod packet_ring;
mod port;
#[cfg(feature = "xdp")]
mod program;
mod udp_device;
mod xdp;

pub use apart::{FlowMemory, FlowOffer, LentMemory};
pub use choice::{Choice, Chosen, Redirect, choose};
pub use device::{Area, Device, DeviceDrops, DeviceError, HEADROOM_BYTES, area};
pub use file::FileDevice;
pub use flow::{Datagram, FlowError, FlowForm, Outgoing, Received, UdpFlow};
#[cfg(feature = "xdp")]
pub use interface::{InterfaceError, InterfaceSettings, UdpInterface};
pub use memory::MemoryDevice;
pub use open::{FlowCause, FlowRequest, OpenFlowError};
pub use owner::{
    Checksums, FlowCounts, FlowTerms, KernelPaths, Owner, OwnerCounts, OwnerError, OwnerSettings,
    Paths,
};
pub use packet_ring::PacketRingDevice;
pub use port::{BATCH_FRAMES, Port, Sent};
#[cfg(feature = "xdp")]
pub use program::{Program, ProgramError, WeakProgram, flow_slot};
pub use udp_device::{UDP_SOCKETS_MAX, UdpDevice};
pub use upcall_proto::flow::BindError;
pub use upcall_proto::host;
pub use upcall_proto::link::LinkSpec;
pub use upcall_proto::packet::LinkAddress;
pub use upcall_proto::queues::Counts;
pub use upcall_proto::quota::Quota;
pub use upcall_proto::transmit::{Share, Spread};
pub use upcall_shm::frames::account::{AccountError, Holder, HolderCounts};
pub use upcall_shm::frames::{Account, Descriptor, FrameForm, FrameSize, NoteKind};
#[cfg(feature = "xdp")]
pub use upcall_shm::quota_page;
pub use upcall_shm::{LayoutError, PeerFault};
pub use upcall_sys::af_xdp::CopyMode;
#[cfg(feature = "xdp")]
pub use upcall_sys::early_drop::{Destination, EarlyDropError, Mode, QuotaPages, Request};
pub use upcall_sys::interface::{
    AttachedXdp, Interface, XdpFeatures, XdpMode, all as interfaces, index as interface_index,
};
pub use upcall_sys::memfd::MapError;
pub use xdp::XdpDevice;
