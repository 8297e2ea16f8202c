//! An instance in its simplest form: virtual times are exact fractions over one common denominator,
//! and every question is answered by examining all clients.
//!
//! The property tests of instances and of the policy, and the fuzz targets, give it operations.
//!
//! If a lingering client drops out during a charge, the rest of the charge is divided anew, and the
//! denominators multiply. No denominator suffices for ever; a model reports when it is no longer
//! exact.

use upcall_core::policy::ps::Instance;
use upcall_core::time::Span;

#[derive(Clone, Copy, PartialEq)]
enum Standing {
    Absent,
    Idle,
    Lingering,
    Ready,
    Picked,
}
use Standing::{Absent, Idle, Lingering, Picked, Ready};

#[derive(Clone, Copy)]
struct Client {
    weight: i128,
    tie: u32,
    standing: Standing,
    /// Whether the client left. It may linger.
    left: bool,
    start: i128,
    /// The clock when it retired after being served.
    retired: Option<i128>,
    request: i128,
}

impl Client {
    /// Exact, as the weight divides the denominator.
    fn deadline(&self, denominator: i128) -> i128 {
        self.start + self.request * denominator / self.weight
    }
}

#[derive(Clone)]
pub struct Model {
    clients: Vec<Client>,
    clock: i128,
    shares: bool,
    /// A multiple of every weight in use.
    denominator: i128,
    /// Whether nothing was rounded so far.
    pub exact: bool,
}

impl Model {
    pub fn new(capacity: usize, shares: bool, denominator: i128) -> Self {
        let (start, retired, request) = (0, None, 0);
        let (weight, tie, standing, left) = (1, 0, Absent, true);
        let absent = Client { weight, tie, standing, left, start, retired, request };
        let clients = vec![absent; capacity];
        Model { clients, clock: 0, shares, denominator, exact: true }
    }

    pub fn join(&mut self, client: u32, weight: u32, tie: u32) {
        let (start, weight) = (self.clock, i128::from(weight));
        let (standing, left, retired, request) = (Idle, false, None, 0);
        self.clients[client as usize] =
            Client { weight, tie, standing, left, start, retired, request };
    }

    pub fn leave(&mut self, client: u32) {
        self.retire(client);
        let place = &mut self.clients[client as usize];
        place.left = true;
        if place.standing == Idle {
            place.standing = Absent;
        }
    }

    pub fn request(&mut self, client: u32, ns: u64) {
        let clock = self.clock;
        let place = &mut self.clients[client as usize];
        if place.left {
            return;
        }
        if place.standing == Idle && place.retired != Some(clock) && place.start < clock {
            place.start = clock;
        }
        place.standing = Ready;
        place.request = i128::from(ns);
    }

    pub fn retire(&mut self, client: u32) {
        let (clock, shares) = (self.clock, self.shares);
        let place = &mut self.clients[client as usize];
        if matches!(place.standing, Ready | Picked) {
            place.retired = (place.standing == Picked).then_some(clock);
            place.standing = if place.start > clock && !shares { Lingering } else { Idle };
        }
    }

    pub fn pick(&mut self) -> Option<u32> {
        let ready = self.clients.iter().filter(|place| place.standing == Ready);
        let earliest = ready.map(|place| place.start).min()?;
        // A jump if no client is eligible.
        self.clock = self.clock.max(earliest);
        self.drop_out();
        let eligible = (0..self.clients.len()).filter(|&client| {
            let place = self.clients[client];
            place.standing == Ready && place.start <= self.clock
        });
        let key = |client: &usize| {
            (self.clients[*client].deadline(self.denominator), self.clients[*client].tie)
        };
        let client = eligible.min_by_key(key)?;
        self.clients[client].standing = Picked;
        u32::try_from(client).ok()
    }

    pub fn charge(&mut self, client: u32, ns: u64) {
        let mut left = i128::from(ns) * self.denominator;
        let place = &mut self.clients[client as usize];
        self.exact &= left % place.weight == 0;
        place.start += left / place.weight;
        // Step by step, from one client that drops out to the next.
        loop {
            let lingering = self.clients.iter().filter(|place| place.standing == Lingering);
            let next = lingering.map(|place| place.start - self.clock).min();
            let total = self.total();
            match next {
                Some(step) if step * total <= left => {
                    self.clock += step;
                    left -= step * total;
                    self.drop_out();
                }
                _ => {
                    self.exact &= left % total == 0;
                    self.clock += left / total;
                    return;
                }
            }
        }
    }

    /// Changes the weight of a client. The lag stays the same amount of service.
    pub fn reweigh(&mut self, client: u32, weight: u32) {
        let clock = self.clock;
        let place = &mut self.clients[client as usize];
        if place.left {
            return;
        }
        let ahead = (place.start - clock) * place.weight;
        place.weight = i128::from(weight);
        self.exact &= ahead % place.weight == 0;
        place.start = clock + ahead / place.weight;
    }

    /// The client forfeits its lag, and takes over the debt of a client that left.
    pub fn inherit(&mut self, client: u32, debt_ns: u64) {
        let place = &mut self.clients[client as usize];
        if place.left {
            return;
        }
        let debt = i128::from(debt_ns) * self.denominator;
        self.exact &= debt % place.weight == 0;
        place.start = place.start.max(self.clock) + debt / place.weight;
    }

