//! Tests of the guarantees of a poller. Each test runs with each feed, on real descriptors.
#![expect(clippy::unwrap_used, reason = "a test that fails says where")]

use std::collections::{BTreeMap, BTreeSet};
use std::io::{ErrorKind, PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, PoisonError};

use upcall_runtime::clock;
use upcall_runtime::io_events::{Feed, Interest, InterestError, IoEvent, Poller};
use upcall_runtime::time::Span;

const FEEDS: [Feed; 3] = [Feed::Ring, Feed::RingThread, Feed::EpollThread];

/// Descriptor numbers belong to the process, so one test runs at a time.
static ALONE: Mutex<()> = Mutex::new(());

fn each(test: fn(&mut Poller, Feed)) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    for feed in FEEDS {
        println!("{feed:?}");
        test(&mut Poller::fed_by(feed).unwrap(), feed);
    }
}

fn pair() -> (UnixStream, UnixStream) {
    let (near, far) = UnixStream::pair().unwrap();
    near.set_nonblocking(true).unwrap();
    far.set_nonblocking(true).unwrap();
    (near, far)
}

/// The next event, as a loop would get it. There must be one.
fn next(poller: &mut Poller) -> IoEvent {
    poller.wait(Some(clock::after(Span::from_secs(20)))).unwrap().expect("no event in 20 s")
}

fn readable(key: usize) -> IoEvent {
    IoEvent { key, readable: true, writable: false }
}

/// Waits until the kernel has all interest, and has reported all that followed from it. A socket
/// pair of this test reports last, because the kernel reports in order. Returns the other events.
fn settle(poller: &mut Poller) -> Vec<IoEvent> {
    const FENCE: usize = usize::MAX;
    let (near, mut far) = pair();
    let mut said = Vec::new();
    far.write_all(b"x").unwrap();
    poller.add(&near, FENCE, Interest::Readable).unwrap();
    loop {
        let event = next(poller);
        if event.key == FENCE {
            break;
        }
        said.push(event);
    }
    poller.delete(&near).unwrap();
    said.extend(std::iter::from_fn(|| poller.try_next()));
    said
}

