//! Traffic between two `dat` commands: `dat listen` serves tests, `dat ping` and `dat perf` run
//! them.
//!
//! [`hello`] has the messages between the two, [`contents`] the test data, which both sides verify.
//! [`adapter`] opens the device, [`conn`] is one connection with its [`memory`], [`ends`] where it
//! posts and takes events, [`call`] the
//! client's side, [`session`] the server's side of one test, [`view`] what a side saw of it.

pub(super) mod adapter;
mod call;
mod conn;
pub(super) mod contents;
mod ends;
mod hello;
pub(super) mod histogram;
pub(crate) mod listen;
pub(super) mod memory;
pub(crate) mod perf;
pub(crate) mod ping;
mod session;
mod view;

pub(crate) use adapter::{await_link, bring_up_config, open as open_device, options};
pub(crate) use hello::Kind;
