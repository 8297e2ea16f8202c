//! Decodes a frame with zune-jpeg, at once or in slices.

use std::time::{Duration, Instant};

use zune_core::bytestream::{ZByteIoError, ZByteReaderTrait, ZCursor, ZSeekFrom};
use zune_core::colorspace::ColorSpace;
use zune_core::options::DecoderOptions;
use zune_jpeg::JpegDecoder;

/// Holds the picture of one player.
pub struct Decoder {
    file: Vec<u8>,
    rgb: Vec<u8>,
    /// The time after which the decoder yields the CPU.
    slice: Option<Duration>,
}

impl Decoder {
    /// A decoder for frames of at most this many bytes and pixels.
    pub fn new(bytes_max: usize, pixels: usize, slice: Option<Duration>) -> Self {
        Decoder { file: vec![0; bytes_max], rgb: vec![0; pixels * 3], slice }
    }

    /// The buffer for a frame of `len` bytes.
    pub fn buffer(&mut self, len: usize) -> &mut [u8] {
        &mut self.file[..len]
    }

    /// Decodes the frame of `len` bytes in the buffer.
    pub fn decode(&mut self, len: usize) {
        let options = DecoderOptions::default().jpeg_set_out_colorspace(ColorSpace::RGB);
        let file = ZCursor::new(&self.file[..len]);
        let decoded = match self.slice {
            None => JpegDecoder::new_with_options(file, options).decode_into(&mut self.rgb),
            Some(slice) => {
                let sliced = Sliced { file, slice, since: Instant::now(), reads: 0 };
                JpegDecoder::new_with_options(sliced, options).decode_into(&mut self.rgb)
            }
        };
        decoded.expect("ffmpeg's pictures are valid");
        std::hint::black_box(&mut self.rgb);
    }
}

/// A file whose reader moves to the end of its CPU's queue after it had the CPU for a slice. A
/// kernel with such short slices would do the same. (No other thread preempts the reader, so its
/// time is CPU time.)
struct Sliced<'a> {
    file: ZCursor<&'a [u8]>,
    slice: Duration,
    since: Instant,
    reads: u32,
}

impl Sliced<'_> {
    /// The number of reads of 4 bytes between two reads of the clock, which take some 20 ns. This
    /// makes about one read of the clock per microsecond.
    const READS_PER_CHECK: u32 = 16;

    fn read(&mut self) {
        self.reads += 1;
        if self.reads.is_multiple_of(Self::READS_PER_CHECK) && self.since.elapsed() >= self.slice {
            std::thread::yield_now();
            self.since = Instant::now();
        }
    }
}

impl ZByteReaderTrait for Sliced<'_> {
    fn read_byte_no_error(&mut self) -> u8 {
        self.read();
        self.file.read_byte_no_error()
    }

    fn read_exact_bytes(&mut self, buf: &mut [u8]) -> Result<(), ZByteIoError> {
        self.read();
        self.file.read_exact_bytes(buf)
    }

    fn read_bytes(&mut self, buf: &mut [u8]) -> Result<usize, ZByteIoError> {
        self.file.read_bytes(buf)
    }

    fn peek_bytes(&mut self, buf: &mut [u8]) -> Result<usize, ZByteIoError> {
        self.file.peek_bytes(buf)
    }

    fn peek_exact_bytes(&mut self, buf: &mut [u8]) -> Result<(), ZByteIoError> {
        self.file.peek_exact_bytes(buf)
    }

    fn z_seek(&mut self, from: ZSeekFrom) -> Result<u64, ZByteIoError> {
        self.file.z_seek(from)
    }

    fn is_eof(&mut self) -> Result<bool, ZByteIoError> {
        self.file.is_eof()
    }

    fn z_position(&mut self) -> Result<u64, ZByteIoError> {
        self.file.z_position()
    }

    fn read_remaining(&mut self, sink: &mut Vec<u8>) -> Result<usize, ZByteIoError> {
        self.file.read_remaining(sink)
    }
}
