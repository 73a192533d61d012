//! Selects the active mutant. Exists in the instrumented copy only, as a module of the innermost crate.
//!
//! The variable `MUTANT` has the number of the active mutant. `MUTANT_REACH` names a file instead, to
//! which the number of each mutant is appended when its site is reached for the first time.

extern crate std;

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::io::Write;

/// The environment has not been read yet.
const UNREAD: u32 = u32::MAX;
/// No mutant is active; reached sites are recorded.
const RECORDS: u32 = u32::MAX - 1;

static MUTANT: AtomicU32 = AtomicU32::new(UNREAD);
static SEEN: [AtomicU64; 1024] = [const { AtomicU64::new(0) }; 1024];
static FILE: std::sync::OnceLock<std::fs::File> = std::sync::OnceLock::new();

/// Returns whether that mutant is active.
#[inline(always)]
pub fn on(mutant: u32) -> bool {
    let now = MUTANT.load(Ordering::Relaxed);
    if now < RECORDS { now == mutant } else { slow(mutant) }
}

#[cold]
#[inline(never)]
fn slow(mutant: u32) -> bool {
    if MUTANT.load(Ordering::Relaxed) == UNREAD {
        let number = std::env::var("MUTANT").ok().and_then(|text| text.parse().ok());
        let mut now = number.unwrap_or(0);
        if let Ok(path) = std::env::var("MUTANT_REACH") {
            let file = std::fs::OpenOptions::new().append(true).create(true).open(path);
            FILE.get_or_init(|| file.unwrap());
            now = RECORDS;
        }
        MUTANT.store(now, Ordering::SeqCst);
        return on(mutant);
    }
    let word = &SEEN[mutant as usize / 64 % SEEN.len()];
    let bit = 1 << (mutant % 64);
    if word.fetch_or(bit, Ordering::Relaxed) & bit == 0 {
        let mut file = FILE.get().unwrap();
        file.write_all(std::format!("{mutant}\n").as_bytes()).unwrap();
    }
    false
}

/// Integers that a mutant shifts by one.
pub trait Shift: Sized {
    fn shift(self) -> Self;
}

macro_rules! shift {
    ($($int:ty)*) => { $(impl Shift for $int { fn shift(self) -> Self { self.wrapping_add(1) } })* };
}
shift!(u8 u16 u32 u64 u128 usize i8 i16 i32 i64 i128 isize);

/// Returns a constant, or the next number if that mutant is active.
#[inline(always)]
pub fn next<T: Shift>(mutant: u32, value: T) -> T {
    if on(mutant) { value.shift() } else { value }
}
