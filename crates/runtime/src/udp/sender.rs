//! The sending end of a stream.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use upcall_sys::OsError;
use upcall_sys::udp::{SendBatch, UdpSocket};

use super::StreamCounters;
use crate::net::{Received, UdpFlow};

/// Sends UDP datagrams from a handler, in batches. [`Sender::send`] adds one to the batch, and
/// [`Sender::flush`] gives the batch to the kernel, or to the owner of the flow.
#[derive(Debug)]
pub struct Sender {
    target: Target,
    counters: Arc<StreamCounters>,
}

/// To whom the datagrams are given.
#[derive(Debug)]
enum Target {
    Socket {
        socket: UdpSocket,
        batch: SendBatch,
    },
    Flow {
        flow: Box<UdpFlow>,
        peer: SocketAddr,
        /// Datagrams that the owner was not shown yet.
        batch: u64,
    },
}

/// What arrived at the flow of a sender is passed over, at most so much in one flush.
const PASSED_OVER_MAX: u32 = 64;

impl Sender {
    /// Sends to `address` from a port that the system chooses. Up to `batch_max` datagrams of up to
    /// `datagram_bytes` wait for one system call. Neighbouring ones of one length cost the kernel
    /// little more than one of them ([`SendBatch::join_runs`]).
    ///
    /// # Errors
    /// The error of the system, with the operation.
    pub fn connect(
        address: SocketAddr,
        batch_max: u32,
        datagram_bytes: u32,
    ) -> Result<Self, OsError> {
        let any: SocketAddr = if address.is_ipv4() {
            (Ipv4Addr::UNSPECIFIED, 0).into()
        } else {
            (Ipv6Addr::UNSPECIFIED, 0).into()
        };
        let socket = UdpSocket::bind(any)?;
        socket.connect(address)?;
        let mut batch = SendBatch::new(batch_max.max(1) as usize, datagram_bytes as usize);
        batch.join_runs();
        Ok(Sender::new(Target::Socket { socket, batch }))
    }

    /// Sends to `peer` by a flow, from the address of the flow. A batch has as many datagrams as
    /// the flow has frames for sending, of up to [`UdpFlow::payload_bytes_max`]. Sending makes no
    /// system call. What arrives at the flow is passed over: a program that wants it, such as
    /// reports of receivers on the same port, uses the flow itself ([`UdpFlow::take`],
    /// [`UdpFlow::send`]).
    pub fn from_flow(flow: UdpFlow, peer: SocketAddr) -> Self {
        Sender::new(Target::Flow { flow: Box::new(flow), peer, batch: 0 })
    }

    fn new(target: Target) -> Self {
        Sender { target, counters: Arc::default() }
    }

    /// The counters, for other threads to read.
    pub fn counters(&self) -> Arc<StreamCounters> {
        self.counters.clone()
    }

    /// Adds a datagram to the batch. Flushes first if the batch is full. A datagram that does not
    /// fit even then is dropped and counted.
    pub fn send(&mut self, payload: &[u8]) {
        if !self.push(payload) {
            self.flush();
            if !self.push(payload) {
                self.counters.dropped_queue.add(1);
                return;
            }
        }
        self.counters.processed.add(1);
        self.counters.processed_bytes.add(payload.len() as u64);
    }

    /// Whether the datagram is in the batch now.
    fn push(&mut self, payload: &[u8]) -> bool {
        match &mut self.target {
            Target::Socket { batch, .. } => batch.push(payload).is_ok(),
            Target::Flow { flow, peer, batch } => {
                let is_taken = flow.send(payload, *peer).unwrap_or(false);
                *batch += u64::from(is_taken);
                is_taken
            }
        }
    }

    /// Gives the batch to the kernel, with one system call that does not block, or to the owner of
    /// the flow, without one. Datagrams that the kernel does not take stay for the next time.
    pub fn flush(&mut self) {
        match &mut self.target {
            Target::Socket { socket, batch } => match batch.flush(socket) {
                Ok(sent) => self.counters.received.add(sent as u64),
                Err(_) => self.counters.errors.add(1),
            },
            Target::Flow { flow, batch, .. } => {
                for _ in 0..PASSED_OVER_MAX {
                    match flow.take() {
                        Ok(Some(Received::Datagram(datagram))) => {
                            self.counters.errors.add(u64::from(flow.release(datagram).is_err()));
                        }
                        Ok(Some(Received::Error { .. })) => self.counters.errors.add(1),
                        Ok(None) => break,
                        Err(_) => {
                            self.counters.errors.add(1);
                            break;
                        }
                    }
                }
                flow.flush();
                self.counters.received.add(std::mem::take(batch));
            }
        }
    }
}
