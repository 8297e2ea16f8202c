//! What programs have of each CPU: sums, quanta, and the weight of `rest`. Makes no system call.

use std::collections::BTreeMap;

use upcall_core::admission::program::{
    CpuPrograms, PROGRAM_QUANTUM, PROGRAM_WEIGHT_MAX, ProgramCpu, ProgramNeed, TimedProgram,
};
use upcall_core::admission::{CpuLoad, Share};
use upcall_core::time::Span;

use super::admitted::ProgramId;
use super::ticker;

/// What handlers may take beyond their reservations, in millionths of the CPU: left free beside
/// `rest` where there are handlers.
const BEYOND_PPM: f64 = crate::enforcement::SHARE_GRACE_PPM as f64;
const WHOLE_PPM: f64 = 1e6;
/// The weight 1 of the groups inside `rest`, in millionths of the greatest weight.
pub(super) const ONE_PPM: u32 = 1_000_000 / PROGRAM_WEIGHT_MAX;

/// The weight of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Weight {
    Share(Share),
    OfRest(u32),
}

impl Weight {
    /// In millionths of the greatest weight.
    pub(super) fn ppm(self) -> u32 {
        match self {
            Weight::Share(share) => share.ppm(),
            Weight::OfRest(weight) => weight.saturating_mul(ONE_PPM),
        }
    }

    pub(super) fn share(self) -> Option<Share> {
        match self {
            Weight::Share(share) => Some(share),
            Weight::OfRest(_) => None,
        }
    }

    pub(super) fn of_rest(self) -> Option<u32> {
        match self {
            Weight::Share(_) => None,
            Weight::OfRest(weight) => Some(weight),
        }
    }
}

/// What one program has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) user: u32,
    pub(super) cpu: u32,
    pub(super) weight: Weight,
    /// What it asked for.
    pub(super) quantum: Option<Span>,
    /// The cost in each period that it was admitted for.
    pub(super) timing: Option<(Span, Span)>,
}

/// See the module's head.
#[derive(Debug)]
pub(super) struct Shares {
    /// The CPUs of the daemon.
    pub(super) cpus: Vec<u32>,
    /// Whether a ticker keeps the quantum.
    may_tick: bool,
    /// The kernel's own tick, which keeps it otherwise.
    kernel_tick: Span,
    /// The handlers of each CPU, as far as known.
    pub(super) loads: BTreeMap<u32, CpuLoad>,
    pub(super) parts: BTreeMap<ProgramId, Part>,
}

impl Shares {
    pub(super) fn new(cpus: Vec<u32>, may_tick: bool, kernel_tick: Span) -> Self {
        let (loads, parts) = (BTreeMap::new(), BTreeMap::new());
        Shares { cpus, may_tick, kernel_tick, loads, parts }
    }

