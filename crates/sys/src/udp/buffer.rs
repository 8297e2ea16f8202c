//! The receive buffer that a number of datagrams takes up.
//!
//! Code that reserves a stream's buffers calls this. The kernel does not charge a socket for
//! payload, but for the memory that carries it (`skb->truesize`). For small datagrams that is many
//! times the payload.

/// `sizeof(struct sk_buff)`, rounded to cache lines as `SKB_TRUESIZE` of
/// include/linux/skbuff.h does.
const SKB_BYTES: usize = 256;

/// `sizeof(struct skb_shared_info)`, rounded in the same way. It follows the data.
const SHARED_INFO_BYTES: usize = 320;

/// Bytes before the payload: link header with padding, IPv6 (40) and UDP (8). Measured over
/// loopback: 59 with IPv4 and 72 with IPv6.
const HEADERS_BYTES: usize = 80;

/// Data of small packets comes in pieces of this size (`SKB_SMALL_HEAD_SIZE`, net/core/skbuff.c).
const SMALL_HEAD_BYTES: usize = 576;

/// Larger data up to this size comes in powers of two (`kmalloc`). Still larger data comes as a
/// small head with separate pages.
const LINEAR_HEAD_BYTES_MAX: usize = 16_384;

/// A receive buffer that surely holds `datagrams` of `bytes_each`, in the kernel's accounting. It
/// is the value that [`super::UdpSocket::set_receive_buffer`] takes and returns. Saturates. O(1).
///
/// The kernel's accounting has two parts, measured on Linux 6.18 over loopback:
///
/// * A datagram costs `256 + head`. Here `head` is `payload + headers + 320` rounded up to 576,
///   1024, 2048 ... 16384 (832 bytes for a payload of 100, 2304 for 1470). Above that a datagram
///   costs `832 + payload` (`__alloc_skb`, `kmalloc_reserve` in net/core/skbuff.c).
/// * Up to a quarter of the buffer stays charged for datagrams that have been read already.
///   `udp_rmem_release` in net/ipv4/udp.c returns memory when this charge has grown to a quarter of
///   the buffer, or when the queue is empty. So the datagrams must fit into three quarters.
///
/// The result is one to two times what the kernel charges for the datagrams over loopback. Drivers
/// that put each packet into a page of its own can need more. A datagram longer than the MTU
/// arrives as several packets, each charged by itself. [`super::UdpSocket::drops`] shows whether
/// the buffer is too small.
pub const fn receive_buffer_bytes(datagrams: usize, bytes_each: usize) -> usize {
    let bytes = datagrams.saturating_mul(charge_bytes(bytes_each));
    bytes.div_ceil(3).saturating_mul(4)
}

/// The kernel's charge for one datagram (`skb->truesize`).
const fn charge_bytes(payload_bytes: usize) -> usize {
    let head_bytes = payload_bytes.saturating_add(HEADERS_BYTES + SHARED_INFO_BYTES);
    if head_bytes <= SMALL_HEAD_BYTES {
        SKB_BYTES + SMALL_HEAD_BYTES
    } else if head_bytes <= LINEAR_HEAD_BYTES_MAX {
        SKB_BYTES + head_bytes.next_power_of_two()
    } else {
        payload_bytes.saturating_add(SKB_BYTES + SMALL_HEAD_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn charges_match_the_measurement_on_linux_6_18() {
        // Payload, and truesize by SK_MEMINFO_RMEM_ALLOC over loopback.
        for (payload, charge) in [
            (0, 832),
            (100, 832),
            (300, 1280),
            (1000, 2304),
            (1470, 2304),
            (2048, 4352),
            (4096, 8448),
            (9000, 16_640),
            (32_000, 32_832),
            (65_000, 65_832),
        ] {
            assert_eq!(charge_bytes(payload), charge, "{payload}");
        }
    }

    #[test]
    fn absurd_sizes_saturate() {
        assert!(receive_buffer_bytes(usize::MAX, usize::MAX) > usize::MAX / 2);
        assert_eq!(receive_buffer_bytes(0, 1470), 0);
    }
}
