//! One interface of the packet quotas. (Backend to come.)
use core::fmt;
use upcall_shm::wire::{PacketCounts, PacketQuota};
pub(super) const SLOTS: u32 = 1024;
#[derive(Debug)]
pub(crate) struct InterfaceError;
impl fmt::Display for InterfaceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no")
    }
}
impl core::error::Error for InterfaceError {}
pub(super) struct Interface {
    name: String,
}
impl Interface {
    pub(super) fn attach(name: &str) -> Result<Self, InterfaceError> {
        Ok(Interface { name: name.to_owned() })
    }
    pub(super) fn name(&self) -> &str {
        &self.name
    }
    pub(super) fn set(&mut self, _slot: u32, _quota: &PacketQuota) -> Result<(), InterfaceError> {
        Ok(())
    }
    pub(super) fn remove(&mut self, _slot: u32, _quota: &PacketQuota) {}
    pub(super) fn counts(&self, _slot: u32) -> PacketCounts {
        PacketCounts::default()
    }
    pub(super) fn place(&self, _protected: &[u32]) -> String {
        self.name.clone()
    }
}
