//! The random attacker: a million frames, the same each time. `cargo xtask attack` sends more.

use dat_tests::attack::storm::{EPISODE, episode};

/// Seed of the first episode.
const SEED: u64 = 100;

/// A fourth of the frames: tests run side by side.
fn attack(quarter: u64) {
    for n in 0..5 {
        let seed = SEED + 5 * quarter + n;
        eprintln!("seed {seed}");
        eprintln!("{}", episode(seed, EPISODE / 2));
    }
}

#[test]
fn the_first_quarter_of_a_million_frames() {
    attack(0);
}

#[test]
fn the_second_quarter_of_a_million_frames() {
    attack(1);
}

#[test]
fn the_third_quarter_of_a_million_frames() {
    attack(2);
}

#[test]
fn the_last_quarter_of_a_million_frames() {
    attack(3);
}

/// A seed is all that a failure needs to be repeated.
#[test]
fn the_same_seed_gives_the_same_run() {
    assert_eq!(episode(SEED, 5_000), episode(SEED, 5_000));
}
