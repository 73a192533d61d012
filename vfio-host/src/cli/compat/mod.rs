//! `dat compat`: this stack against programs that everybody has, so that a user can check his own network with a known tool
//! on the other side.
//!
//! Each verb speaks the protocol of one program of rdma-core, in both of its roles; the facts are those of rdma-core 44 and
//! 56. [`link`] is what they share: Endpoints, and waits that end. Here both sides need not be of one kind, so nothing is
//! agreed upon beyond what the program itself says: a verb verifies as much of the contents as its program's habits allow.
//!
//! What it does not do: programs that want unreliable datagrams (`udaddy`, `ibv_ud_pingpong`).

mod args;
mod cmtime;
mod link;
mod oob;
mod pingpong;
mod rping;
mod ucmatose;

pub(crate) use args::Compat;

use super::End;
use super::failure::Failure;
use super::out::Out;
use args::Program;

pub(crate) fn run(compat: &Compat, out: &Out) -> Result<End, Failure> {
    match &compat.program {
        Program::Rping(it) => rping::run(it, out),
        Program::Pingpong(it) => pingpong::run(it, out),
        Program::Ucmatose(it) => ucmatose::run(it, out),
        Program::Cmtime(it) => cmtime::run(it, out),
    }
}
