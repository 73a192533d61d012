//! What only InfiniBand ports have.
//!
//! * [`sm`] - a subnet manager for two ports joined by a cable.

pub mod sm;
