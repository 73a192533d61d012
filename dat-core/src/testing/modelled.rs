//! What only tests of all interleavings need.

use core::fmt::{self, Write as _};

use crate::engine::storage::Parts;
use crate::provider::Provider;

/// Takes any text and keeps none.
struct Nowhere;

impl fmt::Write for Nowhere {
    fn write_str(&mut self, _: &str) -> fmt::Result {
        Ok(())
    }
}

impl<P: Provider> Parts<'_, P> {
    /// Makes all shared words known to loom, in the thread from which the others start.
    pub fn make_known(&self) {
        let _ = write!(Nowhere, "{:?}", self.data.shared);
    }
}
