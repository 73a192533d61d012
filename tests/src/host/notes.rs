//! Notes of every field that the driver sets, over all slots of a process and all processes of a
//! run.
//!
//! With `DAT_FIELDS=FILE` in the environment each model in a slot is watched, and what was seen is
//! added to the file when the model goes: `cargo xtask fields record` runs the demo and the tests
//! that way.

use std::path::PathBuf;

use mlx5_model::Hca;
use mlx5_model::watch::{Fields, Observer, Seen};

struct Notes {
    fields: Fields,
    file: PathBuf,
}

/// Watches a model, if that was asked for.
pub(super) fn watch(hca: &mut Hca) {
    if let Some(file) = std::env::var_os("DAT_FIELDS") {
        #[cfg(feature = "seeded")]
        mlx5_model::ifc::seeds::note();
        hca.observe(Box::new(Notes { fields: Fields::default(), file: file.into() }));
    }
}

impl Observer for Notes {
    fn saw(&mut self, seen: &Seen<'_>) {
        self.fields.saw(seen);
    }
}

impl Drop for Notes {
    fn drop(&mut self) {
        #[cfg(feature = "seeded")]
        self.fields.heeded(mlx5_model::ifc::seeds::heeded());
        if let Err(error) = self.fields.add_to(&self.file) {
            eprintln!("{}: {error}", self.file.display());
        }
    }
}
