//! Encodes a record as a kind and named numbers, and decodes it.
//!
//! The kind is the event's name, and the numbers are its annotations. So a click on an event in the
//! user interface shows the whole record. An absent number means `None` or `false`. The numbers of
//! kinds and fields are part of the format: new ones go to the end.

use upcall_core::activity::{
    ActivityId, ActivityParams, Backlog, Claim, GroupId, Terms, Window, WorkClass,
};
use upcall_core::admission::Share;
use upcall_core::policy::ps::Group;
use upcall_core::record::JobRecord;
use upcall_core::scheduler::{Command, Input, Outcome};
use upcall_core::time::{Instant, Span};
use upcall_core::trace::Crossing;

/// Defines an enum whose values are numbered from 1 in order, with their names.
macro_rules! numbered {
    ($(#[$doc:meta])* $enum:ident { $($value:ident = $name:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum $enum { $($value),* }

        impl $enum {
            pub(super) const ALL: &[($enum, &'static str)] = &[$(($enum::$value, $name)),*];

            pub(super) const fn iid(self) -> u64 {
                self as u64 + 1
            }

            pub(super) fn of_iid(iid: u64) -> Option<$enum> {
                let place = usize::try_from(iid.checked_sub(1)?).ok()?;
                Some($enum::ALL.get(place)?.0)
            }

            pub(super) fn name(self) -> &'static str {
                $enum::ALL[self as usize].1
            }
        }
    };
}

numbered! {
    /// The kinds of events on a core's track.
    Kind {
        Header = "header",
        Activity = "activity",
        Lost = "lost",
        Create = "create",
        Run = "run",
        Suspend = "suspend",
        Close = "close",
        Arrived = "arrived",
        Advance = "advance",
        // An old input that no driver ever sent.
        Pending = "pending",
        EventServer = "event server",
        Tick = "tick",
        Boundary = "boundary",
        Returned = "returned",
        Nothing = "nothing",
        Upcall = "upcall",
        Proceed = "proceed",
        Yield = "yield",
        JobDone = "job done",
        Inactive = "inactive",
        Closed = "closed",
        Message = "message",
        Reweigh = "reweigh",
        Group = "group",
        Posted = "posted",
        Taken = "taken",
        PassedOver = "passed over",
        SwitchCost = "switch cost",
        Idle = "idle",
        Interrupted = "interrupted",
        DomainShare = "domain share",
        GroupPart = "group part",
    }
}

numbered! {
    /// The annotations of an event. Times in nanoseconds.
    Field {
        Format = "format",
        Policy = "policy",
        Clock = "clock",
        Capacity = "capacity",
        Name = "name",
        Domain = "domain",
        Id = "id",
        Refused = "refused",
        Polled = "polled",
        Period = "period_ns",
        Deadline = "deadline_ns",
        Offset = "offset_ns",
        Batch = "batch",
        Quantum = "quantum",
        PduCost = "pdu_cost_ns",
        Share = "share_ppm",
        Weight = "weight",
        WindowMisses = "window_misses",
        WindowPeriods = "window_periods",
        WorkConserving = "work_conserving",
        DelayBound = "delay_bound_ns",
        Class = "class",
        WorkaheadMax = "workahead_max",
        At = "at",
        Messages = "messages",
        Critical = "critical",
        Events = "events",
        Pdus = "pdus",
        Outcome = "outcome",
        PdusMax = "pdus_max",
        Resumed = "resumed",
        CheckAt = "check_at",
        Job = "job",
        Release = "release",
        Due = "due",
        Start = "start",
        End = "end",
        Ran = "run_ns",
        Preemptions = "preemptions",
        Completed = "completed",
        Records = "records",
        From = "from",
        OnDemand = "on_demand",
        TimeQuantum = "time_quantum_ns",
        Group = "group",
        WinsTies = "wins_ties",
        Rank = "rank",
        Backlog = "backlog",
        SwitchCost = "switch_cost_ns",
        Length = "length_ns",
    }
}

/// The numbers of one event, each at most once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Values([Option<u64>; Field::ALL.len()]);

/// The error of numbers that form no record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bad {
    Missing(Field),
    Range(Field, u64),
}

impl Values {
    pub(super) const NONE: Values = Values([None; Field::ALL.len()]);

    /// Sets a number; `false` if it was set already.
    pub(super) fn set(&mut self, field: Field, value: u64) -> bool {
        self.0[field as usize].replace(value).is_none()
    }

    pub(super) fn number(&self, field: Field) -> Result<u64, Bad> {
        self.0[field as usize].ok_or(Bad::Missing(field))
    }

    /// The numbers that are set, in the order of the fields.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Field, u64)> + '_ {
        let fields = Field::ALL.iter().zip(&self.0);
        fields.filter_map(|((field, _), value)| Some((*field, (*value)?)))
    }

    pub(super) fn with(mut self, field: Field, value: impl Into<u64>) -> Self {
        self.set(field, value.into());
        self
    }

    fn span(self, field: Field, span: Span) -> Self {
        self.with(field, span.as_nanos())
    }

    fn instant(self, field: Field, instant: Instant) -> Self {
        self.with(field, instant.as_nanos())
    }

    fn flag(self, field: Field, flag: bool) -> Self {
        if flag { self.with(field, 1u32) } else { self }
    }

    fn maybe(self, field: Field, value: Option<u64>) -> Self {
        match value {
            Some(value) => self.with(field, value),
            None => self,
        }
    }

    pub(super) fn small(&self, field: Field) -> Result<u32, Bad> {
        let value = self.number(field)?;
        u32::try_from(value).map_err(|_| Bad::Range(field, value))
    }

    fn small_if_any(&self, field: Field) -> Result<Option<u32>, Bad> {
        self.0[field as usize].map(|_| self.small(field)).transpose()
    }

    fn is_set(&self, field: Field) -> bool {
        self.0[field as usize].is_some_and(|value| value != 0)
    }

    fn id(&self) -> Result<ActivityId, Bad> {
        self.small(Field::Id).map(ActivityId)
    }

    fn time(&self, field: Field) -> Result<Instant, Bad> {
        self.number(field).map(Instant::from_nanos)
    }

    fn length(&self, field: Field) -> Result<Span, Bad> {
        self.number(field).map(Span::from_nanos)
    }
}