fn drain(stream: &mut UnixStream) -> usize {
    let mut bytes = 0;
    loop {
        match stream.read(&mut [0; 512]) {
            Ok(0) => return bytes,
            Ok(read) => bytes += read,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return bytes,
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn each_edge_is_reported_and_nothing_else() {
    each(|poller, feed| {
        let (mut near, mut far) = pair();
        let (idle, mut idle_peer) = pair();
        poller.add(&near, 7, Interest::Readable).unwrap();
        poller.add(&idle, 8, Interest::Readable).unwrap();
        assert_eq!(settle(poller), []);
        for _ in 0..50 {
            far.write_all(b"x").unwrap();
            assert_eq!(next(poller), readable(7));
            assert_eq!(drain(&mut near), 1);
        }
        assert!(settle(poller).iter().all(|event| *event == readable(7)));
        // The number is only a hint if another thread raises.
        assert!(poller.active() == 0 || feed != Feed::Ring);
        far.write_all(b"x").unwrap();
        idle_peer.write_all(b"x").unwrap();
        next(poller);
        assert!(poller.active() == 1 || feed != Feed::Ring);
    });
}

#[test]
fn a_descriptor_that_is_ready_when_added_is_reported() {
    each(|poller, _| {
        let (near, mut far) = pair();
        far.write_all(b"x").unwrap();
        poller.add(&near, 7, Interest::Readable).unwrap();
        assert_eq!(next(poller), readable(7));
        // Unread data is no new edge. A change of interest reports it again.
        assert_eq!(settle(poller), []);
        poller.modify(&near, 9, Interest::Readable).unwrap();
        assert_eq!(next(poller), readable(9));
    });
}

#[test]
fn only_readiness_with_interest_is_reported() {
    each(|poller, _| {
        let (mut near, mut far) = pair();
        poller.add(&near, 7, Interest::Writable).unwrap();
        assert_eq!(next(poller), IoEvent { key: 7, readable: false, writable: true });
        far.write_all(b"x").unwrap();
        assert!(settle(poller).iter().all(|event| !event.readable));
        poller.modify(&near, 7, Interest::Both).unwrap();
        assert_eq!(next(poller), IoEvent { key: 7, readable: true, writable: true });
        // The socket is full: it is not writable until the other end reads.
        poller.modify(&near, 7, Interest::Readable).unwrap();
        settle(poller);
        while near.write(&[0; 4096]).is_ok() {}
        poller.modify(&near, 7, Interest::Writable).unwrap();
        assert_eq!(settle(poller), []);
        assert!(drain(&mut far) > 4096);
        assert!(next(poller).writable);
    });
}

#[test]
fn a_hang_up_is_readable_and_also_writable_if_there_is_interest() {
    each(|poller, _| {
        let (mut near, far) = pair();
        poller.add(&near, 7, Interest::Readable).unwrap();
        assert_eq!(settle(poller), []);
        drop(far);
        assert_eq!(next(poller), readable(7));
        assert_eq!(near.read(&mut [0]).unwrap(), 0);
        settle(poller); // ends: no event comes again and again
        assert_eq!(settle(poller), []);

        let (reader, mut writer): (PipeReader, PipeWriter) = std::io::pipe().unwrap();
        writer.write_all(&[0; 65_536]).unwrap();
        poller.add(&writer, 8, Interest::Writable).unwrap();
        assert_eq!(settle(poller), []);
        drop(reader);
        assert_eq!(next(poller), IoEvent { key: 8, readable: false, writable: true });
        assert_eq!(writer.write(b"x").unwrap_err().kind(), ErrorKind::BrokenPipe);
    });
}

#[test]
fn a_deleted_descriptor_is_not_reported_even_if_it_was_ready() {
    each(|poller, _| {
        let (near, mut far) = pair();
        let (other, mut other_far) = pair();
        poller.add(&near, 7, Interest::Readable).unwrap();
        poller.add(&other, 8, Interest::Readable).unwrap();
        assert_eq!(settle(poller), []);
        far.write_all(b"x").unwrap();
        other_far.write_all(b"x").unwrap();
        // The page knows of both by now, and has reported one.
        let first = next(poller).key;
        let (gone, gone_far) =
            if first == 7 { (&other, &mut other_far) } else { (&near, &mut far) };
        poller.delete(gone).unwrap();
        gone_far.write_all(b"x").unwrap();
        assert!(settle(poller).iter().all(|event| event.key == first));
        let not_added = Err(InterestError::NotAdded { found: gone.as_raw_fd() });
        assert_eq!(poller.delete(gone), not_added);
        assert_eq!(poller.modify(gone, 1, Interest::Both), not_added);
    });
}

#[test]
fn a_deleted_descriptor_that_is_closed_is_closed_for_its_peer() {
    each(|poller, _| {
        let (near, mut far) = pair();
        poller.add(&near, 7, Interest::Readable).unwrap();
        assert_eq!(settle(poller), []);
        poller.delete(&near).unwrap();
        drop(near);
        assert_eq!(settle(poller), []);
        assert_eq!(far.read(&mut [0]).unwrap(), 0);
    });
}

#[test]
fn a_reused_number_reports_the_new_file_only() {
    each(|poller, feed| {
        for delete in [true, false] {
            for round in 0..100 {
                let (near, mut far) = pair();
                let number = near.as_raw_fd();
                poller.add(&near, 1, Interest::Readable).unwrap();
                if round % 3 == 0 {
                    settle(poller);
                }
                // A second descriptor keeps the old file and its watch alive.
                let kept = near.try_clone().unwrap();
                far.write_all(b"old").unwrap();
                if delete {
                    poller.delete(&near).unwrap();
                }
                drop(near);
                let (mut new, mut new_far) = pair();
                assert_eq!(new.as_raw_fd(), number, "another test opened a file");
                poller.add(&new, 2, Interest::Readable).unwrap();
                far.write_all(b"old").unwrap();
                let said = settle(poller);
                // A feeder thread may still deliver an event of the old file, which
                // is spurious.
                let spurious = if feed == Feed::Ring { 0 } else { 1 };
                assert!(said.len() <= spurious, "{said:?}");
                assert!(said.iter().all(|event| event.key == 2), "{said:?}");
                new_far.write_all(b"new").unwrap();
                assert_eq!(next(poller), readable(2));
                assert_eq!(drain(&mut new), 3);
                poller.delete(&new).unwrap();
                drop((kept, far, new_far));
            }
        }
    });
}

#[test]
fn a_descriptor_closed_without_delete_does_no_harm() {
    each(|poller, _| {
        let (near, mut far) = pair();
        poller.add(&near, 1, Interest::Both).unwrap();
        settle(poller);
        drop(near);
        let _ = far.write(b"x");
        drop(far);
        settle(poller);
        let (other, mut other_far) = pair();
        poller.add(&other, 2, Interest::Readable).unwrap();
        other_far.write_all(b"x").unwrap();
        while next(poller).key != 2 {}
    });
}

#[test]
fn a_file_that_is_always_ready_is_reported_once() {
    each(|poller, _| {
        for path in ["/proc/self/exe", "/dev/null"] {
            let file = std::fs::File::open(path).unwrap();
            poller.add(&file, 7, Interest::Readable).unwrap();
            assert_eq!(next(poller), readable(7), "{path}");
            settle(poller);
            assert_eq!(settle(poller), [], "{path}");
            poller.delete(&file).unwrap();
        }
    });
}

#[test]
fn each_of_thousands_at_once_is_reported_and_none_twice() {
    each(|poller, _| {
        // As many as the limit allows, which may be few on a small machine.
        let limit = upcall_sys::descriptors::raise_limit().unwrap();
        let pairs_max = usize::try_from(limit.saturating_sub(200) / 4 * 2).unwrap().min(3_000);
        let mut pairs: Vec<_> = (0..pairs_max).map(|_| pair()).collect();
        for (key, (near, _)) in pairs.iter().enumerate() {
            poller.add(near, key, Interest::Readable).unwrap();
        }
        assert_eq!(settle(poller), []);
        for round in 0..3 {
            pairs.iter_mut().for_each(|(_, far)| far.write_all(b"x").unwrap());
            let mut said = BTreeSet::new();
            while said.len() < pairs_max {
                let event = next(poller);
                // Events of descriptors that were drained are spurious.
                let read = drain(&mut pairs[event.key].0);
                assert!(said.insert(event.key) || read == 0, "round {round}: {event:?}");
            }
            assert!(poller.try_next().is_none_or(|event| drain(&mut pairs[event.key].0) == 0));
        }
        // All hang up at once. Half of them were deleted just before.
        for (near, _) in pairs.iter().step_by(2) {
            poller.delete(near).unwrap();
        }
        let nears: Vec<_> = pairs.into_iter().map(|(near, _)| near).collect();
        let mut ended = BTreeSet::new();
        while ended.len() < pairs_max / 2 {
            ended.insert(next(poller).key);
        }
        assert!(ended.iter().all(|key| key % 2 == 1));
        drop(nears);
    });
}

#[test]
fn a_busy_loop_makes_one_system_call_for_many_events_and_none_for_nothing() {
    each(|poller, feed| {
        let mut pairs: Vec<_> = (0..100).map(|_| pair()).collect();
        for (key, (near, _)) in pairs.iter().enumerate() {
            poller.add(near, key, Interest::Readable).unwrap();
        }
        settle(poller);
        poller.try_next();
        let (before, mut events) = (poller.kernel_calls(), 0);
        for _ in 0..20 {
            pairs.iter_mut().for_each(|(_, far)| far.write_all(b"x").unwrap());
            let mut left = pairs.len();
            while left > 0 {
                if let Some(event) = poller.try_next() {
                    events += 1;
                    left -= usize::from(drain(&mut pairs[event.key].0) > 0);
                }
            }
        }
        assert!(events >= 2_000);
        // The kernel gives 20 completions in a call, and one more call may find none.
        let after = poller.kernel_calls();
        let for_all = if feed == Feed::Ring { 20 * (100 / 20 + 1) } else { 0 };
        assert!(after <= before + for_all, "{feed:?}: {} calls", after - before);
        assert!(after > before || feed != Feed::Ring, "this thread asks the kernel");
        assert!((0..1_000).all(|_| poller.try_next().is_none()));
        assert_eq!(poller.kernel_calls(), after);
    });
}

#[test]
fn a_waiting_loop_is_woken_by_another_thread_each_time() {
    each(|poller, _| {
        let (mut near, mut far) = pair();
        let (mut answers, mut answer) = pair();
        answers.set_nonblocking(false).unwrap();
        poller.add(&near, 7, Interest::Readable).unwrap();
        std::thread::scope(|threads| {
            threads.spawn(move || {
                for _ in 0..2_000 {
                    far.write_all(b"x").unwrap();
                    answers.read_exact(&mut [0]).unwrap();
                }
            });
            let mut read = 0;
            while read < 2_000 {
                assert_eq!(next(poller).key, 7);
                let more = drain(&mut near);
                read += more;
                if more > 0 {
                    answer.write_all(b"x").unwrap();
                }
            }
        });
        let deadline = clock::after(Span::from_millis(2));
        while poller.wait(Some(deadline)).unwrap().is_some() {}
        assert!(clock::now() >= deadline);
    });
}

#[test]
fn a_waker_ends_the_wait_in_progress_or_the_next_and_is_no_event() {
    each(|poller, _| {
        let waker = poller.waker().unwrap();
        let mut events = vec![readable(1)];
        waker.wake();
        poller.waker().unwrap().wake();
        assert_eq!(poller.wait_many(&mut events, None), Ok(0), "two wakes count as one");
        assert!(events.is_empty());
        assert_eq!(poller.wait_many(&mut events, Some(clock::after(Span::from_millis(1)))), Ok(0));
        let (near, mut far) = pair();
        poller.add(&near, 7, Interest::Readable).unwrap();
        for _ in 0..20 {
            std::thread::scope(|threads| {
                threads.spawn(|| waker.wake());
                assert_eq!(poller.wait(None), Ok(None));
            });
        }
        // Ready descriptors are reported first. The wait after that ends at once.
        far.write_all(b"x").unwrap();
        waker.wake();
        let mut said = Vec::new();
        while poller.wait_many(&mut events, None).unwrap() > 0 {
            said.append(&mut events);
        }
        said.extend(settle(poller));
        assert_eq!(said, [readable(7)]);
    });
}

#[test]
fn one_wait_reports_many_events_each_once() {
    each(|poller, _| {
        let mut pairs: Vec<_> = (0..300).map(|_| pair()).collect();
        for (key, (near, far)) in pairs.iter_mut().enumerate() {
            poller.add(&*near, key, Interest::Readable).unwrap();
            far.write_all(b"x").unwrap();
        }
        let (mut events, mut keys) = (Vec::new(), BTreeSet::new());
        while keys.len() < 300 {
            let deadline = Some(clock::after(Span::from_secs(20)));
            let count = poller.wait_many(&mut events, deadline).unwrap();
            assert!((1..=256).contains(&count) && count == events.len(), "{count}");
            assert!(events.iter().all(|event| keys.insert(event.key)), "reported twice");
        }
        assert_eq!(poller.wait_many(&mut events, Some(clock::now())), Ok(0));
    });
}

#[test]
fn random_operations_end_with_the_readiness_that_poll_reports() {
    each(|poller, _| {
        let mut state = 0x2545_f491_4f6c_dd1d_u64;
        let mut random = move |below: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            usize::try_from(state % below as u64).unwrap()
        };
        let mut living = BTreeMap::<usize, (UnixStream, UnixStream)>::new();
        let mut unread = BTreeMap::<usize, usize>::new();
        for key in 0..2_000 {
            let (near, far) = pair();
            poller.add(&near, key, Interest::Readable).unwrap();
            living.insert(key, (near, far));
            for _ in 0..3 {
                let keys: Vec<_> = living.keys().copied().collect();
                let one = keys[random(keys.len())];
                match random(6) {
                    0..3 => {
                        living.get_mut(&one).unwrap().1.write_all(b"x").unwrap();
                        *unread.entry(one).or_default() += 1;
                    }
                    3 => {
                        let (near, _) = &living[&one];
                        poller.modify(near, one, Interest::Readable).unwrap();
                    }
                    4 if living.len() > 30 => {
                        let (near, _far) = living.remove(&one).unwrap();
                        unread.remove(&one);
                        // Every second descriptor is closed without being deleted.
                        if random(2) == 0 {
                            poller.delete(&near).unwrap();
                        }
                    }
                    _ => {
                        while let Some(event) = poller.try_next() {
                            read(event, &mut living, &mut unread);
                        }
                    }
                }
            }
        }
        while !unread.is_empty() {
            read(next(poller), &mut living, &mut unread);
        }
        assert!(living.values().all(|(near, _)| !has_input(near.as_fd())));
    });

    fn read(
        event: IoEvent,
        living: &mut BTreeMap<usize, (UnixStream, UnixStream)>,
        unread: &mut BTreeMap<usize, usize>,
    ) {
        // A descriptor that was closed without being deleted may still be reported.
        if let Some((near, _)) = living.get_mut(&event.key) {
            let bytes = drain(near);
            assert_eq!(bytes, unread.remove(&event.key).unwrap_or(0));
        }
    }

    fn has_input(fd: BorrowedFd<'_>) -> bool {
        upcall_sys::readiness::is_ready(fd, upcall_sys::readiness::Direction::Readable).unwrap()
    }
}

#[test]
fn what_cannot_be_watched_is_refused() {
    each(|poller, _| {
        let (near, _far) = pair();
        let found = near.as_raw_fd();
        let error = poller.delete(&near).unwrap_err();
        assert_eq!(error, InterestError::NotAdded { found });
        assert_eq!(
            error.to_string(),
            format!("descriptor {found} is not watched, expected one that was added")
        );
    });
}
