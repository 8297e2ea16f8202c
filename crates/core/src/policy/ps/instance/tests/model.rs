//! What an instance does, said as plainly as possible: virtual times are exact
//! fractions over one common denominator, and everything is found by looking at
//! everyone.
//!
//! Where one who lingers drops out amid a charge, what is left of it is divided anew,
//! and the denominators multiply. No denominator is enough for ever; a model says
//! when it can no longer be exact.

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
    /// It left, and may linger.
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
pub(in crate::policy::ps) struct Model {
    clients: Vec<Client>,
    clock: i128,
    shares: bool,
    /// A multiple of every weight in use.
    denominator: i128,
    /// Whether nothing was rounded so far.
    pub(in crate::policy::ps) exact: bool,
}

impl Model {
    pub(in crate::policy::ps) fn new(capacity: usize, shares: bool, denominator: i128) -> Self {
        let (start, retired, request) = (0, None, 0);
        let (weight, tie, standing, left) = (1, 0, Absent, true);
        let absent = Client { weight, tie, standing, left, start, retired, request };
        let clients = vec![absent; capacity];
        Model { clients, clock: 0, shares, denominator, exact: true }
    }

    pub(in crate::policy::ps) fn join(&mut self, client: u32, weight: u32, tie: u32) {
        let (start, weight) = (self.clock, i128::from(weight));
        let (standing, left, retired, request) = (Idle, false, None, 0);
        self.clients[client as usize] =
            Client { weight, tie, standing, left, start, retired, request };
    }

    pub(in crate::policy::ps) fn leave(&mut self, client: u32) {
        self.retire(client);
        let place = &mut self.clients[client as usize];
        place.left = true;
        if place.standing == Idle {
            place.standing = Absent;
        }
    }

    pub(in crate::policy::ps) fn request(&mut self, client: u32, ns: u64) {
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

    pub(in crate::policy::ps) fn retire(&mut self, client: u32) {
        let (clock, shares) = (self.clock, self.shares);
        let place = &mut self.clients[client as usize];
        if matches!(place.standing, Ready | Picked) {
            place.retired = (place.standing == Picked).then_some(clock);
            place.standing = if place.start > clock && !shares { Lingering } else { Idle };
        }
    }

    pub(in crate::policy::ps) fn pick(&mut self) -> Option<u32> {
        let ready = self.clients.iter().filter(|place| place.standing == Ready);
        let earliest = ready.map(|place| place.start).min()?;
        // A jump if nobody is eligible.
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

    pub(in crate::policy::ps) fn charge(&mut self, client: u32, ns: u64) {
        let mut left = i128::from(ns) * self.denominator;
        let place = &mut self.clients[client as usize];
        place.start += left / place.weight;
        // Step by step, from one who drops out to the next.
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

    pub(in crate::policy::ps) fn forgive(&mut self, client: u32) {
        let clock = self.clock;
        let place = &mut self.clients[client as usize];
        if place.standing == Ready {
            place.start = place.start.min(clock);
        }
    }

    pub(in crate::policy::ps) fn settle(&mut self) {
        if self.clients.iter().all(|place| !matches!(place.standing, Ready | Picked)) {
            for place in &mut self.clients {
                place.standing = if place.left { Absent } else { Idle };
                place.start = self.clock;
                place.retired = None;
            }
        }
    }

    pub(in crate::policy::ps) fn has_ready(&self) -> bool {
        self.clients.iter().any(|place| place.standing == Ready)
    }

    pub(in crate::policy::ps) fn has_eligible(&self) -> bool {
        self.clients.iter().any(|place| place.standing == Ready && place.start <= self.clock)
    }

    pub(in crate::policy::ps) fn is_ready(&self, client: u32) -> bool {
        self.clients[client as usize].standing == Ready
    }

    pub(in crate::policy::ps) fn lag_ns(&self, client: u32) -> Option<i64> {
        let place = self.clients[client as usize];
        let lag = ((self.clock - place.start) * place.weight).div_euclid(self.denominator);
        let competes = matches!(place.standing, Ready | Picked);
        let lag = if competes { lag } else { lag.min(0) };
        (!place.left).then(|| i64::try_from(lag).unwrap())
    }

    /// Those whose lag has become 0 go.
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
