//! How many PDUs and datagrams of a stream come together, wait, and are made.
//!
//! The end of a stream ([`super`]) and its flow ([`super::flow`]) have room for as many.

use upcall::qos::{Class, Flow, Mapping};
use upcall::work::{sample_datagrams, sample_payload};

use crate::spec::Stream;

/// The most datagrams of a stream that receives that wait at once.
pub fn buffered(stream: &Stream, mapping: &Mapping) -> u32 {
    let datagrams_a_pdu = stream.pdu_bytes.div_ceil(stream.packet_bytes);
    let batch = mapping.params.batch.saturating_mul(datagrams_a_pdu);
    mapping
        .buffers
        .saturating_add(pdus_of_unit(stream) - 1)
        .saturating_mul(datagrams_a_pdu)
        .saturating_add(batch.saturating_mul(stream.workahead))
}

/// How many datagrams a PDU has that Upcall itself makes.
///
/// # Errors
/// The stream's PDU or packet is too small for the sample.
pub fn made_datagrams(stream: &Stream) -> Result<u32, String> {
    let datagrams = sample_datagrams(stream.work, stream.pdu_bytes);
    let mut payload = vec![0; stream.packet_bytes as usize];
    let bytes = sample_payload(stream.work, stream.pdu_bytes, 0, &mut payload);
    if datagrams == 0 || bytes == 0 {
        return Err(format!(
            "a sample of {} does not fit a pdu of {} B in packets of {} B",
            stream.work, stream.pdu_bytes, stream.packet_bytes
        ));
    }
    Ok(datagrams)
}

/// The PDUs of a frame or message, which come one by one within its interval and are processed when
/// the last one has come. 1 for other flows.
pub fn pdus_of_unit(stream: &Stream) -> u32 {
    match stream.class {
        Class::ContinuousMedia(Flow::Frames { frame_bytes, .. }) => pdus_of(frame_bytes, stream),
        Class::MessageStream { message_bytes, .. } => pdus_of(message_bytes, stream),
        _ => 1,
    }
}

fn pdus_of(bytes: u64, stream: &Stream) -> u32 {
    u32::try_from(bytes.div_ceil(u64::from(stream.pdu_bytes))).unwrap_or(u32::MAX).max(1)
}
