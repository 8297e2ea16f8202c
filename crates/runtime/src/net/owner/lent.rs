//! The owner's end of a flow: its queues, and the frames that it lent.

use std::net::SocketAddr;
use std::sync::{Arc, Weak};

use upcall_core::time::{Instant, Span};
use upcall_shm::PeerFault;
use upcall_shm::frames::account::{AccountError, Holder};
use upcall_shm::frames::queue::{Reader, Writer};
use upcall_shm::frames::{Account, Descriptor, HEADROOM_BYTES, Note};
use upcall_shm::stream::Payload;
use upcall_sys::clock::thread_cpu_ns;
use upcall_sys::wake_socket::{self, WakeReceiver, WakeSender};

use super::counts::FlowCounts;
use super::error::OwnerError;
use crate::net::apart::{LentMemory, OwnerEnds};
use crate::net::device::{Area, Device};
use crate::net::flow::{FlowError, FlowForm, Ring, Rings, UdpFlow};
use crate::net::port::BATCH_FRAMES;
use crate::net::port::Port;

/// The part of a CPU that wake-ups of a program of another process may take is 1 in so many. One
/// takes some 8 us, so a program can be woken in each millisecond.
const WAKE_SHARE: u64 = 64;
/// So far may a flow be ahead of that share: wake-ups of 3 ms at once.
const WAKE_AHEAD: Span = Span::from_millis(3 * WAKE_SHARE);

/// The CPU time that all wake-ups of one call may take, less the last one.
pub(super) const WAKES_A_CALL: Span = Span::from_micros(50);

/// Where the frames of a flow are.
#[derive(Debug)]
pub(super) enum Memory {
    /// In the area of the port. Gone when the program has dropped its end.
    Shared(Weak<()>),
    /// In an area of its own.
    Apart { area: Area, account: Account },
}

/// The owner's end of a flow.
#[derive(Debug)]
pub(super) struct Flow {
    pub(super) local: SocketAddr,
    pub(super) memory: Memory,
    pub(super) receive: Writer<Ring>,
    pub(super) received: Reader<Ring>,
    pub(super) transmit: Reader<Ring>,
    pub(super) transmitted: Writer<Ring>,
    wake: WakeSender,
    /// Whether the program sleeps, and was not woken yet.
    must_wake: bool,
    /// When its share has paid for the wake-ups until now.
    wakes_paid: Instant,
    /// Frames with datagrams that the program has. At most `receive_slots`.
    pub(super) lent: u32,
    pub(super) receive_slots: u32,
    /// The first packet to send.
    pub(super) head: Option<Descriptor>,
    /// Whether the program was not shown yet that packets were taken.
    pub(super) has_taken: bool,
    /// Packets that were dropped since one was sent.
    pub(super) drops: u32,
    /// Nothing of it is looked at before.
    pub(super) paused_until: Instant,
    /// Whether its packets wait for their eligible times.
    pub(super) has_quota: bool,
    /// Whether the program was not shown yet what was handed over.
    pub(super) is_dirty: bool,
    pub(super) counts: FlowCounts,
}

