//! How much receive buffer a number of datagrams takes up.
//!
//! Called when a stream's buffers are reserved. The kernel charges a socket
//! not for payload but for the memory that carries it (`skb->truesize`), which
//! for small datagrams is many times more.

/// `sizeof(struct sk_buff)`, rounded to cache lines as `SKB_TRUESIZE` of
/// include/linux/skbuff.h does.
const SKB_BYTES: usize = 256;

/// `sizeof(struct skb_shared_info)`, likewise; it follows the data.
const SHARED_INFO_BYTES: usize = 320;

/// What stands before the payload: link header and its padding, IPv6 (40) and
/// UDP (8). Loopback was seen to take 59 with IPv4 and 72 with IPv6.
const HEADERS_BYTES: usize = 80;

/// Data of small packets comes in pieces of this size
/// (`SKB_SMALL_HEAD_SIZE`, net/core/skbuff.c) ...
const SMALL_HEAD_BYTES: usize = 576;

/// ... larger up to here in powers of two (`kmalloc`), and yet larger as a
/// small head with pages beside it.
const LINEAR_HEAD_BYTES_MAX: usize = 16_384;

/// Receive buffer that surely holds `datagrams` of `bytes_each` waiting, in
/// the kernel's accounting: what [`super::UdpSocket::set_receive_buffer`]
/// takes and returns. Saturates. O(1).
///
/// It is the sum of two things, measured on Linux 6.18 over loopback:
///
/// * A datagram costs `256 + head`, where `head` is `payload + headers + 320`
///   rounded up to 576, 1024, 2048 ... 16384 (832 bytes for a payload of 100,
///   2304 for 1470), or `832 + payload` above that (`__alloc_skb`,
///   `kmalloc_reserve` in net/core/skbuff.c).
/// * Up to a quarter of the buffer stays charged for datagrams that have been
///   read already (`udp_rmem_release` in net/ipv4/udp.c gives memory back when
///   a quarter has come together or the queue is empty). So the datagrams must
///   fit into three quarters.
///
/// Between one and two times what the datagrams themselves are charged over
/// loopback. Drivers that put each packet into a page of its own can need
/// more, and a datagram longer than the MTU arrives as several packets, each
/// charged by itself; [`super::UdpSocket::drops`] shows it.
pub const fn receive_buffer_bytes(datagrams: usize, bytes_each: usize) -> usize {
    let bytes = datagrams.saturating_mul(charge_bytes(bytes_each));
    bytes.div_ceil(3).saturating_mul(4)
}

/// What the kernel charges for one datagram (`skb->truesize`).
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
    fn charges_are_those_seen_on_linux_6_18() {
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
