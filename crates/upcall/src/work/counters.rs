//! The counts of a processor.

/// What a processor has seen since it was made; all zero where it does not apply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorkCounters {
    /// PDUs processed.
    pub processed: u64,
    /// Datagrams refused for what they hold; not duplicates and late ones.
    pub rejected: u64,
    /// PDUs complete, but not what they should be.
    pub decode_errors: u64,
    /// RTP packets missing from the sequence and not come yet (RFC 3550
    /// §6.4.1, without duplicates). One that came and was refused for its
    /// payload has not come in this sense.
    pub lost: u64,
    /// RTP packets that came after a later one.
    pub reordered: u64,
    /// RTP packets that came twice.
    pub duplicates: u64,
    /// Frames given up because a part was missing when the next one began, or
    /// because nobody processed them.
    pub frames_dropped: u64,
    /// The largest absolute sample that went out; 32768 is full scale.
    pub peak: u16,
    /// Width of the last frame decoded, in pixels.
    pub width: u16,
    /// Height of the last frame decoded, in pixels.
    pub height: u16,
}
