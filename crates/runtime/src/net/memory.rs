//! Two devices at the ends of a modelled wire, for tests: loss, delay, duplication and reordering
//! come from a seed, and the time is an argument.

use super::device::{Area, Device, DeviceDrops, DeviceError, HEADROOM_BYTES};
use super::frame_lists::FrameLists;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use upcall_core::time::Instant;
use upcall_proto::link::{Link, LinkSpec};
use upcall_shm::frames::Descriptor;
use upcall_sys::OsError;

/// `ENETDOWN` of errno.h.
const NETWORK_IS_DOWN: i32 = 100;

/// Both directions, each with the state of its random words.
type Wires = Mutex<[(Link, u64); 2]>;

/// One end of a wire. Sending allocates, because the model owns the frames on the way.
#[derive(Debug)]
pub struct MemoryDevice {
    wires: Arc<Wires>,
    /// The direction in which this end sends.
    outward: usize,
    area: Arc<Area>,
    frames: FrameLists,
    /// The most frames on the way in one direction.
    on_the_way_max: usize,
    drops: DeviceDrops,
}

impl MemoryDevice {
    /// The ends of a wire between two areas, with `spec` in both directions. The same `seed` gives
    /// the same faults. An end takes no frame while `on_the_way_max` are on the way from it.
    pub fn pair(
        areas: [&Arc<Area>; 2],
        spec: LinkSpec,
        seed: u64,
        on_the_way_max: usize,
    ) -> [MemoryDevice; 2] {
        let wires = Arc::new(Mutex::new([seed, !seed].map(|state| (Link::new(spec), state))));
        let end = |outward: usize| MemoryDevice {
            wires: wires.clone(),
            outward,
            area: areas[outward].clone(),
            frames: FrameLists::new(areas[outward]),
            on_the_way_max,
            drops: DeviceDrops::default(),
        };
        [end(0), end(1)]
    }

    fn wires(&self) -> MutexGuard<'_, [(Link, u64); 2]> {
        self.wires.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the other end was dropped.
    fn check(&self) -> Result<(), DeviceError> {
        match Arc::strong_count(&self.wires) {
            1 => Err(DeviceError::Down(OsError::new("wire", NETWORK_IS_DOWN))),
            _ => Ok(()),
        }
    }
}

impl Device for MemoryDevice {
    fn supply(&mut self, free: &mut Vec<u32>) -> Result<(), DeviceError> {
        self.frames.supply(free);
        Ok(())
    }

    fn receive(&mut self, now: Instant, parts: &mut Vec<Descriptor>) -> Result<(), DeviceError> {
        let before = parts.len();
        while parts.len() < parts.capacity() {
            let inward = 1 - self.outward;
            let Some((_, bytes)) = self.wires()[inward].0.receive(now) else { break };
            let most = self.area.form().size as u16 - HEADROOM_BYTES;
            let length = u16::try_from(bytes.len()).ok().filter(|&length| length <= most);
            let Some(length) = length else {
                self.drops.too_long += 1;
                continue;
            };
            let Some(&frame) = self.frames.free.last() else {
                self.drops.no_room += 1;
                continue;
            };
            let part = Descriptor { frame, offset: HEADROOM_BYTES, length };
            self.area.part(part)?.fill(0, &bytes);
            parts.push(part);
            self.frames.free.pop();
        }
        if parts.len() == before { self.check() } else { Ok(()) }
    }

    fn transmit(&mut self, now: Instant, parts: &[Descriptor]) -> Result<usize, DeviceError> {
        self.check()?;
        for (taken, part) in parts.iter().enumerate() {
            let mut bytes = vec![0; part.length.into()];
            match self.area.part(*part) {
                Ok(payload) => payload.copy_to(0, &mut bytes),
                Err(_) if taken > 0 => return Ok(taken),
                Err(fault) => return Err(fault.into()),
            };
            let mut wires = self.wires();
            let (link, state) = &mut wires[self.outward];
            if link.on_the_way() >= self.on_the_way_max {
                return Ok(taken);
            }
            link.send(bytes, now, &mut || next_word(state));
            drop(wires);
            self.frames.sent.push(part.frame);
        }
        Ok(parts.len())
    }

    fn take_sent(&mut self, frames: &mut Vec<u32>, most: usize) -> Result<(), DeviceError> {
        self.frames.take_sent(frames, most);
        Ok(())
    }

    fn drops(&mut self) -> Result<Option<DeviceDrops>, DeviceError> {
        Ok(Some(self.drops))
    }
}

/// `SplitMix64` (Steele and others 2014).
fn next_word(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut word = *state;
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}
