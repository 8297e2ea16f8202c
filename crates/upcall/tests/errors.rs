//! Errors of the facade, as the user of a program sees them. `Debug` and `Display` of each error
//! give the same sentence, and each error keeps its cause.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeSet;
use std::error::Error;
use std::fs;
use std::path::Path;

use upcall::activity::{ActivityParams, ParamError, Terms};
use upcall::admission::{Platform, Refusal, Reservations, Share};
use upcall::channel::{
    AddError, CallError, ChannelOpenError, FastError, Gone, RaiseError, ServiceRefusal, TakeError,
};
use upcall::discipline::RMDP;
use upcall::io_events::{InterestError, PollerError};
use upcall::load::LoadError;
use upcall::net::host::{HostError, MembershipError, NeighborError, RouteError};
use upcall::net::{BindError, FlowCause, FlowError, OpenFlowError, OwnerError};
use upcall::packet_quota::{PacketQuotaCause, PacketQuotaError};
use upcall::policy::ps::GroupError;
use upcall::program::{ProgramError, RefusalCause, RefusedProgram};
use upcall::qos::MapError;
use upcall::scheduler::InputError;
use upcall::status::StatusError;
use upcall::stream::{
    Closed, IoPumpError, Stream, StreamError, StreamFault, StreamForm, StreamListenerError,
    StreamOpenError,
};
use upcall::time::Span;
use upcall::work::{Reject, UnknownWork, WorkError};
use upcall::{
    AttachError, CreateError, DaemonFault, FifoRefusal, FolderError, InterruptError, Mode, OsError,
    PostError, StartError, ThreadError,
};

/// Errors between the crates, which no application receives.
const INNER: [&str; 14] = [
    "AccountError",
    "BuildError",
    "CgroupError",
    "ChecksumError",
    "DeadlineRefusal",
    "Divergence",
    "EarlyDropError",
    "NoSlot",
    "ParseError",
    "ProgramRefusal",
    "PushError",
    "QuotaError",
    "ReceiveError",
    "WireError",
];

/// Errors that an application receives inside others or by a feature, and that this test cannot
/// make alone.
const WITHIN: [&str; 5] = ["DeviceError", "InterfaceError", "PeerFault", "Refused", "SegmentError"];

fn refusal() -> Refusal {
    let platform = Platform {
        cpus: vec![0],
        cpu_limit: Share::WHOLE,
        switch_cost: Span::ZERO,
        wakeup_latency: Span::ZERO,
        defer_preemption: Span::ZERO,
    };
    let need = ActivityParams::new(Span::from_millis(10), Span::from_millis(20));
    Reservations::new(platform, &RMDP).reserve("greedy", need, &Terms::default()).unwrap_err()
}

/// The error of a stream of no bytes.
fn no_bytes() -> StreamOpenError {
    Stream::create(StreamForm::Bytes { capacity: 0 }, 0).unwrap_err()
}

/// The error of memory that is not a stream's, and may shrink.
fn not_shared() -> StreamOpenError {
    Stream::from_fd(fs::File::open("/dev/null").unwrap().into()).unwrap_err()
}

/// The refusal of a program by a daemon.
fn no_room() -> RefusedProgram {
    let (cause, reason) = (RefusalCause::NoRoom, "30 % is free".to_owned());
    RefusedProgram { cause, asked_ppm: 450_000, fits_ppm: 300_000, reason }
}

