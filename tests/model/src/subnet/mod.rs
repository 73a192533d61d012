//! A subnet without devices: nodes with their subnet management agents, cables, frames.
//!
//! [`node::Node`] is a channel adapter or a switch as a subnet manager sees it: frames come in by
//! [`Node::arrive`] and leave by [`Node::next_frame`]. [`agent`] is its answers to SMPs, [`route`]
//! the rules of the directed route. [`fabric::Fabric`] joins nodes by cables. There is no subnet
//! manager here, and no queue pair: a frame for a channel adapter that its agent does not answer
//! waits until [`Node::receive`].
//!
//! Nothing happens outside a call. What comes from a frame is never trusted: it is dropped and
//! counted ([`Cause`]), or answered with a status.
//! Reference: IBTA volume 1, chapters 7, 13, 14 and 18.

pub mod agent;
mod attributes;
pub mod cause;
pub mod fabric;
mod forward;
mod frames;
mod m_key;
pub mod node;
pub mod notice;
pub mod port;
mod port_info;
pub mod route;
mod smi;
pub mod smp;
pub mod switch;
mod tables;

pub use cause::Cause;
pub use fabric::{End, Fabric, NodeId};
pub use node::{Identity, Node};
pub use smp::Smp;

#[cfg(test)]
mod tests;
