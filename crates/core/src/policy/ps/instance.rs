//! One proportional-share account: EEVDF over clients with weights.
//!
//! An instance divides the service that it is given among its clients, which it knows by number
//! only. A client may be an activity, the packets of a flow or another instance. To nest instances,
//! the caller picks down the tree and charges the service at every level on the way
//! (proportional-share-1998 §4.5 does so inside the IP activity; [`super::ProportionalShare`] has
//! nested instances). Policies call this module; it never calls out.
//!
//! **Virtual time.** The instance's clock `V` advances by `u / W` when a client was served for `u`,
//! where `W` is the total weight (Stoica, Abdel-Wahab, Jeffay, Baruah, Gehrke and Plaxton 1996,
//! "EEVDF" below). A client of weight `w` has a start `s`, the `V` at which its lag is 0. Service
//! moves the start by `u / w`. Then
//!
//! ```text
//! lag      = w (V - s)      service due less service had; ahead if negative
//! eligible = s <= V         not ahead (proportional-share-1998 §3.1)
//! deadline = s + r / w      for a request of length r
//! ```
//!
//! and the eligible client of the earliest deadline is served next. The clock counts service, not
//! time. So interrupts and hand-offs cause no debt, and an instance inside another one needs no
//! clock but its own.
//!
//! **Joining and leaving** with lag (EEVDF's dynamic operations; states below):
//!
//! ```text
//!           (1) request               (2) pick
//!   Idle ----------------> Ready ------------------> Picked
//!    ^  ^                  |  ^                      |  |
//!    |  |                  |  +----------------------+  |
//!    |  |                  |        (3) request         |
//!    |  +------------------+----------------------------+
//!    |     (4) retire, lag >= 0     |
//!    |                              v  (5) retire, lag < 0
//!    +------------------------- Lingering
//!        (6) V reaches s            (1) request: Ready, as it was
//! ```
//!
//! 1. The client joins the competition with lag 0: `s = V`.
//! 2. The client has the earliest deadline. It is served and charged.
//! 3. The client has a further request and keeps its lag.
//! 4. The client forfeits the service that it was still due. No other account changes, because an
//!    advance of `V` would bring the deadlines of the others nearer without service for them. In
//!    total, the others are now ahead by the forfeited service, until jumps of `V` (below) make up
//!    for it.
//! 5. The client was ahead, so it used service that was due to others. It leaves only when its lag
//!    is 0, and its weight counts until then. EEVDF proves that this moves no other lag. So
//!    blocking for a moment gains nothing.
//! 6. The lag of the client is 0, and its weight no longer counts.
//!
//! If no ready client is eligible, `V` jumps to the earliest start, because service is never
//! withheld. So the lags of the competing clients add up to 0 or less. When no client is ready or
//! picked, all debts are forgiven ([`Instance::settle`]).
//!
//! With these rules, a client whose requests are at most `r` has `-r <= lag <= max(r, q)`, where
//! `q` is the longest time that any client is served at once (EEVDF's theorem on steady systems).
//! The bound continues to hold: clients join with lag 0, forfeits only take demand away, and jumps
//! happen when no lag is above 0.
//!
//! **Shares.** In an instance [`Instance::of_shares`], the weight of every client counts, whether
//! the client competes or not. Then `V` advances at a constant rate, and each client is due a
//! constant fraction of the service, whatever the other clients do. No client lingers, because a
//! weight that always counts need not be kept.
//!
//! **Rounding.** Virtual time has [`FRACTION_BITS`] fractional bits. `V` is rounded up and starts
//! are rounded down, so a lag of exactly 0 never appears negative. Each charge errs by less than `w
//! * 2^-60` ns of lag. After 10^9 charges that is below 1 us for any `w < 2^20`, and below 4 ms for
//! the heaviest client. Deadlines are compared in units of 2^-32 ns, so equal deadlines stay equal,
//! and the order of the clients breaks the tie instead of rounding. For the same reason a start
//! that is later than `V` by less than that counts as `V`.

