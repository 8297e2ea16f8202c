//! The exchange between the server and a network thread, without an interface.

use super::exchange::{Command, Exchange};

#[test]
fn the_network_thread_never_waits_for_the_server() {
    let exchange = Exchange::default();
    exchange.order(Command::Unbind { session: 7 });
    let Some(server) = exchange.try_lock() else { panic!("nobody has it") };
    assert!(exchange.try_lock().is_none());
    assert_eq!(server.commands.len(), 1);
    drop(server);
    assert!(exchange.try_lock().is_some());
}
