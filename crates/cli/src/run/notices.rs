//! What a run prints on standard error before its first release.

use std::fmt;

use serde::{Deserialize, Serialize};
use upcall::{Mode, Notice, RealTime, Remedy};
use upcall_cli::standard_error::say;

/// Prints by which right the handlers have the real-time class, and what was not granted.
pub fn say_class(mode: Mode, class: Option<RealTime>, notices: &[RunNotice]) {
    match class {
        // In this mode each thread has a priority of its own.
        Some(RealTime { right, band, .. }) if mode == Mode::Fifo => {
            let highest = band.handlers();
            say(format_args!(
                "upcall: real-time class, threads at rate-monotonic priorities from {highest} \
                 down, by {right}"
            ));
        }
        Some(class) => say(format_args!("upcall: {class}")),
        None => {}
    }
    for (at, notice) in notices.iter().enumerate() {
        say(format_args!("upcall: {}", notice.after(&notices[..at])));
    }
}

/// A notice of a run.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct RunNotice {
    /// The text without the remedy.
    problem: String,
    /// Why the usual way to grant the missing right fails.
    obstacle: Option<String>,
    /// How to grant the missing right.
    grant: Option<String>,
}

impl RunNotice {
    /// A notice that asks for no right.
    pub fn new(problem: String) -> Self {
        RunNotice { problem, obstacle: None, grant: None }
    }

    /// The notice as a person reads it after `earlier` notices. A remedy that one of them gave is
    /// not repeated.
    fn after(&self, earlier: &[RunNotice]) -> String {
        let same_grant = || earlier.iter().filter(|other| other.grant == self.grant);
        if self.grant.is_none() || same_grant().next().is_none() {
            return self.to_string();
        }
        let is_same_obstacle = same_grant().any(|other| other.obstacle == self.obstacle);
        let obstacle = self.obstacle.as_ref().filter(|_| !is_same_obstacle);
        let obstacle = obstacle.map_or(String::new(), |obstacle| format!("; {obstacle}"));
        format!("{}{obstacle}; granted as told above", self.problem)
    }
}

impl From<&Notice> for RunNotice {
    fn from(notice: &Notice) -> Self {
        let (obstacle, grant) = match notice.remedy() {
            Some(Remedy { obstacle, grant }) => (obstacle, Some(grant)),
            None => (None, None),
        };
        RunNotice { problem: notice.problem(), obstacle, grant }
    }
}

impl fmt::Display for RunNotice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.problem)?;
        self.obstacle.iter().chain(&self.grant).try_for_each(|part| write!(f, "; {part}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_remedy(problem: &str, obstacle: Option<&str>) -> RunNotice {
        RunNotice {
            problem: problem.to_owned(),
            obstacle: obstacle.map(str::to_owned),
            grant: Some("grant it with the lines `a` and `b`".to_owned()),
        }
    }

    #[test]
    fn a_remedy_is_printed_once() {
        let nosuid = Some("setcap cannot grant it (nosuid)");
        let first = with_remedy("no right to the class", nosuid);
        let second = with_remedy("memory is not locked", nosuid);
        let remedy = "; setcap cannot grant it (nosuid); grant it with the lines `a` and `b`";
        assert_eq!(first.after(&[]), format!("no right to the class{remedy}"));
        let earlier = [first];
        assert_eq!(second.after(&earlier), "memory is not locked; granted as told above");
        // A notice alone keeps its remedy, and another obstacle stays.
        assert_eq!(second.after(&[]), format!("memory is not locked{remedy}"));
        let third = with_remedy("memory is not locked", Some("setcap cannot grant it (bash)"));
        assert_eq!(
            third.after(&earlier),
            "memory is not locked; setcap cannot grant it (bash); granted as told above"
        );
        // Texts without a remedy stay.
        let others = ["video: a small buffer; raise it", "audio: a small buffer; raise it"];
        let others = others.map(|text| RunNotice::new(text.to_owned()));
        assert_eq!(others[1].after(&others[..1]), "audio: a small buffer; raise it");
    }
}
