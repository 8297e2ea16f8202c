//! `examples/ffmpeg.toml` with real senders: ffmpeg sends by the command lines in the file, and the
//! run decodes its packets.

#[allow(dead_code, reason = "each test program uses its own part")]
mod support;

use std::fs;
use std::process::Command;

use serde_json::Value;
use support::{
    Running, SpecFile, example, free_port, list, machine, named, number, skipped, start, text,
    wait_until_bound,
};

/// The command lines in the comments of a spec. Each begins with `# ffmpeg` and continues after a
/// line that ends in a backslash.
fn ffmpeg_lines(spec: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut lines = spec.lines();
    while let Some(line) = lines.next() {
        let Some(arguments) = line.strip_prefix("#   ffmpeg ") else { continue };
        let mut command = format!("ffmpeg {arguments}");
        while let Some(begun) = command.strip_suffix('\\') {
            let more = lines.next().and_then(|line| line.strip_prefix('#'));
            command = format!("{begun}{}", more.expect("the line goes on").trim_start());
        }
        found.push(command);
    }
    found
}

#[test]
fn the_command_lines_are_found_in_the_example() {
    let spec = fs::read_to_string(example("ffmpeg.toml")).expect("the example");
    let lines = ffmpeg_lines(&spec);
    assert_eq!(lines.len(), 2, "{lines:#?}");
    for (line, end) in lines.iter().zip(["rtp://127.0.0.1:5004", "rtp://127.0.0.1:5006"]) {
        assert!(line.starts_with("ffmpeg -re ") && line.ends_with(end), "{line}");
    }
}

#[test]
fn the_example_is_admitted_and_the_decoders_cost_is_measured() {
    let done = support::upcall(&["plan", &example("ffmpeg.toml"), "--json"]);
    let plan = done.assert_code(&[0]).json();
    let camera = named(&plan, "activities", "camera");
    assert!(support::truth(camera, "cost_measured"), "{camera:#}");
    assert!(!support::truth(named(&plan, "activities", "sound"), "cost_measured"));
    // The numbers are those in the comments of the file.
    let shape = |name| {
        let activity = named(&plan, "activities", name);
        (number(activity, "batch"), number(activity, "period_ns") / 100_000)
    };
    assert_eq!(shape("camera"), (4, 1_481));
    assert_eq!(shape("sound"), (15, 1_000));
}

#[test]
#[ignore = "needs ffmpeg"]
fn pictures_and_sound_from_ffmpeg_are_decoded() {
    let _machine = machine();
    // ffmpeg has no reserved CPU time either. It may be slow to begin. When it catches up after a
    // pause, it sends more at once than declared and than the buffers hold. So each attempt takes
    // longer, and the received packets must be right in all of them.
    let mut seen_enough = false;
    for duration in ["4s", "8s", "16s", "32s"] {
        let run = run_with_ffmpeg(duration);
        let (camera, sound) = (named(&run, "streams", "camera"), named(&run, "streams", "sound"));
        let lost = |s| number(s, "work.lost") + number(s, "dropped.socket");
        let is_enough =
            number(camera, "work.processed") > 10 && number(sound, "work.processed") > 50;
        [camera, sound].into_iter().for_each(assert_is_right);
        if is_enough {
            seen_enough = true;
            assert_eq!(text(camera, "work.kind"), "rtp-jpeg");
            assert_eq!((number(camera, "work.width"), number(camera, "work.height")), (320, 240));
            assert!(number(sound, "work.peak") > 0, "{sound:#}");
        }
        if is_enough && lost(camera) + lost(sound) == 0 {
            // A busy machine may be late. Nothing else may be wrong.
            for line in list(&run, "broken") {
                let line = line.as_str().expect("a line");
                assert!(line.contains("deadlines missed") || line.contains("later than"), "{line}");
            }
            return;
        }
    }
    assert!(seen_enough, "hardly anything was decoded in any attempt");
    skipped("that nothing is lost: ffmpeg got too little CPU to send evenly, in four attempts");
}

/// The received packets were processed without error, and the counts add up.
fn assert_is_right(stream: &Value) {
    assert_adds_up(stream);
    for none in ["work.decode_errors", "work.rejected"] {
        assert_eq!(number(stream, none), 0, "{none} in {stream:#}");
    }
}

/// Runs the example with the file's own command lines as senders. Returns the outcome.
fn run_with_ffmpeg(duration: &str) -> Value {
    let mut spec = fs::read_to_string(example("ffmpeg.toml")).expect("the example");
    let ports = [("5004", free_port()), ("5006", free_port())];
    for (port, free) in ports {
        spec = spec.replace(&format!(":{port}"), &format!(":{free}"));
    }
    let commands = ffmpeg_lines(&spec);
    let file = SpecFile::new(&spec);
    let mut running = start(&["run", file.path(), "--json", "--duration", duration]);
    for (_, free) in ports {
        wait_until_bound(&mut running, free);
    }
    // Killed at the end of the scope. With `exec` the pid is that of ffmpeg.
    let _senders: Vec<Running> = commands
        .iter()
        .map(|command| Running::start(Command::new("sh").args(["-c", &format!("exec {command}")])))
        .collect();
    running.finish().assert_code(&[0, 4]).json()
}

fn assert_adds_up(stream: &Value) {
    let of = |field| number(stream, field);
    assert_eq!(of("received"), of("processed") + of("dropped.queue") + of("unread"), "{stream:#}");
}
