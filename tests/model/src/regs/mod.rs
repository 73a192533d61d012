//! The BAR and the configuration space.

mod bar;
mod config_space;
mod icmd;
mod iseg;
mod msix;
mod vsc;

#[cfg(feature = "vfio-user")]
pub(crate) use bar::BAR_BYTES;
pub(crate) use bar::UarLatch;
pub(crate) use config_space::ConfigSpace;
pub(crate) use iseg::{Registers, ticks};
pub(crate) use msix::Msix;
#[cfg(feature = "vfio-user")]
pub(crate) use msix::PBA;
