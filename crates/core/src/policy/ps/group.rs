//! Groups: activities that share one part of the CPU among them.
//!
//! Said once, when a discipline is made ([`crate::discipline::ps_with_groups`]); which group an
//! activity is of stands in its terms. Admission counts their shares, the policy
//! makes an account of each.

use crate::activity::{Claim, GroupId, Terms};
use core::fmt;

/// Most groups of a discipline: each takes memory for every activity.
pub const GROUPS_MAX: usize = 64;

/// A group: what it claims, and of what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Group {
    /// Of the CPU if a share, of what the real-time leave if a weight; inside
    /// another group a weight, of what that one gets.
    pub claim: Claim,
    /// The group it is in; one that stands before it.
    pub parent: Option<GroupId>,
}

/// Groups that cannot be. `group` counts from 0.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum GroupError {
    /// More than [`GROUPS_MAX`].
    TooMany(usize),
    /// Its parent does not stand before it.
    Parent {
        /// Which.
        group: usize,
    },
    /// It is inside another, and claims a share.
    ShareInside {
        /// Which.
        group: usize,
    },
}

impl fmt::Display for GroupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GroupError::TooMany(found) => {
                write!(f, "there are {found} groups, expected at most {GROUPS_MAX}")
            }
            GroupError::Parent { group } => {
                write!(f, "the parent of group {group} stands behind it, expected before it")
            }
            GroupError::ShareInside { group } => {
                write!(f, "group {group} is inside another and claims a share, expected a weight")
            }
        }
    }
}

crate::debug_as_display!(GroupError);

impl core::error::Error for GroupError {}

/// Checks the groups of a discipline.
pub(crate) fn check_groups(groups: &[Group]) -> Result<(), GroupError> {
    if groups.len() > GROUPS_MAX {
        return Err(GroupError::TooMany(groups.len()));
    }
    for (group, Group { claim, parent }) in groups.iter().enumerate() {
        match (parent, claim) {
            (Some(parent), _) if usize::from(parent.0) >= group => {
                return Err(GroupError::Parent { group });
            }
            (Some(_), Claim::Share(_)) => return Err(GroupError::ShareInside { group }),
            _ => {}
        }
    }
    Ok(())
}

/// The place of the group that the terms name, if there is one.
pub(crate) fn group_of(terms: &Terms, groups: &[Group]) -> Option<usize> {
    terms.group.map(|group| usize::from(group.0)).filter(|&group| group < groups.len())
}

/// The outermost group around one.
pub(crate) fn outermost(mut group: usize, groups: &[Group]) -> usize {
    while let Some(parent) = groups[group].parent {
        group = usize::from(parent.0);
    }
    group
}