    pub fn forgive(&mut self, client: u32) {
        let clock = self.clock;
        let place = &mut self.clients[client as usize];
        if place.standing == Ready {
            place.start = place.start.min(clock);
        }
    }

    pub fn settle(&mut self) {
        if self.clients.iter().all(|place| !matches!(place.standing, Ready | Picked)) {
            for place in &mut self.clients {
                place.standing = if place.left { Absent } else { Idle };
                place.start = self.clock;
                place.retired = None;
            }
        }
    }

    pub fn has_ready(&self) -> bool {
        self.clients.iter().any(|place| place.standing == Ready)
    }

    pub fn has_eligible(&self) -> bool {
        self.clients.iter().any(|place| place.standing == Ready && place.start <= self.clock)
    }

    pub fn is_ready(&self, client: u32) -> bool {
        self.clients[client as usize].standing == Ready
    }

    pub fn lag_ns(&self, client: u32) -> Option<i64> {
        let place = self.clients[client as usize];
        let lag = ((self.clock - place.start) * place.weight).div_euclid(self.denominator);
        let competes = matches!(place.standing, Ready | Picked);
        let lag = if competes { lag } else { lag.min(0) };
        (!place.left).then(|| i64::try_from(lag).expect("a lag of years"))
    }

    /// Clients whose lag has become 0 leave.
    fn drop_out(&mut self) {
        for place in &mut self.clients {
            if place.standing == Lingering && place.start <= self.clock {
                place.standing = if place.left { Absent } else { Idle };
            }
        }
    }

    fn total(&self) -> i128 {
        let counts = |place: &&Client| match place.standing {
            Absent => false,
            Idle => self.shares,
            Lingering | Ready | Picked => true,
        };
        self.clients.iter().filter(counts).map(|place| place.weight).sum()
    }
}

/// The operations. The second number is a length or a time in ns, or a weight.
#[derive(Clone, Debug)]
pub enum Op {
    Request(u32, u64),
    Retire(u32),
    Leave(u32),
    Join(u32, u32),
    Forgive(u32),
    Reweigh(u32, u32),
    Inherit(u32, u64),
    Serve(u64),
    Settle,
}

/// The number of clients.
pub const CLIENTS: u32 = 5;

/// The instance, the model, and the client that is picked and has not returned.
struct Both {
    instance: Instance,
    model: Model,
    picked: Option<u32>,
}

impl Both {
    fn new(shares: bool) -> Self {
        let instance =
            if shares { Instance::of_shares(CLIENTS) } else { Instance::of_weights(CLIENTS) };
        // Totals are 15 at most: 360360 is divisible by all of them.
        let model = Model::new(CLIENTS as usize, shares, 360_360i128.pow(5));
        let mut both = Both { instance, model, picked: None };
        for client in 0..CLIENTS {
            both.apply(&Op::Join(client, 1 + client % 2));
        }
        both
    }

    /// Applies an operation. Returns the clients that the instance and the model picked, if any.
    fn apply(&mut self, op: &Op) -> Option<(Option<u32>, Option<u32>)> {
        let Both { instance, model, picked } = self;
        if let Op::Request(client, _)
        | Op::Retire(client)
        | Op::Leave(client)
        | Op::Join(client, _) = op
        {
            *picked = picked.filter(|picked| picked != client);
        }
        match *op {
            Op::Request(client, ns) => {
                instance.request(client, Span::from_nanos(ns));
                model.request(client, ns);
            }
            Op::Retire(client) => {
                instance.retire(client);
                model.retire(client);
            }
            Op::Leave(client) => {
                instance.leave(client);
                model.leave(client);
            }
            Op::Join(client, weight) => {
                instance.join(client, weight, client);
                model.join(client, weight, client);
            }
            Op::Forgive(client) => {
                instance.forgive(client);
                model.forgive(client);
            }
            Op::Reweigh(client, weight) => {
                instance.reweigh(client, weight);
                model.reweigh(client, weight);
            }
            Op::Inherit(client, ns) => {
                instance.inherit(client, Span::from_nanos(ns));
                model.inherit(client, ns);
            }
            Op::Settle => {
                instance.settle();
                model.settle();
            }
            Op::Serve(ns) => {
                let mut both = None;
                if picked.is_none() {
                    *picked = instance.pick();
                    both = Some((*picked, model.pick()));
                }
                if let Some(client) = *picked {
                    instance.charge(client, Span::from_nanos(ns));
                    model.charge(client, ns);
                }
                return both;
            }
        }
        None
    }
}

/// Applies the operations to the instance and the model, until the model is no longer exact;
/// returns how many it applied. Panics where they differ: in the picked client, or in a lag by more
/// than the rounding.
pub fn compare(shares: bool, ops: &[Op]) -> usize {
    let mut both = Both::new(shares);
    for (count, op) in ops.iter().enumerate() {
        let picks = both.apply(op);
        if !both.model.exact {
            return count;
        }
        if let Some((found, expected)) = picks {
            assert_eq!(found, expected);
        }
        assert_eq!(both.instance.has_ready(), both.model.has_ready());
        for client in 0..CLIENTS {
            let (found, expected) =
                (both.instance.lag_ns(client, None, Span::ZERO), both.model.lag_ns(client));
            assert_eq!(found.is_some(), expected.is_some());
            let difference = found.unwrap_or(0) - expected.unwrap_or(0);
            assert!(difference.abs() <= 1, "{found:?} instead of {expected:?}");
        }
    }
    ops.len()
}