/// The kind and the numbers of a crossing.
pub(super) fn encode(crossing: &Crossing) -> (Kind, Values) {
    match *crossing {
        Crossing::Input { input, refused } => {
            let (kind, values) = encode_input(input);
            (kind, values.flag(Field::Refused, refused))
        }
        Crossing::Command(command) => {
            let (kind, values) = encode_command(command);
            (kind, values.flag(Field::Polled, true))
        }
        Crossing::Notice(command) => encode_command(command),
        Crossing::Lost { records } => (Kind::Lost, Values::NONE.with(Field::Records, records)),
    }
}

fn encode_input(input: Input) -> (Kind, Values) {
    let of = |id: ActivityId| Values::NONE.with(Field::Id, id.0);
    match input {
        Input::Create { id, params, terms } => {
            (Kind::Create, encode_terms(encode_params(of(id), &params), &terms))
        }
        Input::Run { id, at } => (Kind::Run, of(id).instant(Field::At, at)),
        Input::Suspend { id } => (Kind::Suspend, of(id)),
        Input::Close { id } => (Kind::Close, of(id)),
        Input::Reweigh { id, claim } => (Kind::Reweigh, encode_claim(of(id), claim)),
        Input::Arrived { id, messages } => (Kind::Arrived, of(id).with(Field::Messages, messages)),
        Input::Advance { id, critical } => {
            (Kind::Advance, of(id).instant(Field::Critical, critical))
        }
        Input::Message { id, critical, from } => {
            let values = of(id).instant(Field::Critical, critical);
            (Kind::Message, values.instant(Field::From, from))
        }
        Input::Posted { id, rank } => (Kind::Posted, of(id).with(Field::Rank, rank)),
        Input::Taken { id, events } => (Kind::Taken, of(id).with(Field::Events, events)),
        Input::EventServer { share } => {
            (Kind::EventServer, Values::NONE.maybe(Field::Share, share.map(ppm)))
        }
        Input::DomainShare { share } => {
            (Kind::DomainShare, Values::NONE.maybe(Field::Share, share.map(ppm)))
        }
        Input::GroupPart { group, part } => {
            let values = Values::NONE.with(Field::Group, group.0);
            (Kind::GroupPart, values.with(Field::Share, part.ppm()))
        }
        Input::SwitchCost { cost } => {
            (Kind::SwitchCost, Values::NONE.span(Field::SwitchCost, cost))
        }
        Input::PassedOver => (Kind::PassedOver, Values::NONE),
        Input::Interrupted { length } => {
            (Kind::Interrupted, Values::NONE.span(Field::Length, length))
        }
        Input::Idle => (Kind::Idle, Values::NONE),
        Input::Tick => (Kind::Tick, Values::NONE),
        Input::Boundary => (Kind::Boundary, Values::NONE),
        Input::Returned { pdus, outcome } => {
            let values = Values::NONE.with(Field::Pdus, pdus);
            (Kind::Returned, values.with(Field::Outcome, outcome as u32))
        }
    }
}