    /// The load of the CPU where a need is to be placed: of the CPU that it names, or of the first
    /// where it fits, or else of the one with the most room.
    pub(super) fn place<'l>(
        &self,
        need: &ProgramNeed,
        loads: &'l [CpuLoad],
    ) -> Option<&'l CpuLoad> {
        let before = |load: &CpuLoad| self.cpu_with(load, need.quantum, None);
        let is_asked = |load: &&CpuLoad| {
            self.cpus.contains(&load.cpu) && need.cpu.is_none_or(|cpu| cpu == load.cpu)
        };
        let fits = |load: &&CpuLoad| before(load).admit(need).is_ok_and(|of| of.is_some());
        let asked = || loads.iter().filter(is_asked);
        // Of equals the first one.
        let most_room = || asked().rev().max_by_key(|load| before(load).free_ppm());
        asked().find(fits).or_else(most_room)
    }

    /// A CPU before a program with a quantum asks for a part of it, or asks again.
    pub(super) fn cpu_with(
        &self,
        load: &CpuLoad,
        asked: Option<Span>,
        again: Option<ProgramId>,
    ) -> ProgramCpu {
        let quantum = self.quantum(load.cpu, Some(asked.unwrap_or(PROGRAM_QUANTUM)));
        ProgramCpu {
            load: *load,
            ticker_ppm: if self.may_tick { ticker::cost_ppm(quantum) } else { 0 },
            programs_ppm: self.shares_ppm(load.cpu, again),
            // Not the shorter one of another program, which may leave.
            quantum: self.promised(asked),
        }
    }

    /// A CPU as its programs have it now; `None` if the load was never told.
    pub(super) fn cpu_now(&self, cpu: u32) -> Option<ProgramCpu> {
        let quantum = self.quantum(cpu, None);
        Some(ProgramCpu {
            load: *self.loads.get(&cpu)?,
            ticker_ppm: self.ticker_ppm(cpu),
            programs_ppm: self.shares_ppm(cpu, None),
            quantum: self.kept(quantum),
        })
    }

    /// The quantum of the promise to a program that asked for this one.
    pub(super) fn promised(&self, asked: Option<Span>) -> Span {
        self.kept(asked.unwrap_or(PROGRAM_QUANTUM))
    }

    /// The quantum that the ticker or the kernel's own tick keeps.
    fn kept(&self, quantum: Span) -> Span {
        if self.may_tick { quantum } else { quantum.max(self.kernel_tick) }
    }

    /// The CPUs that have programs with shares.
    pub(super) fn cpus_with_shares(&self) -> impl Iterator<Item = u32> {
        self.cpus.iter().copied().filter(|&cpu| self.sharing(cpu).next().is_some())
    }

    fn sharing(&self, cpu: u32) -> impl Iterator<Item = (&ProgramId, &Part)> {
        let shares = move |part: &Part| part.cpu == cpu && part.weight.share().is_some();
        self.parts.iter().filter(move |(_, part)| shares(part))
    }

    /// The sum of the shares on a CPU, in millionths, without one program.
    fn shares_ppm(&self, cpu: u32, without: Option<ProgramId>) -> u32 {
        let others = self.sharing(cpu).filter(|(id, _)| Some(**id) != without);
        others.map(|(_, part)| part.weight.ppm()).sum()
    }

    /// The least quantum of the programs with shares on a CPU, and of one more. With none of them,
    /// the default.
    fn quantum(&self, cpu: u32, one_more: Option<Span>) -> Span {
        let all = self.sharing(cpu).map(|(_, part)| part.quantum.unwrap_or(PROGRAM_QUANTUM));
        all.chain(one_more).min().unwrap_or(PROGRAM_QUANTUM)
    }

    /// What the ticker of a CPU takes, in millionths.
    fn ticker_ppm(&self, cpu: u32) -> u32 {
        self.ticks(cpu).map_or(0, ticker::cost_ppm)
    }

    /// The quantum of a CPU's ticker; `None`: it has none.
    pub(super) fn ticks(&self, cpu: u32) -> Option<Span> {
        let needs_one = self.may_tick && self.sharing(cpu).next().is_some();
        needs_one.then(|| self.quantum(cpu, None))
    }

    /// What programs have of a CPU, for the admission of handlers.
    pub(super) fn on(&self, cpu: u32, name_of: impl Fn(ProgramId) -> String) -> CpuPrograms {
        let timed = self.sharing(cpu).filter_map(|(&id, part)| {
            let (share, (cost, period)) = part.weight.share().zip(part.timing)?;
            let (name, quantum) = (name_of(id), self.promised(part.quantum));
            Some(TimedProgram { id, name, share, quantum, cost, period })
        });
        CpuPrograms {
            reserved_ppm: self.reserved_ppm(cpu),
            ticker_ppm: self.ticker_ppm(cpu),
            timed: timed.collect(),
        }
    }

    /// A program whose cost would not be supplied in each period any more if the ticker also kept
    /// this quantum: a faster ticker takes more of the CPU, and so handlers keep it for longer.
    pub(super) fn broken_by_quantum(
        &self,
        load: &CpuLoad,
        asked: Option<Span>,
    ) -> Option<ProgramId> {
        let ticker_ppm = self.cpu_with(load, asked, None).ticker_ppm;
        if ticker_ppm <= self.ticker_ppm(load.cpu) {
            return None;
        }
        let programs = CpuPrograms { ticker_ppm, ..self.on(load.cpu, |_| String::new()) };
        programs.broken_by(load).map(|(index, _)| programs.timed[index].id)
    }

    /// What programs and ticker take of a CPU, in millionths.
    pub(super) fn reserved_ppm(&self, cpu: u32) -> u32 {
        self.ticker_ppm(cpu).saturating_add(self.shares_ppm(cpu, None))
    }

    /// The sum of the shares of each user's programs, in millionths of a CPU.
    pub(super) fn of_users(&self) -> BTreeMap<u32, u64> {
        let mut sums = BTreeMap::new();
        for part in self.parts.values() {
            let share_ppm = part.weight.share().map_or(0, Share::ppm);
            *sums.entry(part.user).or_default() += u64::from(share_ppm);
        }
        sums
    }

    /// The weights of the users in `rest`, in millionths of the greatest weight: each has that of
    /// its heaviest program. So many programs of a user get no more than one.
    pub(super) fn weights_of_users(&self) -> BTreeMap<u32, u32> {
        let mut weights = BTreeMap::new();
        for part in self.parts.values().filter(|part| part.weight.share().is_none()) {
            let greatest: &mut u32 = weights.entry(part.user).or_default();
            *greatest = (*greatest).max(part.weight.ppm());
        }
        weights
    }

    /// The weight of `rest`, in millionths: `1 - U - U_t - sum f`, the least of all CPUs with
    /// shares. `outside_ppm` is what groups of others may take of all CPUs.
    pub(super) fn rest_ppm(&self, outside_ppm: u32) -> u32 {
        let left_on = |cpu: u32| {
            let handlers = self.loads.get(&cpu).map_or(0.0, |load| load.utilization * WHOLE_PPM);
            let beyond = if handlers > 0.0 { BEYOND_PPM } else { 0.0 };
            let below = WHOLE_PPM - handlers - beyond - f64::from(self.ticker_ppm(cpu));
            let inside = below * (WHOLE_PPM - f64::from(outside_ppm)) / WHOLE_PPM;
            inside - f64::from(self.shares_ppm(cpu, None))
        };
        let least = self.cpus_with_shares().map(left_on).fold(WHOLE_PPM, f64::min);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
        let ppm = least.max(1.0) as u32;
        ppm
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(cpu: u32, utilization: f64) -> CpuLoad {
        CpuLoad { cpu, utilization, limit: 0.9, burst: Span::ZERO }
    }

    fn share(ppm: u32) -> Share {
        Share::from_ppm(ppm).unwrap()
    }

    fn part(cpu: u32, ppm: u32, quantum: Option<Span>) -> Part {
        Part { user: 7, cpu, weight: Weight::Share(share(ppm)), quantum, timing: None }
    }

    fn shares(may_tick: bool) -> Shares {
        let mut shares = Shares::new(vec![0, 1], may_tick, Span::from_millis(4));
        shares.loads.extend([(0, load(0, 0.2)), (1, load(1, 0.0))]);
        shares
    }

    const NEED: ProgramNeed = ProgramNeed {
        share: Share::from_ppm(300_000),
        weight: None,
        cost: None,
        period: None,
        cpu: None,
        quantum: None,
    };

    #[test]
    fn only_the_weight_of_rest_follows_joins_and_leaves() {
        let mut shares = shares(true);
        assert_eq!(shares.rest_ppm(0), 1_000_000);
        shares.parts.insert(1, part(1, 450_000, None));
        // 1 - ticker - f
        assert_eq!(shares.rest_ppm(0), 525_000);
        shares.parts.insert(2, part(1, 200_000, None));
        assert_eq!(shares.rest_ppm(0), 325_000);
        // A tenth of the machine may go to groups of others.
        assert_eq!(shares.rest_ppm(100_000), 227_500);
        // CPU 0 has handlers of 20 %, which may take 5 % more.
        shares.parts.insert(3, part(0, 450_000, None));
        assert_eq!(shares.rest_ppm(0), 275_000);
        shares.parts.remove(&3);
        // A weight changes nothing.
        let weight = Weight::OfRest(3);
        shares.parts.insert(4, Part { weight, ..part(0, 1, None) });
        assert_eq!((shares.rest_ppm(0), weight.ppm()), (325_000, 30_000));
        assert_eq!((shares.reserved_ppm(1), shares.reserved_ppm(0)), (675_000, 0));
        assert!(shares.cpus_with_shares().eq([1]));
        assert_eq!(shares.of_users(), BTreeMap::from([(7, 650_000)]));
    }

    #[test]
    fn many_programs_of_a_user_weigh_as_much_as_the_heaviest() {
        let mut shares = shares(true);
        let of = |user, weight| Part { user, weight: Weight::OfRest(weight), ..part(1, 1, None) };
        shares.parts.extend([(1, of(7, 2)), (2, of(8, 1)), (3, of(7, 3)), (4, of(7, 3))]);
        shares.parts.insert(5, part(1, 500_000, None));
        let expected = BTreeMap::from([(7, 30_000), (8, 10_000)]);
        assert_eq!(shares.weights_of_users(), expected);
    }

    #[test]
    fn the_weight_of_rest_is_never_zero() {
        let mut shares = shares(true);
        shares.parts.insert(1, part(1, 999_000, None));
        assert_eq!(shares.rest_ppm(0), 1);
    }

    #[test]
    fn the_least_quantum_of_a_cpu_holds_for_all_its_programs() {
        let mut shares = shares(true);
        let half = Span::from_micros(500);
        shares.parts.insert(1, part(1, 100_000, None));
        assert_eq!(shares.ticks(1), Some(PROGRAM_QUANTUM));
        let with = shares.cpu_with(&load(1, 0.0), Some(half), None);
        assert_eq!((with.quantum, with.ticker_ppm, with.programs_ppm), (half, 50_000, 100_000));
        shares.parts.insert(2, part(1, 100_000, Some(half)));
        assert_eq!((shares.ticks(1), shares.ticks(0)), (Some(half), None));
        // A program that asks again does not count twice.
        assert_eq!(shares.cpu_with(&load(1, 0.0), None, Some(2)).programs_ppm, 100_000);
    }

    /// 36 ms in each 100 ms with 40 %: 40 ms less two quanta, and less 40 % of B.
    fn timed(quantum: Option<Span>) -> Part {
        let timing = Some((Span::from_millis(36), Span::from_millis(100)));
        Part { timing, ..part(1, 400_000, quantum) }
    }

    fn with_burst(burst_ms: u64) -> CpuLoad {
        CpuLoad { burst: Span::from_millis(burst_ms), ..load(1, 0.175) }
    }

    #[test]
    fn admission_of_handlers_learns_which_programs_have_a_period() {
        let mut shares = shares(true);
        shares.parts.insert(5, timed(None));
        shares.parts.insert(6, part(1, 100_000, None));
        shares.parts.insert(7, Part { weight: Weight::OfRest(2), ..timed(None) });
        let programs = shares.on(1, |id| format!("p{id}"));
        assert_eq!((programs.reserved_ppm, programs.ticker_ppm), (525_000, 25_000));
        let ids: Vec<_> = programs.timed.iter().map(|of| (of.id, of.name.as_str())).collect();
        assert_eq!(ids, [(5, "p5")]);
        // B = b / (1 - 0.175 - 0.025)
        assert_eq!(programs.broken_by(&with_burst(4)), None);
        assert!(programs.broken_by(&with_burst(5)).is_some());
        assert_eq!(shares.on(0, |_| String::new()), CpuPrograms::default());
    }

    #[test]
    fn a_promise_does_not_count_on_the_shorter_quantum_of_another_program() {
        let mut shares = shares(true);
        let tenth = Some(Span::from_micros(100));
        shares.parts.insert(1, part(1, 1_000, tenth));
        // It keeps its own quantum when the other has left.
        assert_eq!(shares.cpu_with(&with_burst(0), None, None).quantum, PROGRAM_QUANTUM);
        assert_eq!(shares.cpu_with(&with_burst(0), None, None).ticker_ppm, 250_000);
        shares.parts.insert(5, timed(None));
        assert_eq!(shares.on(1, |_| String::new()).timed[0].quantum, PROGRAM_QUANTUM);
        // A faster ticker makes B longer: b / (1 - 0.175 - 0.25) in place of b / 0.8.
        shares.parts.remove(&1);
        assert_eq!(shares.broken_by_quantum(&with_burst(3), tenth), Some(5));
        assert_eq!(shares.broken_by_quantum(&with_burst(3), None), None);
        assert_eq!(shares.broken_by_quantum(&with_burst(2), tenth), None);
    }

    #[test]
    fn without_a_ticker_the_kernels_tick_is_the_quantum_and_costs_nothing() {
        let mut shares = shares(false);
        shares.parts.insert(1, part(1, 100_000, None));
        let now = shares.cpu_now(1).unwrap();
        assert_eq!((now.quantum, now.ticker_ppm), (Span::from_millis(4), 0));
        assert_eq!(shares.ticks(1), None);
    }

    #[test]
    fn a_need_goes_to_its_cpu_or_to_the_first_where_it_fits() {
        let mut shares = shares(true);
        let loads = [load(0, 0.2), load(1, 0.0), load(2, 0.0)];
        let placed =
            |shares: &Shares, need: ProgramNeed| shares.place(&need, &loads).map(|load| load.cpu);
        assert_eq!(placed(&shares, NEED), Some(0));
        assert_eq!(placed(&shares, ProgramNeed { cpu: Some(1), ..NEED }), Some(1));
        // CPU 2 is not the daemon's.
        assert_eq!(placed(&shares, ProgramNeed { cpu: Some(2), ..NEED }), None);
        shares.parts.insert(1, part(0, 400_000, None));
        assert_eq!(placed(&shares, NEED), Some(1));
        shares.parts.insert(2, part(1, 600_000, None));
        // It fits nowhere: CPU 0 has 27.5 % left and CPU 1 as much.
        assert_eq!(placed(&shares, NEED), Some(0));
        let weight = ProgramNeed { share: None, weight: Some(2), ..NEED };
        assert_eq!(placed(&shares, weight), Some(0));
    }
}