use crate::heap::IndexedHeap;
use crate::time::Span;
use core::cmp::Ordering;

/// The fractional bits of virtual time.
pub const FRACTION_BITS: u32 = 60;

/// The lowest bits of a deadline, which comparisons ignore.
const DEADLINE_BITS_CUT: u32 = 28;

/// The longest service that is charged or requested at once, 36 years. It keeps `ns <<
/// FRACTION_BITS` within an `i128`.
const SERVICE_NS_MAX: u64 = 1 << 60;

/// The greatest lag that a change of weight keeps, as service in virtual units. No client is owed
/// more: all service together is at most [`SERVICE_NS_MAX`] twice (`trace::INSTANT_MAX`).
const LAG_MAX: i128 = 1 << (61 + FRACTION_BITS);

/// A point in virtual time: nanoseconds of service for each unit of weight, in
/// units of `2^-FRACTION_BITS`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Virtual(i128);

impl Ord for Virtual {
    fn cmp(&self, other: &Self) -> Ordering {
        #[cfg(test)]
        tests::COMPARISONS.with(|count| count.set(count.get() + 1));
        self.0.cmp(&other.0)
    }
}

impl PartialOrd for Virtual {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The state of a client; the [module](self) describes the states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ClientState {
    Idle,
    Lingering,
    Ready,
    Picked,
}

#[derive(Clone, Copy, Debug)]
struct Client {
    /// 0 if no such client ever joined. Above `u32::MAX` only by [`Instance::weigh`].
    weight: u64,
    /// Whether the client left. Its debt may still linger here.
    left: bool,
    /// Breaks ties; the smaller value goes first.
    tie: u32,
    state: ClientState,
    start: Virtual,
    /// The clock when the client retired after service with a lag of 0 or more.
    retired: Option<Virtual>,
    request_ns: u64,
}

impl Client {
    const NONE: Client = Client {
        weight: 0,
        left: false,
        tie: 0,
        state: ClientState::Idle,
        start: Virtual(0),
        retired: None,
        request_ns: 0,
    };

    fn exists(&self) -> bool {
        self.weight > 0 && !self.left
    }

    /// Whether the client is not ahead at `clock`, rounding aside.
    fn is_eligible(&self, clock: Virtual) -> bool {
        self.start < Virtual(clock.0 + (1 << DEADLINE_BITS_CUT))
    }

    /// `ns` of service in its virtual time, rounded down.
    fn stretch(&self, ns: u64) -> i128 {
        fixed(ns) / i128::from(self.weight.max(1))
    }

    /// The deadline of its request, rounded to the precision of comparisons.
    fn deadline(&self) -> Virtual {
        let half = 1 << (DEADLINE_BITS_CUT - 1);
        Virtual((self.start.0 + self.stretch(self.request_ns) + half) >> DEADLINE_BITS_CUT)
    }
}

/// Virtual time, and the lag of each client, of one group of clients that share by weight: the
/// algorithm EEVDF (proportional-share-1998 §3). [`ProportionalShare`](super::ProportionalShare) is
/// made of instances.
///
/// A method does nothing if the number is at or above the capacity, or if the client never joined
/// or left. Nothing allocates after creation.
#[derive(Debug)]
pub struct Instance {
    clients: Vec<Client>,
    clock: Virtual,
    /// The sum of the weights that count.
    total: u64,
    /// Whether the weight of an idle client counts.
    shares: bool,
    /// Ready clients that were not eligible at the last check, by start.
    waiting: IndexedHeap<(Virtual, u32)>,
    /// Ready and eligible clients, by deadline.
    eligible: IndexedHeap<(Virtual, u32)>,
    /// Lingering clients, by start.
    lingering: IndexedHeap<Virtual>,
    picked: u32,
    /// The latest start so far.
    start_max: Virtual,
}

impl Instance {
    /// An instance for clients numbered `0..capacity`. A client is due its weight's part of the
    /// weights of all competing clients. Allocates.
    pub fn of_weights(capacity: u32) -> Self {
        Instance {
            clients: vec![Client::NONE; capacity as usize],
            clock: Virtual(0),
            total: 0,
            shares: false,
            waiting: IndexedHeap::with_capacity(capacity),
            eligible: IndexedHeap::with_capacity(capacity),
            lingering: IndexedHeap::with_capacity(capacity),
            picked: 0,
            start_max: Virtual(0),
        }
    }

