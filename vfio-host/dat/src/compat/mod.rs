//! `dat compat`: this stack against programs that everybody has, so that a user can check his own
//! network with a known tool on the other side.
//!
//! Each verb speaks the protocol of rping or of perftest, in both of its roles; the facts are those
//! of rdma-core 44 and 56 and of perftest 25.01.
//! [`ends`] is Endpoints on one Event Dispatcher, [`link`] how they connect, with waits that end.
//! Here both sides need not be of one kind, so nothing is agreed upon beyond what the program itself
//! says: a verb verifies as much of the contents as its program's habits allow.

mod args;
mod ends;
mod link;
mod oob;
mod perftest;
mod rping;

pub(crate) use args::Compat;

use super::End;
use super::failure::Failure;
use super::out::Out;
use args::Program;

pub(crate) fn run(compat: &Compat, out: &Out) -> Result<End, Failure> {
    match &compat.program {
        Program::Rping(it) => rping::run(it, out),
        Program::Perftest(it) => perftest::run(it, out),
    }
}
