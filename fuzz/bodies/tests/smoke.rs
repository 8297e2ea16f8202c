//! Runs every fuzz target on stable Rust, as part of the tests. The inputs are the target's seeds,
//! bytes drawn from a fixed seed, and seeds with some bytes changed. `cargo fuzz` is guided by
//! coverage: see `fuzz/README.md`.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::fs;
use std::path::{Path, PathBuf};
use upcall_fuzz_bodies::TARGETS;

#[path = "../../../crates/core/tests/chance/mod.rs"]
#[allow(dead_code, reason = "each test draws what it needs")]
mod chance;

use chance::Chance;

/// Number of inputs drawn for each target.
const DRAWN: u64 = 1_500;
/// The greatest length of an input.
const BYTES_MAX: u64 = 600;

fn fuzz() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The seeds of a target, in the order of their names.
fn seeds(target: &str) -> Vec<Vec<u8>> {
    let folder = fuzz().join("seeds").join(target);
    let mut paths: Vec<_> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.iter().map(|path| fs::read(path).unwrap()).collect()
}

#[test]
fn every_target_accepts_its_seeds() {
    for (name, body) in TARGETS {
        let seeds = seeds(name);
        assert!(!seeds.is_empty(), "{name} has no seeds");
        for seed in seeds {
            body(&seed);
        }
    }
}

#[test]
fn every_target_accepts_any_bytes() {
    for (name, body) in TARGETS {
        let mut chance = Chance(1998);
        let seeds = seeds(name);
        let each: Vec<&Vec<u8>> = seeds.iter().collect();
        for _ in 0..DRAWN {
            let length = chance.below(BYTES_MAX);
            let mut bytes = match chance.one_in(2) {
                true => (0..length).map(|_| byte(&mut chance)).collect(),
                false => chance.one_of(&each).clone(),
            };
            for _ in 0..chance.below(8).min(bytes.len() as u64) {
                let at = usize::try_from(chance.below(bytes.len() as u64)).unwrap();
                bytes[at] = byte(&mut chance);
            }
            body(&bytes);
        }
    }
}

fn byte(chance: &mut Chance) -> u8 {
    u8::try_from(chance.below(256)).unwrap()
}

#[test]
fn every_target_has_a_program_for_cargo_fuzz() {
    let manifest = fs::read_to_string(fuzz().join("Cargo.toml")).unwrap();
    let programs = fs::read_dir(fuzz().join("fuzz_targets")).unwrap().count();
    assert_eq!(programs, TARGETS.len());
    for (name, _) in TARGETS {
        let path = format!("fuzz_targets/{name}.rs");
        let program = fs::read_to_string(fuzz().join(&path)).unwrap();
        assert!(program.contains(&format!("upcall_fuzz_bodies::{name}(data)")), "{path}");
        assert!(manifest.contains(&path), "{path}");
    }
}
