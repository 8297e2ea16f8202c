//! The counts of a processor.

/// Counts since the processor was made. A count that does not apply to the kind stays zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorkCounters {
    /// PDUs processed.
    pub processed: u64,
    /// Datagrams rejected for their content. Duplicates and late datagrams are not counted here.
    pub rejected: u64,
    /// Complete PDUs whose content was invalid.
    pub decode_errors: u64,
    /// RTP packets that are missing from the sequence and have not come yet (RFC 3550 §6.4.1,
    /// without duplicates). A packet that came and was rejected for its payload counts as missing.
    pub lost: u64,
    /// RTP packets that came after a later one.
    pub reordered: u64,
    /// RTP packets that came twice.
    pub duplicates: u64,
    /// Frames dropped because a part was missing when the next frame began, or because
    /// [`Work::process`](super::Work::process) was not called for them.
    pub frames_dropped: u64,
    /// The largest absolute sample of the output. 32768 is full scale.
    pub peak: u16,
    /// Width of the last frame decoded, in pixels.
    pub width: u16,
    /// Height of the last frame decoded, in pixels.
    pub height: u16,
}
