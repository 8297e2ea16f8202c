//! What DWCS needs of the registry: shares of event servers, and when the windows of activities
//! that have left are over (docs/decisions/0022).

use upcall_core::admission::Share;
use upcall_core::time::Instant;

use super::Registry;
use super::domain::{Activity, Domain};
use super::error::PlaceError;

impl Registry {
    /// Gives the event server that a domain has on a CPU another share, in millionths; 0 takes the
    /// share back. One analysis.
    ///
    /// # Errors
    /// See [`PlaceError`]; nothing changed.
    pub fn reserve_events(
        &mut self,
        number: u32,
        cpu: u32,
        share_ppm: u32,
    ) -> Result<(), PlaceError> {
        let domain = self.domains.get(&number).ok_or(PlaceError::Gone)?;
        let uid = domain.owner.uid;
        let before = domain.events.get(&cpu).copied();
        let share = match share_ppm {
            0 => None,
            ppm => Some(Share::from_ppm(ppm).ok_or(PlaceError::Portion)?),
        };
        if share.is_some() && domain.left.contains(&cpu) {
            return Err(PlaceError::NoThread(cpu));
        }
        if self.reservations.limit_of(cpu).is_none() {
            return Err(PlaceError::Cpu(cpu));
        }
        if share > before {
            // Refused ones cost nobody else a place.
            let has_activities = self.domains.values().any(|other| {
                let mut activities = other.activities.values();
                other.owner.uid != uid && activities.any(|of| of.cpu == cpu && !of.unscreened)
            });
            if has_activities || self.is_of_other_user(cpu, uid) {
                return Err(PlaceError::OtherUser(cpu));
            }
            let more_ppm = share_ppm.saturating_sub(before.map_or(0, Share::ppm));
            self.check_share(uid, more_ppm.into())?;
        }
        let others_ppm = self.events_ppm(cpu) - before.map_or(0, |share| u64::from(share.ppm()));
        let all_ppm = others_ppm + u64::from(share_ppm);
        let all = u32::try_from(all_ppm).ok().filter(|&ppm| ppm <= Share::WHOLE.ppm());
        let all = all.ok_or(PlaceError::Portion)?;
        self.reservations.reserve_events(cpu, Share::from_ppm(all))?;
        let domain = self.domains.get_mut(&number).ok_or(PlaceError::Gone)?;
        match share {
            Some(share) => domain.events.insert(cpu, share),
            None => domain.events.remove(&cpu),
        };
        Ok(())
    }

    /// Tells admission what the event servers of a CPU have, after some gave their shares back.
    pub(super) fn update_events(&mut self, cpu: u32) {
        let all = u32::try_from(self.events_ppm(cpu)).ok().and_then(Share::from_ppm);
        // A smaller share is never refused.
        let updated = self.reservations.reserve_events(cpu, all);
        debug_assert!(updated.is_ok(), "{updated:?}");
    }

    /// The shares of all event servers of a CPU, in millionths.
    fn events_ppm(&self, cpu: u32) -> u64 {
        let shares = self.domains.values().filter_map(|domain| domain.events.get(&cpu));
        shares.map(|share| u64::from(share.ppm())).sum()
    }

    /// The shares of the event servers of a user on all CPUs, in millionths.
    pub(super) fn events_ppm_of(&self, uid: u32) -> u64 {
        let of_user = self.domains.values().filter(|domain| domain.owner.uid == uid);
        of_user.flat_map(|domain| domain.events.values()).map(|share| u64::from(share.ppm())).sum()
    }

    /// Whether another user has an event server on a CPU.
    pub(super) fn has_events_of_other(&self, cpu: u32, uid: u32) -> bool {
        let has_events = |domain: &Domain| domain.events.contains_key(&cpu);
        self.domains.values().any(|domain| domain.owner.uid != uid && has_events(domain))
    }

    /// Whether another user has an event server on any CPU.
    pub(super) fn has_events_of_others(&self, uid: u32) -> bool {
        self.domains.values().any(|domain| domain.owner.uid != uid && !domain.events.is_empty())
    }

    /// An activity has left its CPU at `now`, maybe within a window. The last one leaves no window
    /// behind that matters, so no user can keep the next one waiting.
    pub(super) fn note_window(&mut self, activity: &Activity, now: Instant) {
        let all = self.domains.values().flat_map(|domain| domain.activities.values());
        if !all.into_iter().any(|other| other.cpu == activity.cpu && !other.unscreened) {
            self.windows_end.remove(&activity.cpu);
        } else if self.discipline.aligns_releases() && !activity.unscreened {
            let end = self.windows_end.entry(activity.cpu).or_insert(Instant::ZERO);
            *end = activity.window_end(now).max(*end);
        }
    }

    /// When an activity that comes to a CPU may be released first. Activities that left may have
    /// been served in windows that are not over, so their part is free only after these windows.
    /// Where every job is done in time nobody waits.
    pub(super) fn not_before(&self, cpu: u32) -> Instant {
        let relies = self.reservations.relies_on_windows(cpu);
        let end = self.windows_end.get(&cpu).filter(|_| relies);
        end.copied().unwrap_or(Instant::ZERO)
    }
}
