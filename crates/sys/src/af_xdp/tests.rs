use super::*;
use crate::interface::index;
use std::process::Command;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Runs `work` on a thread with a network namespace of its own, which goes with the thread. It has
/// the ends `ours` and `theirs` of a veth pair with two queues, both up.
fn in_own_network(work: fn()) {
    let thread = std::thread::spawn(move || {
        // SAFETY: changes the network of this thread only, which has no socket yet.
        assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWNET) }, 0, "{}", OsError::last("unshare"));
        for arguments in [
            "link add ours numtxqueues 2 numrxqueues 2 type veth peer name theirs",
            "link set ours up",
            "link set theirs up",
        ] {
            let ip = Command::new("ip").args(arguments.split(' ')).status().unwrap();
            assert!(ip.success(), "{arguments}");
        }
        work();
    });
    thread.join().unwrap();
}

/// Puts a frame of 60 bytes at `address` into the transmit ring, as the only user of the ring.
fn send(socket: &XdpSocket, address: u32) {
    let (ring, RingOffsets { producer, entries, .. }) =
        (socket.transmit(), socket.transmit().offsets());
    let words = ring.as_ref();
    let index = words[producer / 4].load(Relaxed);
    let entry = entries / 4 + (index & (ring.entries() - 1)) as usize * 4;
    for (word, value) in words[entry..].iter().zip([address, 0, 60, 0]) {
        word.store(value, Relaxed);
    }
    // Release: the kernel loads the index before the entry.
    words[producer / 4].store(index + 1, Release);
    socket.wake_transmit().unwrap();
}

fn completed(socket: &XdpSocket) -> u32 {
    let producer = socket.completion().offsets().producer;
    socket.completion().as_ref()[producer / 4].load(Acquire)
}

#[test]
#[ignore = "needs root and ip: sends frames in its own network"]
fn sockets_that_share_frames_send_and_complete() {
    in_own_network(|| {
        let memory = SharedMapping::create("frames", 8 * 2048).unwrap();
        let ours = index("ours").unwrap();
        let receiver = crate::frame_file::FrameFile::packet(index("theirs").unwrap()).unwrap();
        let first = XdpSocket::open(&memory, 2048, 8).unwrap();
        let refused = first.bind(ours, 0, CopyMode::Zero).unwrap_err();
        assert_eq!(refused.raw_os_error(), libc::EOPNOTSUPP, "{refused}");
        first.bind(ours, 0, CopyMode::Copy).unwrap();
        let second = XdpSocket::open_sharing(8).unwrap();
        second.bind_sharing(ours, 1, &first).unwrap();
        for (socket, frame) in [(&first, 1u32), (&second, 2)] {
            let start = frame as usize * 2048 / 8;
            memory.words()[start].store(0xFFFF_FFFF_FFFF, Relaxed);
            memory.words()[start + 3].store(frame.into(), Relaxed);
            send(socket, frame * 2048);
            let room = [const { std::sync::atomic::AtomicU64::new(0) }; 32];
            let arrived = std::iter::repeat_with(|| {
                std::thread::sleep(std::time::Duration::from_millis(1));
                let bytes = receiver.read(&room).unwrap();
                bytes.is_some() && room[3].load(Relaxed) == u64::from(frame)
            });
            // Other frames of the machine may come first (IPv6).
            assert!(arrived.take(5_000).any(|is_ours| is_ours));
            assert_eq!(completed(socket), 1);
            assert_eq!(socket.statistics().unwrap(), XdpStatistics::default());
        }
        send(&first, 8 * 2048);
        assert_eq!(first.statistics().unwrap().transmit_invalid, 1);
    });
}
