//! How much of an interface there is, and how much of it a user may have.

/// The most flows of an interface. The network thread looks at each in each period, which takes it
/// about 5 ns a flow.
pub(crate) const FLOWS_MAX: u32 = 128;
/// The most flows of a user on all interfaces: an eighth, so that one user leaves room for others.
pub(super) const FLOWS_OF_USER_MAX: usize = 16;
/// The most frames of a user's flows: 16 MiB. The kernel charges the programs for them, and the
/// daemon locks them in memory until their flows end.
pub(super) const FRAMES_OF_USER_MAX: u32 = 8192;
/// The most frames of the flows of all users, 128 MiB: what 8 users may have.
pub(super) const FRAMES_OF_ALL_MAX: u32 = 65_536;
/// Frames of the area of an interface, of 2 KiB: 16 MiB. Half is for the device to receive into, a
/// quarter for packets that wait for their eligible times, and a quarter for those that the device
/// sends.
pub(super) const FRAMES: u32 = 8192;
/// The most packets of all flows of an interface that may wait for their eligible times.
pub(super) const DEPTHS_MAX: u32 = FRAMES / 4;
/// The same, of a user.
pub(super) const DEPTHS_OF_USER_MAX: u32 = DEPTHS_MAX / 4;
/// The ports below are root's.
pub(super) const PORT_LEAST: u16 = 1024;