    /// An instance for clients numbered `0..capacity`. A client is due its weight's part of the
    /// weights of all clients; what idle clients leave goes to the ready ones. Allocates.
    pub fn of_shares(capacity: u32) -> Self {
        Instance { shares: true, ..Instance::of_weights(capacity) }
    }

    /// Adds an idle client. A `weight` of 0 counts as 1. Among equal deadlines the smallest `tie`
    /// goes first. O(log n).
    pub fn join(&mut self, client: u32, weight: u32, tie: u32) {
        self.join_weighing(client, weight.into(), tie);
    }

    /// As [`Self::join`], for a weight below `2^48`.
    pub(super) fn join_weighing(&mut self, client: u32, weight: u64, tie: u32) {
        self.leave(client);
        let Some(place) = self.clients.get(client as usize) else { return };
        if place.state == ClientState::Lingering {
            // The debt of the previous client with this number is written off.
            self.drop_out(client);
        }
        let weight = weight.max(1);
        self.clients[client as usize] = Client { weight, tie, start: self.clock, ..Client::NONE };
        if self.shares {
            self.total += weight;
        }
    }

    /// Removes the client in any state. If the client lingers, its weight counts until its debt is
    /// paid. O(log n).
    pub fn leave(&mut self, client: u32) {
        self.retire(client);
        let Some(place) = self.client_mut(client) else { return };
        place.left = true;
        let weight = place.weight;
        if self.shares {
            self.total -= weight;
        }
    }

    /// Changes the weight at once. The lag stays the same amount of service (EEVDF: as if the
    /// client left and joined with its lag). O(log n).
    pub fn reweigh(&mut self, client: u32, weight: u32) {
        self.weigh(client, weight.into());
    }

    /// As [`Self::reweigh`], for a weight below `2^48`.
    pub(super) fn weigh(&mut self, client: u32, weight: u64) {
        let clock = self.clock;
        let counts_idle = self.shares;
        let weight = weight.max(1);
        let Some(place) = self.client_mut(client) else { return };
        let before = core::mem::replace(&mut place.weight, weight);
        let ahead = (place.start.0 - clock.0).saturating_mul(i128::from(before));
        // An idle client keeps an old start, so it can be behind by any amount.
        let ahead = ahead.clamp(-LAG_MAX, LAG_MAX);
        // Rounded down, like every start.
        place.start = Virtual(clock.0 + ahead.div_euclid(i128::from(weight)));
        let (state, start) = (place.state, place.start);
        self.start_max = self.start_max.max(start);
        if counts_idle || state != ClientState::Idle {
            self.total = self.total - before + weight;
        }
        self.replace(client, state);
    }

    /// The client requests service for `length`. This replaces the request of a client that is
    /// ready. O(log n).
    pub fn request(&mut self, client: u32, length: Span) {
        let (clock, shares) = (self.clock, self.shares);
        let Some(place) = self.client_mut(client) else { return };
        place.request_ns = clamped_ns(length);
        let state = core::mem::replace(&mut place.state, ClientState::Ready);
        let weight = place.weight;
        // A client that returns at the virtual time at which it retired never stopped competing.
        if state == ClientState::Idle && place.retired != Some(clock) {
            place.start = place.start.max(clock);
        }
        match state {
            ClientState::Idle if !shares => self.total += weight,
            ClientState::Picked => self.picked -= 1,
            ClientState::Lingering => self.lingering.remove(client),
            ClientState::Idle | ClientState::Ready => {}
        }
        self.enqueue(client);
    }

