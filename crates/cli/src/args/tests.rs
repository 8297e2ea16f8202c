//! The command lines of `exec`, `share` and `adopt`.

use clap::Parser;

use upcall::admission::Share;

use super::*;

fn parse(line: &str) -> Result<Command, clap::Error> {
    Args::try_parse_from(line.split(' ')).map(|args| args.command)
}

#[track_caller]
fn exec(line: &str) -> ExecArgs {
    match parse(line) {
        Ok(Command::Exec(args)) => args,
        other => panic!("{line}: {other:?}"),
    }
}

#[test]
fn everything_after_the_program_belongs_to_it() {
    for line in [
        "upcall exec --share 45% -- ls --json -l --share 20%",
        "upcall exec --share 45% ls --json -l --share 20%",
    ] {
        let args = exec(line);
        assert_eq!(args.program, ["ls", "--json", "-l", "--share", "20%"], "{line}");
        assert_eq!(args.terms.share, Share::from_ppm(450_000));
        assert!(!args.json);
    }
}

#[test]
fn a_program_asks_for_a_share_a_cost_or_a_weight() {
    let args = exec("upcall exec --cost 5ms --period 11ms --quantum 500us --cpu 1 -- ls");
    let TermsArgs { share, weight, cost, period, cpu, quantum } = args.terms;
    assert_eq!((share, weight, cpu), (None, None, Some(1)));
    assert_eq!((cost, period), (Some(Span::from_millis(5)), Some(Span::from_millis(11))));
    assert_eq!(quantum, Some(Span::from_micros(500)));
    exec("upcall exec --share 45% --cost 5ms --period 11ms -- ls");
    assert_eq!(exec("upcall exec --weight 3 -- ls").terms.weight, Some(3));
    for line in [
        "upcall exec -- ls",
        "upcall exec --share 45%",
        "upcall exec --cpu 1 -- ls",
        "upcall exec --share 0% -- ls",
        "upcall exec --share 101% -- ls",
        "upcall exec --share 45 -- ls",
        "upcall exec --weight 0 -- ls",
        "upcall exec --weight 101 -- ls",
        "upcall exec --weight 2 --share 45% -- ls",
        "upcall exec --cost 5ms -- ls",
        "upcall exec --period 5ms -- ls",
        "upcall exec --share 45% --period 11ms -- ls",
    ] {
        assert!(parse(line).is_err(), "{line}");
    }
}

#[test]
fn a_share_is_changed_or_given_back() {
    for (line, expected) in
        [("upcall share 12 20%", Share::from_ppm(200_000)), ("upcall share 12 none", None)]
    {
        let Ok(Command::Share(args)) = parse(line) else { panic!("{line}") };
        assert_eq!((args.pid, args.share), (12, ShareArg(expected)));
    }
    for line in ["upcall share 12", "upcall share 12 0%", "upcall share x 20%"] {
        assert!(parse(line).is_err(), "{line}");
    }
    let Ok(Command::Adopt(args)) = parse("upcall adopt 12 --share 20%") else { panic!() };
    assert_eq!((args.pid, args.terms.share), (12, Share::from_ppm(200_000)));
    assert!(parse("upcall adopt 12").is_err());
}
