//! A soak test of streams between processes. It sends messages of every size and checks each of
//! them, kills the ends at random, and replaces them.
//!
//! `cargo xtask soak streams --messages 1000000000 --kills 1000`; the tests contain a short one.
//!
//! The soak runs for each [form](upcall_shm::stream::StreamForm) of a stream and once more for
//! passive sources. A passive source rests when there is no room, until the reader starts it below
//! `B_start`. A supervisor starts a sender and a receiver and gives them one stream after another.
//! Sizes, CPUs and the way to wait are random. After a random number of messages the supervisor
//! kills one of the two, or both, with SIGKILL. It marks the end as dead in the stream, as the
//! daemon would. Then it checks the stream's memory:
//!
//! - *committed* is everything below `N_write`, *read* everything below `N_read`. Both must agree
//!   with the counts that the ends recorded elsewhere just before and just after.
//! - A receiver that is alive has read all messages up to `N_write`, and no more.
//! - A sender that is alive is at `N_write` by its own count.
//! - If the receiver was killed, the memory holds each message from `N_read` to `N_write`. Messages
//!   that it had read and not released are among them: its successor sees them again.
//!
//! The next stream begins at `N_write`, with a new end in the place of the dead one. So each
//! message is counted once, either as read or as found after a killed receiver. The soak also
//! detects an end that is not woken: it reports nothing for 20 s.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use end::{Role, serve};
use supervisor::{Goal, soak};

mod end;
mod job;
mod message;
mod page;
mod receiver;
mod sender;
mod shared;
mod supervisor;

const USAGE: &str = "usage: soak streams [--messages N] [--kills N] [--seed N]";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    for role in [Role::Sender, Role::Receiver] {
        if arguments.first().is_some_and(|word| word == role.word()) {
            serve(role);
            return ExitCode::SUCCESS;
        }
    }
    let goal = match parse(&arguments) {
        Ok(goal) => goal,
        Err(found) => {
            eprintln!("error: {found}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    // Starts the same program again, even if its file was replaced meanwhile.
    match soak(goal, "/proc/self/exe") {
        Ok(done) => {
            println!("nothing lost, nothing duplicated, nothing damaged: {done}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error} (seed {})", goal.seed);
            ExitCode::FAILURE
        }
    }
}

fn parse(arguments: &[String]) -> Result<Goal, String> {
    let mut goal = Goal { messages: 10_000_000, kills: 40, seed: 1 };
    let (first, options) = arguments.split_first().ok_or("found nothing, expected `streams`")?;
    if first != "streams" {
        return Err(format!("found `{first}`, expected `streams`"));
    }
    for option in options.chunks(2) {
        let place = match option[0].as_str() {
            "--messages" => &mut goal.messages,
            "--kills" => &mut goal.kills,
            "--seed" => &mut goal.seed,
            name => return Err(format!("found `{name}`, expected --messages, --kills or --seed")),
        };
        let value = option.get(1).map_or("", String::as_str);
        let number = value.replace('_', "").parse();
        *place =
            number.map_err(|_| format!("{}: found `{value}`, expected a number", option[0]))?;
    }
    Ok(goal)
}
