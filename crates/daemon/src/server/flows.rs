//! Requests for flows, and their ends.
//!
//! Part of the server's thread. [`Networks`](crate::network::Networks) has the interfaces. Any user
//! who may connect may ask: a flow gets what comes for an address and port of its own, as a socket
//! of that user would.

use std::os::fd::AsFd;
use std::sync::atomic::Ordering;

use upcall_core::time::Span;
use upcall_runtime::net::{FlowForm, FlowOffer, FlowTerms, FrameSize, Quota, Share};
use upcall_shm::wire::{
    FlowCause, FlowQuota, FlowReply, FlowShare, OpenFlow, OpenedFlow, ToDomain,
};

use super::daemon::Daemon;
use super::event::DaemonEvent;
use super::names::shown;
use super::packet_quotas::is_in_own_network;
use super::session::{OfferedFlow, SessionEnd};
use crate::network::report::NetworkReport;
use crate::network::{Asker, BoundFlow, Closed, FlowRefusal};

/// Descriptors of an offer.
const OFFER_DESCRIPTORS: u64 = 5;
/// Descriptors of a flow apart from its memory: two of wake-ups and the kernel socket, and those of
/// a new interface.
const DESCRIPTORS: u64 = 16;

impl Daemon {
    /// Offers the memory of a flow. Nothing else happens before the program has taken it: a program
    /// that does not is silent ([`Session::keeps_a_place`]), and its connection ends.
    ///
    /// [`Session::keeps_a_place`]: super::session::Session::keeps_a_place
    pub(super) fn offer_flow(&mut self, session: u64, request: OpenFlow) -> Result<(), SessionEnd> {
        let Some(client) = self.sessions.get(&session) else { return Ok(()) };
        if client.domain.is_some() {
            return Err(SessionEnd("a domain asked for a flow".to_owned()));
        }
        if client.has_flow || client.offered_flow.is_some() {
            return Err(SessionEnd("it asked for a second flow".to_owned()));
        }
        let (uid, pid) = (client.credentials.uid, client.credentials.pid);
        if let Err(reason) = is_in_own_network(pid, &client.process) {
            let cause = FlowCause::OtherNamespace;
            return self.refuse_flow(session, cause, reason);
        }
        if !self.make_room(OFFER_DESCRIPTORS, Some(session)) {
            return self.refuse_for_descriptors(session);
        }
        let (asker, terms) = (Asker { session, uid, pid }, terms_of(&request));
        let interface = request.interface;
        let offer = self.networks.check(&interface, &terms, asker).and_then(|()| {
            FlowOffer::create(terms.form, FrameSize::Half).map_err(FlowRefusal::Memory)
        });
        match offer {
            Ok(offer) => {
                let frame_bytes = offer.frames().size as u32;
                let offered = ToDomain::Flow(FlowReply::Offered { frame_bytes });
                self.send(session, &offered, &offer.fds())?;
                if let Some(client) = self.sessions.get_mut(&session) {
                    client.offered_flow = Some(OfferedFlow { interface, terms, offer });
                }
                Ok(())
            }
            Err(refusal) => self.refuse(session, &interface, &refusal),
        }
    }

    /// Opens the flow whose memory the program has taken.
    pub(super) fn open_flow(&mut self, session: u64) -> Result<(), SessionEnd> {
        let Some(client) = self.sessions.get_mut(&session) else { return Ok(()) };
        if client.domain.is_some() {
            return Err(SessionEnd("a domain asked for a flow".to_owned()));
        }
        let (uid, pid) = (client.credentials.uid, client.credentials.pid);
        let offered = client.offered_flow.take();
        let OfferedFlow { interface, terms, offer } =
            offered.ok_or("it took a flow that it was not offered")?;
        if !self.make_room(DESCRIPTORS, Some(session)) {
            return self.refuse_for_descriptors(session);
        }
        let asker = Asker { session, uid, pid };
        let memory = offer.accept().map_err(FlowRefusal::Memory);
        let opened = memory.and_then(|memory| {
            self.networks.open(&interface, terms, (asker, memory), &mut self.xdp_programs)
        });
        self.take_closed_interfaces();
        match opened {
            Ok((flow, path)) => self.pass_on(asker, flow, path),
            Err(refusal) => {
                self.refuse(session, &interface, &refusal)?;
                match refusal {
                    // A late reply belongs to this session.
                    FlowRefusal::Silent => Err(SessionEnd("its interface has failed".to_owned())),
                    _ => Ok(()),
                }
            }
        }
    }