    /// The client has no further request. O(log n).
    pub fn retire(&mut self, client: u32) {
        let (clock, shares) = (self.clock, self.shares);
        let Some(place) = self.client_mut(client) else { return };
        let ahead = place.start > clock;
        let (state, start, weight) = (place.state, place.start, place.weight);
        if matches!(state, ClientState::Idle | ClientState::Lingering) {
            return;
        }
        let lingers = ahead && !shares;
        place.state = if lingers { ClientState::Lingering } else { ClientState::Idle };
        place.retired = (state == ClientState::Picked).then_some(clock);
        if lingers {
            self.lingering.set(start, client);
        } else if !shares {
            self.total -= weight;
        }
        match state {
            ClientState::Picked => self.picked -= 1,
            _ => self.dequeue(client),
        }
    }

    /// Takes out the client that is served next: step (2). `None` if no client is ready. O(log n)
    /// amortized, because a client passes from waiting to eligible, or from lingering to idle, at
    /// most once for each request.
    pub fn pick(&mut self) -> Option<u32> {
        let client = self.peek()?;
        self.take(client);
        Some(client)
    }

    /// The client that `pick` would return, at the same cost.
    pub fn peek(&mut self) -> Option<u32> {
        if !self.has_eligible() {
            let ((start, _), _) = self.waiting.peek()?;
            self.clock = self.clock.max(start);
            while let Some((start, client)) = self.lingering.peek() {
                if start > self.clock {
                    break;
                }
                self.drop_out(client);
            }
        }
        self.promote();
        self.eligible.peek().map(|(_, client)| client)
    }

    /// Takes out this client, if it is ready. O(log n).
    pub fn take(&mut self, client: u32) {
        let Some(place) = self.client_mut(client) else { return };
        if place.state == ClientState::Ready {
            place.state = ClientState::Picked;
            self.picked += 1;
            self.dequeue(client);
        }
    }

    /// Charges a picked client `used`. O(log n) amortized, like `pick`.
    pub fn charge(&mut self, client: u32, used: Span) {
        let used_ns = clamped_ns(used);
        let Some(place) = self.client_mut(client) else { return };
        debug_assert_eq!(place.state, ClientState::Picked, "only a picked client is served");
        place.start.0 += place.stretch(used_ns);
        let start = place.start;
        self.start_max = self.start_max.max(start);
        self.advance(used_ns);
    }

    /// Gives a ready client that is ahead a lag of 0, so that it is eligible: for a client that
    /// gets service to which no other client has a claim. O(log n).
    pub fn forgive(&mut self, client: u32) {
        let clock = self.clock;
        let Some(place) = self.client_mut(client) else { return };
        if place.state == ClientState::Ready && place.start > clock {
            place.start = clock;
            self.enqueue(client);
        }
    }

    /// The client forfeits the lag by which it is behind, and is ahead by `debt` more: for a client
    /// that gets the share of a client that left, with its whole debt. O(log n).
    pub fn inherit(&mut self, client: u32, debt: Span) {
        let clock = self.clock;
        let Some(place) = self.client_mut(client) else { return };
        place.start = Virtual(place.start.max(clock).0 + place.stretch(clamped_ns(debt)));
        let (state, start) = (place.state, place.start);
        self.start_max = self.start_max.max(start);
        self.replace(client, state);
    }

    /// If no client is ready or picked, the next ones begin with lag 0, whatever their lag was.
    /// O(1), and O(log n) for each lingering client.
    pub fn settle(&mut self) {
        if self.picked > 0 || self.has_ready() {
            return;
        }
        while let Some((_, client)) = self.lingering.peek() {
            self.drop_out(client);
        }
        // Past every start, and past the last retirement.
        self.clock = Virtual(self.clock.0.max(self.start_max.0) + 1);
    }

    /// Whether any client is ready. O(1).
    pub fn has_ready(&self) -> bool {
        self.waiting.peek().is_some() || self.eligible.peek().is_some()
    }

    /// Whether this client is ready. O(1).
    pub fn is_ready(&self, client: u32) -> bool {
        self.clients.get(client as usize).is_some_and(|place| place.state == ClientState::Ready)
    }

