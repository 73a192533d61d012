//! Guests at work: processes, QEMU, the console of a guest, the control socket of the model.

pub(crate) mod control;
mod process;
pub(crate) mod shell;
pub(crate) mod stage;
