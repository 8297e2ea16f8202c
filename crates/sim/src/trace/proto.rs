//! The messages of Perfetto's format that this module writes and reads. Field numbers come from
//! Perfetto's `protos/perfetto/trace/*.proto`. A reader skips unknown fields.

use prost::Message;

/// `TracePacket`, the element of a trace.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Packet {
    #[prost(uint64, optional, tag = "8")]
    pub timestamp: Option<u64>,
    /// `trusted_packet_sequence_id`: interned names are valid within a sequence.
    #[prost(uint32, optional, tag = "10")]
    pub sequence: Option<u32>,
    #[prost(message, optional, tag = "11")]
    pub event: Option<TrackEvent>,
    #[prost(message, optional, tag = "12")]
    pub interned: Option<Interned>,
    #[prost(uint32, optional, tag = "13")]
    pub sequence_flags: Option<u32>,
    #[prost(message, optional, tag = "60")]
    pub track: Option<Track>,
}

/// `SEQ_INCREMENTAL_STATE_CLEARED`: interning starts here.
pub(super) const FLAG_CLEARED: u32 = 1;
/// `SEQ_NEEDS_INCREMENTAL_STATE`: the packet uses interned names.
pub(super) const FLAG_NEEDS_STATE: u32 = 2;
/// Number of `Trace.packet`, with the wire type of length-delimited fields.
pub(super) const PACKET_KEY: u8 = 1 << 3 | 2;

/// `TrackDescriptor`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Track {
    #[prost(uint64, optional, tag = "1")]
    pub uuid: Option<u64>,
    #[prost(string, optional, tag = "2")]
    pub name: Option<String>,
    #[prost(uint64, optional, tag = "5")]
    pub parent: Option<u64>,
}

/// `TrackEvent`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct TrackEvent {
    #[prost(message, repeated, tag = "4")]
    pub annotations: Vec<Annotation>,
    #[prost(uint32, optional, tag = "9")]
    pub kind: Option<u32>,
    #[prost(uint64, optional, tag = "10")]
    pub name_iid: Option<u64>,
    #[prost(uint64, optional, tag = "11")]
    pub track: Option<u64>,
    #[prost(string, optional, tag = "23")]
    pub name: Option<String>,
    #[prost(fixed64, repeated, packed = "false", tag = "47")]
    pub flows: Vec<u64>,
}

/// `TrackEvent.Type`.
pub(super) const SLICE_BEGIN: u32 = 1;
pub(super) const SLICE_END: u32 = 2;
pub(super) const INSTANT: u32 = 3;

/// `DebugAnnotation`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Annotation {
    #[prost(uint64, optional, tag = "1")]
    pub name_iid: Option<u64>,
    #[prost(uint64, optional, tag = "3")]
    pub number: Option<u64>,
    #[prost(string, optional, tag = "6")]
    pub text: Option<String>,
}

/// `InternedData`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Interned {
    #[prost(message, repeated, tag = "2")]
    pub event_names: Vec<Name>,
    #[prost(message, repeated, tag = "3")]
    pub annotation_names: Vec<Name>,
}

/// `EventName` and `DebugAnnotationName`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Name {
    #[prost(uint64, optional, tag = "1")]
    pub iid: Option<u64>,
    #[prost(string, optional, tag = "2")]
    pub name: Option<String>,
}
