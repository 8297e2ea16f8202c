//! The groups of PS, as the domains define them (docs/decisions/0022).
//!
//! Each domain numbers its own groups. Groups of one name in the domains of a user are one group,
//! on each CPU. The registry knows the groups that have members, under numbers of its own, which
//! admission uses too. A domain may define what it likes. What it says is compared with the others
//! when an activity joins the group.

use upcall_core::activity::{Claim, GroupId};
use upcall_core::admission::Share;
use upcall_core::policy::ps::{Group, GroupError, check_groups};
use upcall_shm::wire::Portion;

use super::Registry;
use super::error::{DefineError, GroupConflict, PlaceError};
use super::group::{DefinedGroup, Key, KnownGroup};

/// Groups of a user at most. Each change of a claim computes the parts of all groups anew.
const USER_GROUPS_MAX: usize = 256;

impl Registry {
    /// PS: defines the next group of a domain. Groups are numbered from 0.
    ///
    /// # Errors
    /// The domain has too many groups, or this one does not fit those before it.
    pub fn define_group(
        &mut self,
        number: u32,
        name: &str,
        (parent, portion): (Option<u32>, Portion),
    ) -> Result<(), DefineError> {
        let claim = match portion {
            Portion::Share(ppm) => Claim::Share(Share::from_ppm(ppm).ok_or(DefineError::Portion)?),
            Portion::Weight(0) => return Err(DefineError::Portion),
            Portion::Weight(weight) => Claim::Weight(weight),
        };
        let domain = self.domains.get_mut(&number).ok_or(DefineError::Gone)?;
        // A number out of range is no number of a group before this one.
        let parent = parent.map(|parent| GroupId(u16::try_from(parent).unwrap_or(u16::MAX)));
        let mut groups: Vec<Group> = domain.groups.iter().map(|of| of.group).collect();
        groups.push(Group { claim, parent });
        check_groups(&groups).map_err(DefineError::Group)?;
        let is_taken = !name.is_empty() && domain.groups.iter().any(|of| of.name == name);
        if is_taken {
            return Err(DefineError::Group(GroupError::Name { group: domain.groups.len() }));
        }
        let (name, group) = (name.to_owned(), Group { claim, parent });
        domain.groups.push(DefinedGroup { name, group });
        Ok(())
    }

    /// The group that an activity of a domain is to join, as the registry numbers it. A group that
    /// the domain did not define counts as none, and so does every group under another policy.
    ///
    /// # Errors
    /// [`PlaceError::Group`], [`PlaceError::GroupsUsedUp`].
    pub(super) fn known_group(
        &mut self,
        number: u32,
        group: Option<u32>,
    ) -> Result<Option<GroupId>, PlaceError> {
        let domain = self.domains.get(&number).ok_or(PlaceError::Gone)?;
        let defined = group.and_then(|group| usize::try_from(group).ok());
        let Some(mut at) = defined.filter(|&at| at < domain.groups.len() && self.by_accounts())
        else {
            return Ok(None);
        };
        let (uid, generation) = (domain.owner.uid, domain.generation);
        // From the outermost group inwards; a group stands behind its parent.
        let mut path = vec![at];
        while let Some(parent) = domain.groups[at].group.parent {
            at = usize::from(parent.0);
            path.push(at);
        }
        let path: Vec<_> =
            path.into_iter().rev().map(|at| (at, domain.groups[at].clone())).collect();
        let mut used = self.used_groups();
        let mut left = USER_GROUPS_MAX.saturating_sub(self.groups_of(uid, &used));
        let mut parent = None;
        for (number, DefinedGroup { name, group }) in path {
            let key = match name.is_empty() {
                true => Key::Own { generation, number },
                false => Key::Named { uid, name },
            };
            let asked = Group { parent, ..group };
            let same = (0..self.groups.len()).find(|&at| used[at] && self.groups[at].key == key);
            let at = match same {
                Some(at) if self.groups[at].group == asked => at,
                Some(at) => return Err(self.conflict(key, asked, self.groups[at].group)),
                None if left == 0 => return Err(PlaceError::GroupsUsedUp),
                None => {
                    left -= 1;
                    self.add_group(&mut used, KnownGroup { key, group: asked })
                }
            };
            parent = u16::try_from(at).ok().map(GroupId);
        }
        let groups = self.known_groups();
        self.reservations.set_groups(&groups);
        Ok(parent)
    }

    /// Puts a group where none is in use.
    fn add_group(&mut self, used: &mut Vec<bool>, known: KnownGroup) -> usize {
        let free = used.iter().position(|used| !used);
        let at = free.unwrap_or(self.groups.len());
        match free {
            Some(at) => self.groups[at] = known,
            None => {
                self.groups.push(known);
                used.push(true);
            }
        }
        used[at] = true;
        at
    }

    /// Which of the known groups have members, themselves or in a group inside.
    fn used_groups(&self) -> Vec<bool> {
        let mut used = vec![false; self.groups.len()];
        let activities = self.domains.values().flat_map(|domain| domain.activities.values());
        for mut group in activities.map(|activity| activity.terms.group) {
            while let Some(GroupId(at)) = group {
                used[usize::from(at)] = true;
                group = self.groups[usize::from(at)].group.parent;
            }
        }
        used
    }

    fn conflict(&self, key: Key, asked: Group, known: Group) -> PlaceError {
        let name_of = |group: GroupId| match self.groups.get(usize::from(group.0)) {
            Some(KnownGroup { key: Key::Named { name, .. }, .. }) => name.clone(),
            _ => String::new(),
        };
        let name = match key {
            Key::Named { name, .. } => name,
            Key::Own { .. } => String::new(),
        };
        let (found, expected) = match asked.parent == known.parent {
            true => (claimed(asked.claim), claimed(known.claim)),
            false => (inside(asked.parent.map(name_of)), inside(known.parent.map(name_of))),
        };
        PlaceError::Group(GroupConflict { name, found, expected })
    }

    /// All known groups, as the registry numbers them.
    pub(super) fn known_groups(&self) -> Vec<Group> {
        self.groups.iter().map(|known| known.group).collect()
    }

    /// How many of the groups in use are a user's.
    fn groups_of(&self, uid: u32, used: &[bool]) -> usize {
        let of_user = |known: &KnownGroup| match known.key {
            Key::Named { uid: of, .. } => of == uid,
            Key::Own { generation, .. } => {
                let mut domains = self.domains.values();
                domains.any(|domain| domain.generation == generation && domain.owner.uid == uid)
            }
        };
        used.iter().zip(&self.groups).filter(|&(&used, known)| used && of_user(known)).count()
    }

    /// The group of a domain with this number, as the registry numbers it. `None`: it has no
    /// member.
    pub(super) fn number_in_domain(&self, number: u32, group: GroupId) -> Option<usize> {
        let domain = self.domains.get(&number)?;
        match &self.groups.get(usize::from(group.0))?.key {
            Key::Named { name, .. } => domain.groups.iter().position(|of| of.name == *name),
            Key::Own { number, .. } => Some(*number),
        }
    }
}

fn claimed(claim: Claim) -> String {
    match claim {
        Claim::Share(share) => format!("a share of {share}"),
        Claim::Weight(weight) => format!("weight {weight}"),
    }
}

fn inside(parent: Option<String>) -> String {
    match parent {
        Some(parent) => format!("group `{parent}` around it"),
        None => "no group around it".to_owned(),
    }
}

#[cfg(test)]
mod tests;