/// A program broke a queue of its flow.
#[derive(Debug)]
pub(super) enum Fault {
    Queue(#[expect(dead_code, reason = "for the debugger")] PeerFault),
    Account(#[expect(dead_code, reason = "for the debugger")] AccountError),
}

impl From<PeerFault> for Fault {
    fn from(fault: PeerFault) -> Self {
        Fault::Queue(fault)
    }
}

impl From<AccountError> for Fault {
    fn from(error: AccountError) -> Self {
        Fault::Account(error)
    }
}

impl Flow {
    /// A flow in the area of the port, and the program's end of it.
    pub(super) fn shared<D: Device>(
        local: SocketAddr,
        form: FlowForm,
        port: &mut Port<D>,
        slot: u32,
    ) -> Result<(Flow, UdpFlow), OwnerError> {
        let frames = port.area().form();
        let rings = Rings::create(form, frames)?;
        let again = rings.again()?;
        let needed = form.transmit_slots;
        // Some stay for the packets of the host, and for what flows are told.
        if port.spare() < needed as usize + BATCH_FRAMES {
            return Err(OwnerError::Frames { needed });
        }
        let free: Vec<u32> =
            (0..needed).map_while(|_| port.account().take(Holder::Flow(slot))).collect();
        if free.len() < needed as usize {
            return Err(OwnerError::Frames { needed });
        }
        let (alive, area) = (Arc::new(()), port.shared_area());
        let memory = Memory::Shared(Arc::downgrade(&alive));
        let (wake, woken) = wake_socket::pair().map_err(FlowError::Os)?;
        let end = UdpFlow::attach(local, (area, Some(alive)), (again, woken), free)?;
        let ends = OwnerEnds::attach(rings, frames)?;
        Ok((Flow::new(local, form, ends, (memory, wake)), end))
    }

    /// A flow in an area of its own, and the end of its wake-ups for its program.
    pub(super) fn apart(
        local: SocketAddr,
        memory: LentMemory,
        slot: u32,
    ) -> Result<(Flow, WakeReceiver), FlowError> {
        let LentMemory { form, area, ends } = memory;
        let mut account = Account::new(area.form().frames);
        // The lowest frames, as `FlowMemory::attach` expects.
        for _ in 0..form.transmit_slots {
            account.take(Holder::Flow(slot));
        }
        let (sender, wake) = wake_socket::pair().map_err(FlowError::Os)?;
        let own = (Memory::Apart { area, account }, sender);
        Ok((Flow::new(local, form, ends, own), wake))
    }

    fn new(
        local: SocketAddr,
        form: FlowForm,
        ends: OwnerEnds,
        (memory, wake): (Memory, WakeSender),
    ) -> Flow {
        let OwnerEnds { receive, received, transmit, transmitted } = ends;
        Flow {
            local,
            memory,
            receive,
            received,
            transmit,
            transmitted,
            wake,
            must_wake: false,
            wakes_paid: Instant::ZERO,
            lent: 0,
            receive_slots: form.receive_slots,
            head: None,
            drops: 0,
            paused_until: Instant::ZERO,
            has_taken: false,
            has_quota: false,
            is_dirty: false,
            counts: FlowCounts::default(),
        }
    }

    /// Whether the program of this process has dropped its end.
    pub(super) fn is_gone(&self) -> bool {
        matches!(&self.memory, Memory::Shared(alive) if alive.strong_count() == 0)
    }

    /// Whether the program has room for one more frame.
    pub(super) fn has_room(&self) -> bool {
        self.lent < self.receive_slots
    }

    /// Hands a frame over that the account has with the flow.
    #[inline(always)]
    pub(super) fn push(&mut self, part: Descriptor) -> Result<bool, Fault> {
        let pushed = self.receive.push(part)?;
        self.lent += u32::from(pushed);
        self.is_dirty |= pushed;
        Ok(pushed)
    }

    /// Copies `payload` into a frame of the flow's own area and hands it over. `false`: there is no
    /// room.
    pub(super) fn copy(
        &mut self,
        slot: u32,
        payload: Payload<'_>,
        note: &Note,
    ) -> Result<bool, Fault> {
        self.hand_own(slot, payload.len(), note, |place| place.copy_from(&payload))
    }

    /// Hands over a frame of the flow's own area with a note alone. `false`: there is no room.
    pub(super) fn note_alone(&mut self, slot: u32, note: &Note) -> Result<bool, Fault> {
        self.hand_own(slot, 0, note, |_| 0)
    }

    fn hand_own(
        &mut self,
        slot: u32,
        bytes: usize,
        note: &Note,
        fill: impl FnOnce(Payload<'_>) -> usize,
    ) -> Result<bool, Fault> {
        let has_room = self.has_room();
        let Memory::Apart { area, account } = &mut self.memory else { return Ok(false) };
        let Some(length) = u16::try_from(bytes).ok().filter(|_| has_room) else {
            return Ok(false);
        };
        let Some(frame) = account.take(Holder::Flow(slot)) else { return Ok(false) };
        let part = Descriptor { frame, offset: HEADROOM_BYTES, length };
        let Ok(place) = area.part(part) else {
            // Too long for a frame of this area.
            account.hand_over(frame, Holder::Flow(slot), Holder::Free)?;
            return Ok(false);
        };
        fill(place);
        area.write_note(part, note)?;
        if !self.push(part)? {
            let Memory::Apart { account, .. } = &mut self.memory else { return Ok(false) };
            account.hand_over(frame, Holder::Flow(slot), Holder::Free)?;
            return Ok(false);
        }
        Ok(true)
    }

    /// Shows the program what was taken and handed over. One store for each queue. Slots first: so
    /// whenever a frame is back, there is a slot for it. A program that armed is woken, with one
    /// system call.
    ///
    /// `wakes_left` is the CPU time that wake-ups of this call may still take. A flow for which
    /// none is left is woken by a later call.
    pub(super) fn show(&mut self, now: Instant, wakes_left: &mut Span) {
        if std::mem::take(&mut self.has_taken) {
            self.transmit.release();
        }
        if std::mem::take(&mut self.is_dirty) {
            self.receive.publish();
            self.transmitted.publish();
            self.must_wake |= self.receive.must_notify();
        }
        if self.must_wake && self.wakes_paid <= now + WAKE_AHEAD && !wakes_left.is_zero() {
            *wakes_left = wakes_left.saturating_sub(self.wake(now));
        }
    }

    /// Wakes the program. One that watches its descriptor with thousands of epoll sets makes that
    /// take milliseconds of the owner's time. So programs of other processes have a share. Returns
    /// what the wake-up took of the CPU, for such a program.
    fn wake(&mut self, now: Instant) -> Span {
        let begin_ns = thread_cpu_ns();
        // Without memory of the kernel the next call tries again.
        self.must_wake = self.wake.wake().is_err();
        if matches!(self.memory, Memory::Shared(_)) {
            return Span::ZERO;
        }
        let cost_ns = thread_cpu_ns().saturating_sub(begin_ns);
        let share = Span::from_nanos(cost_ns.saturating_mul(WAKE_SHARE));
        self.wakes_paid = self.wakes_paid.max(now) + share;
        Span::from_nanos(cost_ns)
    }
}
