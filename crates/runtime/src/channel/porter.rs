//! The thread that learns that services are gone, one a process: it watches the connections of all clients.
//!
//! Started with the first client. It does nothing but say so.

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, OnceLock};

use upcall_sys::local::Connection;
use upcall_sys::readiness::{Direction, Readiness, Watch};

use super::message::{BYTES_MAX, ToClient};
use super::raise::lock;
use super::{ChannelOpenError, Gone};

struct Ward {
    connection: Arc<Connection>,
    /// Only to be dropped.
    _watch: Watch,
    told: Box<dyn Fn(Gone) + Send>,
}

#[derive(Default)]
struct Wards {
    next: u64,
    all: BTreeMap<u64, Ward>,
}

/// See the module's head.
struct Porter {
    readiness: Arc<Readiness>,
    wards: Arc<Mutex<Wards>>,
}

/// A connection that is watched until this is dropped.
#[derive(Debug)]
pub(super) struct Watched(u64);

fn porter() -> Result<&'static Porter, ChannelOpenError> {
    static PORTER: OnceLock<Porter> = OnceLock::new();
    static STARTING: Mutex<()> = Mutex::new(());
    let _one = lock(&STARTING);
    if let Some(porter) = PORTER.get() {
        return Ok(porter);
    }
    let readiness = Arc::new(Readiness::new()?);
    let wards = Arc::<Mutex<Wards>>::default();
    let (watched, known) = (readiness.clone(), wards.clone());
    let named = std::thread::Builder::new().name("upcall-porter".to_owned());
    let thread = named.spawn(move || while watched.wait(|number| tell(&known, number)) {});
    thread.map_err(|error| ChannelOpenError::Thread(error.to_string()))?;
    Ok(PORTER.get_or_init(|| Porter { readiness, wards }))
}

/// Has `told` called once, when the service at the other end of `connection` is gone.
pub(super) fn watch(
    connection: &Arc<Connection>,
    told: impl Fn(Gone) + Send + 'static,
) -> Result<Watched, ChannelOpenError> {
    let porter = porter()?;
    let mut wards = lock(&porter.wards);
    let number = wards.next;
    wards.next += 1;
    let watch = Watch::new(&porter.readiness, connection.as_fd(), Direction::Readable, number)?;
    let ward = Ward { connection: connection.clone(), _watch: watch, told: Box::new(told) };
    wards.all.insert(number, ward);
    Ok(Watched(number))
}

fn tell(wards: &Mutex<Wards>, number: u64) {
    // What is dropped here may be a client's last hold of its channel.
    let Some(ward) = lock(wards).all.remove(&number) else { return };
    let mut bytes = [0; BYTES_MAX];
    let said = ward.connection.receive(&mut bytes).ok();
    let bye = said.and_then(|received| ToClient::decode(&bytes[..received.len]));
    (ward.told)(if bye == Some(ToClient::Bye) { Gone::Ended } else { Gone::Died });
}

impl Drop for Watched {
    fn drop(&mut self) {
        if let Ok(porter) = porter() {
            let ward = lock(&porter.wards).all.remove(&self.0);
            drop(ward);
        }
    }
}