/// Each type of error in the facade: its name, its `Debug` and its `Display`.
fn shown() -> Vec<(&'static str, String, String)> {
    let os = OsError::new("open", 13);
    let mut all = Vec::new();
    macro_rules! show {
        ($($name:ident $value:expr;)*) => {
            $({
                let value: $name = $value;
                all.push((stringify!($name), format!("{value:?}"), value.to_string()));
            })*
        };
    }
    show! {
        AddError AddError::Route;
        AttachError AttachError::Silent;
        BindError BindError::Taken;
        CallError CallError::Late;
        ChannelOpenError ChannelOpenError::Name("a b".to_owned());
        Closed Closed::Died;
        CreateError CreateError::Refused(Box::new(refusal()));
        DaemonFault DaemonFault::DomainNumber(0);
        StreamListenerError StreamListenerError::Late;
        FastError FastError::Panicked;
        FifoRefusal FifoRefusal::new(62, OsError::new("sched_setscheduler", 1));
        FlowError FlowError::TooLong { bytes: 2000, most: 1920 };
        FlowError FlowError::Closed;
        FlowError FlowError::Os(os);
        FolderError FolderError::Os {
            folder: "/run".into(),
            error: std::io::ErrorKind::PermissionDenied.into(),
        };
        GroupError GroupError::TooMany(65);
        HostError HostError::NoAddress;
        InputError InputError::NothingRuns;
        InterestError InterestError::NotAdded { found: 7 };
        InterruptError InterruptError::NotInMode(Mode::Threads);
        LoadError LoadError::System(os);
        MapError MapError::DelayMissing;
        MembershipError MembershipError::NotAGroup;
        NeighborError NeighborError::Full;
        OpenFlowError OpenFlowError::Refused {
            cause: FlowCause::Taken,
            reason: "the port is taken".to_owned(),
        };
        OsError os;
        OwnerError OwnerError::Bind(BindError::Full);
        PacketQuotaError PacketQuotaError::Refused {
            cause: PacketQuotaCause::Taken,
            reason: "the port is taken".to_owned(),
        };
        ParamError ParamError::Period(Span::ZERO);
        PollerError PollerError::Os(os);
        IoPumpError IoPumpError::Open(not_shared());
        PostError PostError::Full;
        ProgramError ProgramError::Refused(no_room());
        RaiseError RaiseError::Gone(Gone::Died);
        Refusal refusal();
        Reject Reject::Empty;
        RouteError RouteError::NoRoute;
        StartError StartError::Cpus(os);
        StatusError StatusError::Os(os);
        StreamError StreamError::TooLong { found: 9, max: 8 };
        StreamFault StreamFault::State { found: 3 };
        StreamOpenError no_bytes();
        TakeError TakeError::Gone(Gone::Ended);
        ThreadError ThreadError::Ended;
        UnknownWork UnknownWork { found: "mp3".to_owned() };
        WorkError WorkError::NoPdu;
    }
    let StreamOpenError::Layout(layout) = no_bytes() else { panic!("{}", no_bytes()) };
    all.push(("LayoutError", format!("{layout:?}"), layout.to_string()));
    all
}

#[test]
fn debug_of_each_error_is_its_sentence() {
    for (name, debug, display) in shown() {
        assert_eq!(debug, display, "{name}");
        assert!(!display.is_empty() && !display.contains(name), "{name}: {display}");
    }
}

/// A new error belongs in `shown`, or in one of the lists that say why not.
#[test]
fn each_error_of_the_library_is_listed() {
    let listed: BTreeSet<&str> = shown().into_iter().map(|(name, ..)| name).collect();
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut found = BTreeSet::new();
    for name in ["core", "proto", "runtime", "shm", "sys", "upcall"] {
        let mut folders = vec![crates.join(name).join("src")];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else if path.extension().is_some_and(|extension| extension == "rs") {
                    found.extend(errors_in(&fs::read_to_string(&path).unwrap(), &path));
                }
            }
        }
    }
    let known: BTreeSet<String> =
        listed.into_iter().chain(WITHIN).chain(INNER).map(str::to_owned).collect();
    assert_eq!(found, known);
}

/// The errors in a source file. Each prints as its sentence unless it is in `INNER`.
fn errors_in(text: &str, path: &Path) -> Vec<String> {
    let heads = text.split("error::Error for ").skip(1);
    let names = heads.filter_map(|head| head.split_whitespace().next());
    let errors: Vec<String> = names.map(str::to_owned).collect();
    for error in errors.iter().filter(|error| !INNER.contains(&error.as_str())) {
        let ways = [format!("debug_as_display!({error})"), format!("Debug for {error} ")];
        assert!(ways.iter().any(|way| text.contains(way)), "{}: {error}", path.display());
    }
    errors
}

#[test]
fn an_error_with_a_cause_prints_it_and_keeps_it() {
    let os = OsError::new("open", 13);
    let errors: [Box<dyn Error>; 12] = [
        Box::new(AttachError::Daemon(DaemonFault::PagesMissing)),
        Box::new(AttachError::Os(os)),
        Box::new(CallError::Os(os)),
        Box::new(ChannelOpenError::Os(os)),
        Box::new(CreateError::Params(ParamError::Batch(0))),
        Box::new(InterruptError::Watch(os)),
        Box::new(PollerError::Os(os)),
        Box::new(IoPumpError::Open(not_shared())),
        Box::new(ProgramError::Daemon(StatusError::Os(os))),
        Box::new(StartError::Cpus(os)),
        Box::new(StatusError::Daemon(DaemonFault::PartOfNoDomain)),
        Box::new(no_bytes()),
    ];
    for error in errors {
        let cause = error.source().unwrap().to_string();
        assert!(error.to_string().contains(&cause), "{error}: {cause}");
    }
    let refused = CreateError::Refused(Box::new(refusal()));
    let cause = refused.source().unwrap().source().unwrap();
    assert!(cause.to_string().starts_with("a batch costs 20 ms"), "{cause}");
    assert!(ChannelOpenError::Refused(ServiceRefusal::Full).source().is_none());
}
