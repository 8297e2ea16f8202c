//! Groups: activities that share one part of the CPU.
//!
//! Groups are defined when a discipline is made ([`crate::discipline::ps_with_groups`]). The terms
//! of an activity name its group. Admission counts the shares of groups; the policy has an account
//! for each group.

use crate::activity::{Claim, GroupId, Terms};
use core::fmt;

/// The most groups of a discipline. Each group takes memory for every activity.
pub const GROUPS_MAX: usize = 64;

/// A group: its claim, and its parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Group {
    /// A share of the CPU, or a weight among the adaptive activities. Inside another group, a
    /// weight among its members.
    pub claim: Claim,
    /// The enclosing group, which must come before this group in the list.
    pub parent: Option<GroupId>,
}

/// Invalid groups. `group` counts from 0.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum GroupError {
    /// More than [`GROUPS_MAX`].
    TooMany(usize),
    /// The parent does not come before the group in the list.
    Parent {
        /// The group.
        group: usize,
    },
    /// The group is inside another one, and claims a share.
    ShareInside {
        /// The group.
        group: usize,
    },
    /// The group has no name, that of another group, or one that is too long; or there is no such
    /// group.
    Name {
        /// The group.
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
            GroupError::Name { group } => {
                write!(
                    f,
                    "the name of group {group} is missing, taken or longer than 64 characters"
                )
            }
            GroupError::ShareInside { group } => {
                write!(f, "group {group} is inside another and claims a share, expected a weight")
            }
        }
    }
}

crate::debug_as_display!(GroupError);

impl core::error::Error for GroupError {}

/// Checks the groups of a discipline, or those that a domain declares.
///
/// # Errors
/// See [`GroupError`].
pub fn check_groups(groups: &[Group]) -> Result<(), GroupError> {
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

/// The index of the group that the terms name, if there is one.
pub(crate) fn group_of(terms: &Terms, groups: &[Group]) -> Option<usize> {
    terms.group.map(|group| usize::from(group.0)).filter(|&group| group < groups.len())
}

/// The outermost group around a group, or the group itself. Both are indices.
pub fn outermost(mut group: usize, groups: &[Group]) -> usize {
    while let Some(parent) = groups[group].parent {
        group = usize::from(parent.0);
    }
    group
}