fn encode_claim(values: Values, claim: Claim) -> Values {
    match claim {
        Claim::Share(share) => values.with(Field::Share, share.ppm()),
        Claim::Weight(weight) => values.with(Field::Weight, weight),
    }
}

/// The numbers of the group at index `place`.
pub(super) fn encode_group(place: u32, group: &Group) -> Values {
    let parent = group.parent.map(|parent| parent.0.into());
    encode_claim(Values::NONE.with(Field::Id, place), group.claim).maybe(Field::Group, parent)
}

fn ppm(share: Share) -> u64 {
    share.ppm().into()
}

fn encode_params(values: Values, params: &ActivityParams) -> Values {
    values
        .span(Field::Period, params.period)
        .span(Field::Deadline, params.deadline)
        .span(Field::Offset, params.offset)
        .with(Field::Batch, params.batch)
        .with(Field::Quantum, params.quantum)
        .span(Field::PduCost, params.pdu_cost)
}

fn encode_terms(values: Values, terms: &Terms) -> Values {
    values
        .maybe(Field::Share, terms.share.map(ppm))
        .maybe(Field::Weight, terms.weight.map(u64::from))
        .maybe(Field::Group, terms.group.map(|group| group.0.into()))
        .maybe(Field::WindowMisses, terms.window.map(|window| window.misses.into()))
        .maybe(Field::WindowPeriods, terms.window.map(|window| window.periods.into()))
        .flag(Field::WorkConserving, terms.work_conserving)
        .maybe(Field::DelayBound, terms.delay_bound.map(Span::as_nanos))
        .with(Field::Class, terms.class as u32)
        .with(Field::WorkaheadMax, terms.workahead_max)
        .flag(Field::OnDemand, terms.on_demand)
        .flag(Field::WinsTies, terms.wins_ties)
        .with(Field::Backlog, terms.backlog as u32)
}

fn encode_command(command: Option<Command>) -> (Kind, Values) {
    let of = |id: ActivityId| Values::NONE.with(Field::Id, id.0);
    match command {
        None => (Kind::Nothing, Values::NONE),
        Some(Command::Upcall { id, pdus_max, resumed, check_at }) => {
            let values = of(id).with(Field::PdusMax, pdus_max).flag(Field::Resumed, resumed);
            (Kind::Upcall, values.instant(Field::CheckAt, check_at))
        }
        Some(Command::Proceed { check_at }) => {
            (Kind::Proceed, Values::NONE.instant(Field::CheckAt, check_at))
        }
        Some(Command::Yield) => (Kind::Yield, Values::NONE),
        Some(Command::JobDone(record)) => (Kind::JobDone, encode_job(of(record.id), &record)),
        Some(Command::Inactive { id }) => (Kind::Inactive, of(id)),
        Some(Command::Closed { id }) => (Kind::Closed, of(id)),
    }
}

