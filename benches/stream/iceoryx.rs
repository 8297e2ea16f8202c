//! iceoryx2's publish-subscribe between two threads. It uses the service type for several
//! processes, and each thread has a port of its own.

use std::hint::black_box;
use std::mem::MaybeUninit;
use std::sync::Barrier;

use iceoryx2::port::publisher::Publisher;
use iceoryx2::port::subscriber::Subscriber;
use iceoryx2::prelude::{LogLevel, NodeBuilder, ZeroCopySend, ipc, set_log_level};
use iceoryx2::sample::Sample;
use iceoryx2::service::port_factory::publish_subscribe::PortFactory;

use crate::case::{Case, pause};

type Ipc = ipc::Service;
/// A word that is never filled: the only safe way to a sample whose bytes are not written.
type Blank = MaybeUninit<u64>;

/// Messages are copied in and out.
pub fn copied(cpus: [u32; 2], case: Case) -> Vec<u64> {
    let (service, met) = (service::<u8>(case), Barrier::new(2));
    case.run(
        cpus,
        || {
            let publisher = publisher(&service, case.size, &met);
            Box::new(move |message, batch| {
                for _ in 0..batch {
                    let sample = publisher.loan_slice_uninit(message.len()).expect("a free one");
                    let reached = sample.write_from_slice(message).send();
                    assert_eq!(reached.expect("a connection"), 1, "subscribers");
                }
            })
        },
        || {
            let subscriber = subscriber(&service, &met);
            Box::new(move |message, batch| {
                for _ in 0..batch {
                    message.copy_from_slice(next(&subscriber, case).payload());
                }
            })
        },
    )
}

/// Messages are neither filled nor read, except for the word in front of them.
pub fn in_place(cpus: [u32; 2], case: Case) -> Vec<u64> {
    let words = case.size / size_of::<Blank>();
    let (service, met) = (service::<Blank>(case), Barrier::new(2));
    case.run(
        cpus,
        || {
            let publisher = publisher(&service, words, &met);
            Box::new(move |_, batch| {
                for _ in 0..batch {
                    let sample = publisher.loan_slice_uninit(words).expect("a free one");
                    let mut sample = sample.write_from_fn(|_| Blank::uninit());
                    *sample.user_header_mut() = 7;
                    assert_eq!(sample.send().expect("a connection"), 1, "subscribers");
                }
            })
        },
        || {
            let subscriber = subscriber(&service, &met);
            Box::new(move |_, batch| {
                for _ in 0..batch {
                    let sample = next(&subscriber, case);
                    black_box((*sample.user_header(), sample.payload()));
                }
            })
        },
    )
}

fn next<T: std::fmt::Debug + ZeroCopySend>(
    subscriber: &Subscriber<Ipc, [T], u64>,
    case: Case,
) -> Sample<Ipc, [T], u64> {
    loop {
        match subscriber.receive().expect("a connection") {
            Some(sample) => return sample,
            None => pause(case),
        }
    }
}

fn publisher<T: std::fmt::Debug + ZeroCopySend + 'static>(
    service: &PortFactory<Ipc, [T], u64>,
    elements: usize,
    met: &Barrier,
) -> Publisher<Ipc, [T], u64> {
    // By default the publisher tries again until there is room.
    let builder = service.publisher_builder().initial_max_slice_len(elements);
    let publisher = builder.create().expect("a publisher");
    met.wait();
    publisher
}

/// Establishes the connection. Before this, iceoryx2 discards messages that find no room.
fn subscriber<T: std::fmt::Debug + ZeroCopySend + 'static>(
    service: &PortFactory<Ipc, [T], u64>,
    met: &Barrier,
) -> Subscriber<Ipc, [T], u64> {
    let subscriber = service.subscriber_builder().create().expect("a subscriber");
    met.wait();
    assert!(subscriber.receive().expect("a connection").is_none());
    subscriber
}

/// The service of this case. It ends with its last port.
fn service<T: std::fmt::Debug + ZeroCopySend + 'static>(case: Case) -> PortFactory<Ipc, [T], u64> {
    set_log_level(LogLevel::Error);
    let node = NodeBuilder::new().create::<Ipc>().expect("a node");
    let name = format!("upcall-bench/{}", std::process::id());
    node.service_builder(&name.as_str().try_into().expect("a name"))
        .publish_subscribe::<[T]>()
        .user_header::<u64>()
        .enable_safe_overflow(false)
        .max_publishers(1)
        .max_subscribers(1)
        .subscriber_max_buffer_size(case.room)
        .create()
        .expect("a service")
}
