//! What a run prints on standard error before its first release.

use upcall::{Mode, RealTime};
use upcall_cli::standard_error::say;

/// Prints by which right the handlers have the real-time class, and what was not granted.
pub fn say_class(mode: Mode, class: Option<RealTime>, notices: &[String]) {
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
    for notice in with_one_remedy(notices) {
        say(format_args!("upcall: {notice}"));
    }
}

/// The notices as a person reads them. A remedy that an earlier line already gave is not repeated.
fn with_one_remedy(notices: &[String]) -> Vec<String> {
    let short = |(at, notice): (usize, &String)| {
        let is_repeated = |&(behind, _): &(usize, &str)| {
            let remedy = &notice[behind..];
            remedy.contains("grant it with")
                && notices[..at].iter().any(|earlier| earlier.ends_with(remedy))
        };
        match notice.match_indices("; ").find(is_repeated) {
            Some((behind, _)) => format!("{}; granted as told above", &notice[..behind]),
            None => notice.clone(),
        }
    };
    notices.iter().enumerate().map(short).collect()
}

#[cfg(test)]
mod tests {
    use super::with_one_remedy;

    #[test]
    fn a_remedy_is_printed_once() {
        let remedy = "; setcap cannot grant it (nosuid); grant it with the lines `a` and `b`";
        let notices = |heads: &[&str]| heads.iter().map(|head| format!("{head}{remedy}")).collect();
        let both: Vec<String> = notices(&["no right to the class", "memory is not locked"]);
        let printed = with_one_remedy(&both);
        assert_eq!(printed, [&both[0], "memory is not locked; granted as told above"]);
        // A notice alone keeps its remedy, and different remedies stay.
        assert_eq!(with_one_remedy(&both[1..]), both[1..]);
        let others = ["video: a small buffer; raise it", "audio: a small buffer; raise it"];
        assert_eq!(with_one_remedy(&others.map(str::to_owned)), others);
    }
}