fn encode_job(values: Values, record: &JobRecord) -> Values {
    values
        .with(Field::Job, record.job)
        .instant(Field::Release, record.release)
        .instant(Field::Due, record.deadline)
        .instant(Field::Start, record.start)
        .instant(Field::End, record.end)
        .span(Field::Ran, record.run)
        .with(Field::Pdus, record.pdus)
        .with(Field::Preemptions, record.preemptions)
        .flag(Field::Completed, record.completed)
}

/// The crossing of an event; `None` if the kind is no crossing.
pub(super) fn decode(kind: Kind, values: &Values) -> Result<Option<Crossing>, Bad> {
    let input = |input| Some(Crossing::Input { input, refused: values.is_set(Field::Refused) });
    let answer = |command| match values.is_set(Field::Polled) {
        true => Some(Crossing::Command(command)),
        false => Some(Crossing::Notice(command)),
    };
    Ok(match kind {
        Kind::Header | Kind::Activity | Kind::Group | Kind::Pending => None,
        Kind::Lost => Some(Crossing::Lost { records: values.number(Field::Records)? }),
        Kind::Create => input(Input::Create {
            id: values.id()?,
            params: decode_params(values)?,
            terms: decode_terms(values)?,
        }),
        Kind::Run => input(Input::Run { id: values.id()?, at: values.time(Field::At)? }),
        Kind::Suspend => input(Input::Suspend { id: values.id()? }),
        Kind::Close => input(Input::Close { id: values.id()? }),
        Kind::Reweigh => input(Input::Reweigh { id: values.id()?, claim: decode_claim(values)? }),
        Kind::Arrived => {
            input(Input::Arrived { id: values.id()?, messages: values.small(Field::Messages)? })
        }
        Kind::Advance => {
            input(Input::Advance { id: values.id()?, critical: values.time(Field::Critical)? })
        }
        Kind::Message => input(Input::Message {
            id: values.id()?,
            critical: values.time(Field::Critical)?,
            from: values.time(Field::From)?,
        }),
        Kind::Posted => {
            input(Input::Posted { id: values.id()?, rank: values.number(Field::Rank)? })
        }
        Kind::Taken => {
            input(Input::Taken { id: values.id()?, events: values.small(Field::Events)? })
        }
        Kind::EventServer => input(Input::EventServer { share: decode_share(values)? }),
        Kind::DomainShare => input(Input::DomainShare { share: decode_share(values)? }),
        Kind::GroupPart => {
            let group = decode_group_id(values)?.ok_or(Bad::Missing(Field::Group))?;
            let part = decode_share(values)?.ok_or(Bad::Missing(Field::Share))?;
            input(Input::GroupPart { group, part })
        }
        Kind::SwitchCost => input(Input::SwitchCost { cost: values.length(Field::SwitchCost)? }),
        Kind::PassedOver => input(Input::PassedOver),
        Kind::Interrupted => input(Input::Interrupted { length: values.length(Field::Length)? }),
        Kind::Idle => input(Input::Idle),
        Kind::Tick => input(Input::Tick),
        Kind::Boundary => input(Input::Boundary),
        Kind::Returned => input(Input::Returned {
            pdus: values.small(Field::Pdus)?,
            outcome: one_of(
                values,
                Field::Outcome,
                [Outcome::Yielded, Outcome::Done, Outcome::Finished],
            )?,
        }),
        Kind::Nothing => answer(None),
        Kind::Upcall => answer(Some(Command::Upcall {
            id: values.id()?,
            pdus_max: values.small(Field::PdusMax)?,
            resumed: values.is_set(Field::Resumed),
            check_at: values.time(Field::CheckAt)?,
        })),
        Kind::Proceed => answer(Some(Command::Proceed { check_at: values.time(Field::CheckAt)? })),
        Kind::Yield => answer(Some(Command::Yield)),
        Kind::JobDone => answer(Some(Command::JobDone(decode_job(values)?))),
        Kind::Inactive => answer(Some(Command::Inactive { id: values.id()? })),
        Kind::Closed => answer(Some(Command::Closed { id: values.id()? })),
    })
}

