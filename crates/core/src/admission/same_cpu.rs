//! Places on the CPU of another activity.
//!
//! Activities of one CPU run one at a time, and give way only at boundaries. So activities that
//! share data without locks must be on one CPU. The first of them is placed like any activity. The
//! others go where it is, or are refused: no CPU is tried for all of them together.

use super::cpu::ReservationId;
use super::refusal::{Reason, Refusal};
use super::reservations::{Reservation, Reservations, Spot};
use crate::activity::{ActivityParams, Terms};

#[cfg(test)]
mod tests;

impl Reservations {
    /// As [`Reservations::reserve`], but only on the CPU where `other` has its reservation.
    ///
    /// # Errors
    /// `None` if there is no reservation `other`. Else why its CPU cannot take the activity too
    /// ([`Reason::SameCpu`]), and one change that would fit there. Nothing changed.
    pub fn reserve_on_cpu_of(
        &mut self,
        other: ReservationId,
        name: &str,
        params: ActivityParams,
        terms: &Terms,
    ) -> Result<Reservation, Option<Refusal>> {
        let (cpu, other, user) = self.cpu_of(other).ok_or(None)?;
        let other = other.to_owned();
        let spot = Spot { cpu, lower_ranked: &[], user };
        let granted = self.reserve_at(spot, name, params, terms);
        granted.map_err(|refusal| Some(refusal?.on_cpu_of(cpu, other)))
    }

    /// As [`Reservations::reserve_unscreened`], but on the CPU where `other` has its reservation;
    /// `None` if there is no such reservation. `params` must be valid.
    pub fn reserve_unscreened_on_cpu_of(
        &mut self,
        other: ReservationId,
        name: &str,
        params: ActivityParams,
        terms: &Terms,
    ) -> Option<Reservation> {
        let (cpu, _, user) = self.cpu_of(other)?;
        let spot = Spot { cpu, lower_ranked: &[], user };
        self.reserve_unscreened_at(spot, name, params, terms)
    }

    /// The CPU of a reservation, and the name and the user of its activity.
    fn cpu_of(&self, id: ReservationId) -> Option<(u32, &str, u32)> {
        self.cpus.iter().find_map(|cpu| {
            let member = cpu.members.iter().find(|member| member.id == id)?;
            Some((cpu.number, member.name.as_str(), member.user))
        })
    }
}

impl Refusal {
    /// This refusal of an activity that may only be on `cpu`, where `other` is. Parameters that are
    /// out of range are so on every CPU.
    fn on_cpu_of(self, cpu: u32, other: String) -> Self {
        match self.reason {
            Reason::Params(_) => self,
            reason => {
                let reason = Reason::SameCpu { cpu, other, reason: Box::new(reason) };
                Refusal { reason, ..self }
            }
        }
    }
}
