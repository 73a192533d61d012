//! A small crate with a mutant of each kind, to test `cargo xtask mutants` itself.

/// Events at the most.
const MOST: u32 = 3;

/// A queue that counts only.
#[derive(Debug, Default)]
pub struct Queue {
    count: u32,
    hints: u32,
    marks: Marks,
}

/// Further state.
#[derive(Debug, Default)]
pub struct Marks {
    full: bool,
}

impl Queue {
    /// Whether there was space for one more.
    pub fn push(&mut self) -> bool {
        let room = self.count < MOST;
        if room {
            self.count += 1;
            self.note();
        }
        // No test looks at it.
        self.hints += 1;
        room
    }

    /// Whether it became full.
    #[must_use]
    pub const fn is_full(&self) -> bool {
        self.marks.full
    }

    fn note(&mut self) {
        self.marks.full = self.count == MOST;
    }

    /// Takes all out.
    pub fn drain(&mut self) -> u32 {
        let taken;
        taken = self.count;
        while self.count != 0 {
            self.count -= 1;
        }
        taken
    }

    /// Nobody calls it.
    #[must_use]
    pub fn hints(&self) -> Option<u32> {
        let 1.. = self.hints else { return None };
        Some(self.hints)
    }
}