/// The element of `these` whose index is the number in `field`.
fn one_of<T: Copy, const N: usize>(values: &Values, field: Field, these: [T; N]) -> Result<T, Bad> {
    let number = values.number(field)?;
    let place = usize::try_from(number).ok();
    place.and_then(|place| these.get(place)).copied().ok_or(Bad::Range(field, number))
}

fn decode_share(values: &Values) -> Result<Option<Share>, Bad> {
    let Some(ppm) = values.small_if_any(Field::Share)? else { return Ok(None) };
    Share::from_ppm(ppm).map(Some).ok_or(Bad::Range(Field::Share, ppm.into()))
}

/// A group and its index.
pub(super) fn decode_group(values: &Values) -> Result<(u32, Group), Bad> {
    let group = Group { claim: decode_claim(values)?, parent: decode_group_id(values)? };
    Ok((values.small(Field::Id)?, group))
}

fn decode_group_id(values: &Values) -> Result<Option<GroupId>, Bad> {
    let Some(place) = values.small_if_any(Field::Group)? else { return Ok(None) };
    let place = u16::try_from(place).map_err(|_| Bad::Range(Field::Group, place.into()))?;
    Ok(Some(GroupId(place)))
}

/// A share if there is one, otherwise a weight.
fn decode_claim(values: &Values) -> Result<Claim, Bad> {
    match decode_share(values)? {
        Some(share) => Ok(Claim::Share(share)),
        None => values.small(Field::Weight).map(Claim::Weight),
    }
}

fn decode_params(values: &Values) -> Result<ActivityParams, Bad> {
    Ok(ActivityParams {
        period: values.length(Field::Period)?,
        deadline: values.length(Field::Deadline)?,
        offset: values.length(Field::Offset)?,
        batch: values.small(Field::Batch)?,
        quantum: values.small(Field::Quantum)?,
        pdu_cost: values.length(Field::PduCost)?,
    })
}

fn decode_terms(values: &Values) -> Result<Terms, Bad> {
    let periods = values.small_if_any(Field::WindowPeriods)?;
    let window =
        periods.map(|periods| Ok(Window { misses: values.small(Field::WindowMisses)?, periods }));
    let classes = [WorkClass::RealTime, WorkClass::Interactive, WorkClass::Background];
    let backlogs = [Backlog::CatchUp, Backlog::Skip, Backlog::Latest];
    Ok(Terms {
        share: decode_share(values)?,
        weight: values.small_if_any(Field::Weight)?,
        group: decode_group_id(values)?,
        window: window.transpose()?,
        work_conserving: values.is_set(Field::WorkConserving),
        delay_bound: values.length(Field::DelayBound).ok(),
        class: one_of(values, Field::Class, classes)?,
        workahead_max: values.small(Field::WorkaheadMax)?,
        on_demand: values.is_set(Field::OnDemand),
        wins_ties: values.is_set(Field::WinsTies),
        backlog: one_of(values, Field::Backlog, backlogs)?,
    })
}

fn decode_job(values: &Values) -> Result<JobRecord, Bad> {
    Ok(JobRecord {
        id: values.id()?,
        job: values.number(Field::Job)?,
        release: values.time(Field::Release)?,
        deadline: values.time(Field::Due)?,
        start: values.time(Field::Start)?,
        end: values.time(Field::End)?,
        run: values.length(Field::Ran)?,
        pdus: values.small(Field::Pdus)?,
        preemptions: values.small(Field::Preemptions)?,
        completed: values.is_set(Field::Completed),
    })
}
