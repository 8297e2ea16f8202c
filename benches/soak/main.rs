//! A soak of streams between processes: messages of every size, each checked, while the ends are
//! killed at random and others take their place.
//!
//! `cargo xtask soak streams --messages 1000000000 --kills 1000`; a short one is among the tests.
//!
//! For each [way](upcall_shm::stream::StreamForm), and once more for passive sources (which rest when there is
//! no room, until the reader starts them below `B_start`), a supervisor starts a sender and a receiver, and
//! gives them one stream after another, of sizes, CPUs and ways to wait as the dice fall. When so
//! many messages are written, it kills one of the two, or both, with SIGKILL, says so to the stream
//! as the daemon would, and then looks at the stream's memory:
//!
//! - *committed* is what lies below `N_write`, *read* what lies below `N_read`; both must be
//!   what the ends, just before and just after, wrote down elsewhere;
//! - a receiver that lives has read up to `N_write`, all of it and no more;
//! - a sender that lives is by its own count at `N_write`;
//! - if the receiver was killed, each message from `N_read` to `N_write` stands in the memory.
//!   (What it had read and not released is among them: who takes over sees it again.)
//!
//! The next stream goes on at `N_write`, with a new end in the place of the dead one. So each
//! message is counted once: as read, or as found behind a killed receiver. An end that nobody
//! wakes is found too: it says nothing for 20 s.

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
    // The same program again, whatever became of its file since it was started.
    match soak(goal, "/proc/self/exe") {
        Ok(done) => {
            println!("nothing lost, nothing twice, nothing damaged: {done}");
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
