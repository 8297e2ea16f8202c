use super::*;

/// Bytes that differ by their place.
fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + at / 256 * 13 + 1).to_le_bytes()[0]).collect()
}

fn blank(words: usize) -> Vec<AtomicU64> {
    (0..words).map(|_| AtomicU64::new(u64::MAX)).collect()
}

fn bytes_of(words: &[AtomicU64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.load(Relaxed).to_ne_bytes()).collect()
}

/// Lengths around a word, a block of registers, and the first length for the string instruction.
fn lengths() -> impl Iterator<Item = usize> {
    (0..200).chain(2040..2072).chain([4095, 4096, 4099])
}

#[test]
fn bytes_filled_anywhere_are_copied_out_and_nothing_else_changes() {
    const BYTES: usize = 4608;
    for len in lengths() {
        // The last ones continue at the start.
        for start in [0, 1, 5, 8, 63, 64, 300, BYTES - 2056, BYTES - 65, BYTES - 9] {
            let (words, bytes) = (blank(BYTES / 8), pattern(len));
            let payload = Payload::new(&words, start, len);
            assert_eq!(payload.fill(0, &bytes), len);
            let mut expected = vec![u8::MAX; BYTES];
            for (at, &byte) in bytes.iter().enumerate() {
                expected[(start + at) % BYTES] = byte;
            }
            assert!(bytes_of(&words) == expected, "{len} bytes at {start}");
            // Into memory of any alignment, with room to spare.
            let mut copy = vec![0; len + 3];
            assert_eq!(payload.copy_to(0, &mut copy[1..len + 2]), len);
            assert!(copy[1..=len] == bytes[..], "{len} bytes from {start}");
            assert_eq!((copy[0], copy[len + 1]), (0, 0));
        }
    }
}

#[test]
fn a_part_is_filled_and_copied_from_any_byte_on() {
    let (words, bytes) = (blank(512), pattern(4000));
    let payload = Payload::new(&words, 96, 4000);
    for cut in [0, 1, 8, 64, 1000, 3990, 4000] {
        assert_eq!(payload.fill(0, &bytes[..cut]) + payload.fill(cut, &bytes[cut..]), 4000);
        let mut copy = vec![0; 4000];
        assert_eq!(payload.copy_to(cut, &mut copy[cut..]), 4000 - cut);
        assert_eq!(payload.copy_to(0, &mut copy[..cut]), cut);
        assert!(copy == bytes, "cut at {cut}");
    }
}

#[test]
fn one_payload_is_copied_into_another_of_any_alignment() {
    for (from_start, to_start, len) in [(0, 0, 0), (298, 128, 1472), (3, 5, 511), (8, 2, 513)] {
        let (from, to) = (blank(512), blank(512));
        let (source, target) =
            (Payload::new(&from, from_start, len), Payload::new(&to, to_start, len + 1));
        source.fill(0, &pattern(len));
        assert_eq!(source.copy_into(target), len);
        let mut copy = vec![0; len + 1];
        target.copy_to(0, &mut copy);
        assert!(copy[..len] == pattern(len)[..] && copy[len] == u8::MAX);
        // A shorter place takes less.
        assert_eq!(source.copy_into(Payload::new(&to, 0, len / 2)), len / 2);
    }
}