    fn refuse(
        &mut self,
        session: u64,
        interface: &str,
        refusal: &FlowRefusal,
    ) -> Result<(), SessionEnd> {
        let reason = format!("interface {}: {refusal}", shown(interface));
        self.refuse_flow(session, refusal.cause(), reason)
    }

    fn refuse_for_descriptors(&mut self, session: u64) -> Result<(), SessionEnd> {
        let reason = "the daemon has too few descriptors left".to_owned();
        self.refuse_flow(session, FlowCause::Full, reason)
    }

    fn refuse_flow(
        &mut self,
        session: u64,
        cause: FlowCause,
        reason: String,
    ) -> Result<(), SessionEnd> {
        self.report_refusal(session, &reason);
        self.send(session, &ToDomain::Flow(FlowReply::Refused { cause, reason }), &[])
    }

    /// Tells a program that its flow is open.
    fn pass_on(
        &mut self,
        asker: Asker,
        (flow, local, wake): BoundFlow,
        path: String,
    ) -> Result<(), SessionEnd> {
        let Asker { session, uid, pid } = asker;
        if let Some(client) = self.sessions.get_mut(&session) {
            client.has_flow = true;
        }
        // Relaxed: a count.
        self.attached_ever.fetch_add(1, Ordering::Relaxed);
        self.events.push(DaemonEvent::FlowOpened { uid, pid, local, path });
        let opened = ToDomain::Flow(FlowReply::Opened(OpenedFlow { flow, local }));
        self.send(session, &opened, &[wake.as_fd()])
    }

    /// Ends the flow of a session.
    pub(super) fn end_flow(&mut self, session: u64, reason: &str) {
        if let Some(ended) = self.networks.end(session) {
            self.events.push(DaemonEvent::FlowEnded {
                pid: ended.asker.pid,
                interface: ended.interface,
                local: ended.local,
                received: ended.counts.received,
                sent: ended.counts.sent,
                reason: reason.to_owned(),
            });
        }
    }

    /// Takes what the network threads have to say.
    pub(super) fn take_network_reports(&mut self) {
        while let Some(report) = NetworkReport::receive(&self.network_reports) {
            match report {
                NetworkReport::Broken { session } => {
                    self.end(session, "it broke a queue of its flow");
                }
                NetworkReport::Gone { session } => {
                    self.end(session, "the interface of its flow is down or gone");
                }
                NetworkReport::Ended { number } => {
                    let closed = self.networks.take_ended(number);
                    closed.into_iter().for_each(|closed| self.note_closed(closed));
                }
            }
        }
    }

    /// Waits for the network threads of interfaces without flows.
    pub(super) fn finish_networks(&mut self) {
        self.networks.finish();
        self.take_closed_interfaces();
    }

    /// Reports the interfaces whose threads have ended.
    fn take_closed_interfaces(&mut self) {
        for closed in self.networks.take_closed() {
            self.note_closed(closed);
        }
    }

    fn note_closed(&mut self, (interface, Closed { frames, free }): (String, Closed)) {
        self.events.push(DaemonEvent::InterfaceClosed { interface, frames, free });
    }
}

fn terms_of(request: &OpenFlow) -> FlowTerms {
    let quota = |FlowQuota { interval_ns, step_ns, depth, at_once }| Quota {
        step_ns,
        interval_ns,
        depth,
        at_once,
    };
    FlowTerms {
        local: request.local,
        receive: request.receive.map(quota),
        send: match request.send {
            FlowShare::Paced(interval_ns) => {
                Share::Paced { interval: Span::from_nanos(interval_ns) }
            }
            FlowShare::Weight(weight) => Share::Weight(weight),
        },
        form: FlowForm {
            receive_slots: request.receive_slots,
            transmit_slots: request.transmit_slots,
        },
    }
}