    /// Whether a ready client is eligible. O(log n) amortized, as `pick`.
    pub fn has_eligible(&mut self) -> bool {
        self.promote();
        self.eligible.peek().is_some()
    }

    /// How far the client is behind its due, in nanoseconds of service; negative if ahead, `None`
    /// if there is no such client. `serving` was served for `pending` that is not charged yet;
    /// clients that would drop out meanwhile still count. O(1).
    pub fn lag_ns(&self, client: u32, serving: Option<u32>, pending: Span) -> Option<i64> {
        let place = self.clients.get(client as usize).filter(|place| place.exists())?;
        let pending_ns = clamped_ns(pending);
        let (mut clock, mut start) = (self.clock.0, place.start.0);
        if serving.is_some() {
            clock += fixed(pending_ns) / i128::from(self.total.max(1));
        }
        if serving == Some(client) {
            start += place.stretch(pending_ns);
        }
        let lag = (clock - start).saturating_mul(i128::from(place.weight)) >> FRACTION_BITS;
        let lag = match place.state {
            // Such a client is due nothing, and may have a debt.
            ClientState::Idle | ClientState::Lingering => lag.min(0),
            ClientState::Ready | ClientState::Picked => lag,
        };
        Some(i64::try_from(lag).unwrap_or(if lag < 0 { i64::MIN } else { i64::MAX }))
    }

    fn client_mut(&mut self, client: u32) -> Option<&mut Client> {
        self.clients.get_mut(client as usize).filter(|place| place.exists())
    }

    /// Advances the clock by `used_ns` of service. It stops where a lingering client drops out,
    /// because the clock runs faster from there on.
    fn advance(&mut self, used_ns: u64) {
        let mut left = fixed(used_ns);
        while let Some((start, client)) = self.lingering.peek() {
            let total = i128::from(self.total);
            if self.clock.0 + div_ceil(left, total) < start.0 {
                break;
            }
            let passed = (start.0 - self.clock.0).max(0);
            // At most `left`, rounding aside.
            left -= (passed * total).min(left);
            self.clock.0 += passed;
            self.drop_out(client);
        }
        self.clock.0 += div_ceil(left, i128::from(self.total));
    }

    /// Step (6) of [the module's states](self).
    fn drop_out(&mut self, client: u32) {
        self.lingering.remove(client);
        let place = &mut self.clients[client as usize];
        place.state = ClientState::Idle;
        self.total -= place.weight;
    }

    /// Moves a client whose start or weight changed.
    fn replace(&mut self, client: u32, state: ClientState) {
        match state {
            ClientState::Ready => self.enqueue(client),
            ClientState::Lingering => {
                self.lingering.set(self.clients[client as usize].start, client)
            }
            ClientState::Idle | ClientState::Picked => {}
        }
    }

    fn enqueue(&mut self, client: u32) {
        self.dequeue(client);
        let place = &self.clients[client as usize];
        if place.is_eligible(self.clock) {
            self.eligible.set((place.deadline(), place.tie), client);
        } else {
            self.waiting.set((place.start, place.tie), client);
        }
    }

    fn dequeue(&mut self, client: u32) {
        self.waiting.remove(client);
        self.eligible.remove(client);
    }

    /// Makes clients eligible whose start the clock has reached.
    fn promote(&mut self) {
        while let Some((_, client)) = self.waiting.peek() {
            if !self.clients[client as usize].is_eligible(self.clock) {
                break;
            }
            self.enqueue(client);
        }
    }
}

fn clamped_ns(span: Span) -> u64 {
    span.as_nanos().min(SERVICE_NS_MAX)
}

fn fixed(ns: u64) -> i128 {
    i128::from(ns) << FRACTION_BITS
}

/// `value / divisor` rounded up; a divisor of 0 counts as 1.
fn div_ceil(value: i128, divisor: i128) -> i128 {
    let divisor = divisor.max(1);
    (value + divisor - 1) / divisor
}

#[cfg(test)]
mod tests;
