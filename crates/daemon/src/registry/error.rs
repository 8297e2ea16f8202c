//! Why the registry does not attach a domain, or does not place an activity.

use core::fmt;

use upcall_core::activity::ParamError;
use upcall_core::admission::Refusal;
use upcall_core::policy::ps::GroupError;
use upcall_shm::DOMAINS_MAX;

use super::limits::ACTIVITIES_MAX;

/// Why a domain cannot be attached.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AttachError {
    /// The domain uses another policy than the daemon.
    Policy {
        /// The domain's policy.
        found: String,
        /// The daemon's policy.
        expected: String,
    },
    /// All numbers of domains are in use.
    Full,
    /// Its user already has as many domains as it may have.
    Quota {
        /// The quota.
        domains_max: usize,
    },
}

impl fmt::Display for AttachError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AttachError::Policy { found, expected } => {
                write!(f, "the daemon schedules by `{expected}`, the domain expects `{found}`")
            }
            AttachError::Full => {
                write!(f, "{DOMAINS_MAX} domains are attached, the maximum")
            }
            AttachError::Quota { domains_max } => {
                write!(
                    f,
                    "the user has {domains_max} domains, which is its quota (upcalld --user-domains)"
                )
            }
        }
    }
}

impl core::error::Error for AttachError {}

/// Why a domain cannot define a group: a fault of its runtime.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DefineError {
    /// There is no such domain.
    Gone,
    /// A share or a weight is out of range.
    Portion,
    /// The group does not fit the others of the domain.
    Group(GroupError),
}

impl fmt::Display for DefineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DefineError::Gone => f.write_str("the domain is no longer attached"),
            DefineError::Portion => f.write_str("the share or weight of a group is out of range"),
            DefineError::Group(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for DefineError {}

/// Why an activity gets no place.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum PlaceError {
    /// There is no such domain: it was detached meanwhile.
    Gone,
    /// A parameter is out of range.
    Params(ParamError),
    /// The work class is unknown to the daemon.
    Class(u32),
    /// The admission test failed.
    Refused(Box<Refusal>),
    /// The admission test failed, and the user has no right to run the activity all the same.
    NoRight {
        /// The user.
        uid: u32,
        /// Why the test failed.
        refusal: Box<Refusal>,
    },
    /// The claim came too late after the start of the daemon.
    Late,
    /// The daemon has granted all places in the order of admission.
    OrdersUsedUp,
    /// The activity would exceed its user's share of the CPUs.
    Quota {
        /// The user's share with this activity, in millionths of a CPU.
        found_ppm: u64,
        /// The quota, in millionths of a CPU.
        share_max_ppm: u64,
    },
    /// All slots of the domain on that CPU are in use.
    TooMany,
    /// The claimed place in the order of admission is in use, or no daemon can have granted it.
    Order(u32),
    /// The claimed CPU is not among those of the daemon.
    Cpu(u32),
    /// PS and DWCS: another user has activities or an event server on the CPU.
    OtherUser(u32),
    /// PS: another domain of the user says something else of the group.
    Group(GroupConflict),
    /// PS: the domains of the user have 256 groups with members.
    GroupsUsedUp,
    /// The domain has no activity with this place.
    NoActivity(u32),
    /// A share or a weight is out of range.
    Portion,
    /// The domain's thread on that CPU has ended, and the domain has none on another CPU with room.
    NoThread(u32),
    /// The claim would put more work on the CPU than the CPU can do.
    Full {
        /// The claimed CPU.
        cpu: u32,
        /// The CPU's utilization with the claimed activity; 1 is the whole CPU.
        utilization: f64,
    },
}

/// Two domains of a user say different things of one group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupConflict {
    /// The name of the group.
    pub name: String,
    /// What the domain says, for people.
    pub found: String,
    /// What the group has.
    pub expected: String,
}

impl fmt::Display for GroupConflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let GroupConflict { name, found, expected } = self;
        write!(f, "group `{name}` has {expected} in another process of the user, found {found}")
    }
}

impl fmt::Display for PlaceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PlaceError::Gone => f.write_str("the domain is no longer attached"),
            PlaceError::Params(error) => error.fmt(f),
            PlaceError::Class(class) => write!(f, "class {class}, expected 0, 1 or 2"),
            PlaceError::Refused(refusal) => refusal.reason.fmt(f),
            PlaceError::NoRight { uid, refusal } => write!(
                f,
                "{}; user {uid} has no right to run it all the same (upcalld --soft-users)",
                refusal.reason
            ),
            PlaceError::Late => {
                f.write_str("the claim came too late after the start of the daemon")
            }
            PlaceError::OrdersUsedUp => {
                f.write_str("the daemon has granted all places in the order of admission")
            }
            PlaceError::Quota { found_ppm, share_max_ppm } => write!(
                f,
                "the user would have {} % of a CPU, its quota is {} % (upcalld --user-share)",
                *found_ppm as f64 / 1e4,
                *share_max_ppm as f64 / 1e4
            ),
            PlaceError::TooMany => {
                write!(f, "the domain has {ACTIVITIES_MAX} activities on the CPU, the maximum")
            }
            PlaceError::Order(order) => write!(
                f,
                "place {order} in the order of admission is taken, or no former daemon granted it"
            ),
            PlaceError::NoThread(cpu) => {
                write!(f, "the domain's thread on CPU {cpu} has ended")
            }
            PlaceError::OtherUser(cpu) => write!(
                f,
                "CPU {cpu} has activities or events of another user, and under this policy those of \
                 a CPU belong to one user"
            ),
            PlaceError::Group(conflict) => conflict.fmt(f),
            PlaceError::GroupsUsedUp => {
                f.write_str("the processes of the user have 256 groups with members, at most that")
            }
            PlaceError::NoActivity(order) => {
                write!(f, "the domain has no activity with place {order}")
            }
            PlaceError::Portion => {
                f.write_str("a share of 1 to 1000000 millionths or a weight from 1 was expected")
            }
            PlaceError::Cpu(cpu) => write!(f, "CPU {cpu} is not among those of the daemon"),
            PlaceError::Full { cpu, utilization } => {
                write!(f, "CPU {cpu} would be used to {:.1} %, expected 100", utilization * 100.0)
            }
        }
    }
}

impl core::error::Error for PlaceError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            PlaceError::Params(error) => Some(error),
            PlaceError::Refused(refusal) | PlaceError::NoRight { refusal, .. } => Some(&**refusal),
            _ => None,
        }
    }
}

impl From<Refusal> for PlaceError {
    fn from(refusal: Refusal) -> Self {
        PlaceError::Refused(Box::new(refusal))
    }
}

impl PlaceError {
    /// One change that would fit, as one line of text; empty if admission found none.
    pub fn hint(&self) -> String {
        let (PlaceError::Refused(refusal) | PlaceError::NoRight { refusal, .. }) = self else {
            return String::new();
        };
        refusal.hint.as_ref().map(ToString::to_string).unwrap_or_default()
    }
}
