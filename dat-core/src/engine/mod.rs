mod datagram;
mod drain;
pub(crate) mod establish;
mod halves;
mod receives;
mod windows;
