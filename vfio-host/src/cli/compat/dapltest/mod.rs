//! `dat compat dapltest`: a server, and clients, of dapltest's protocol.
//!
//! The facts are those of dapltest 2.1.10. A client connects to the server's port ([`control`]) and
//! says who it is and what it wants ([`wire`]: all bytes); the server opens a port for each
//! connection of the test and answers with the first. The test goes on over those: [`transaction`]
//! for its threads, [`leg`] for one of their connections, [`buffers`] for the memory of one;
//! or [`performance`]. [`hub`] is what all of it waits at.
//!
//! Where the tool waits for ever, there is an end here; where it goes on after other private data
//! than its own, or a message of another length, a test fails here.

mod args;
mod buffers;
mod client;
mod control;
mod hub;
mod leg;
mod ops;
mod performance;
mod processor;
mod server;
mod stats;
mod terms;
mod transaction;
mod wire;

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;

use dat_core::provider::Mtu;
use serde::Serialize;

pub(super) use args::Dapltest;

use super::super::End;
use super::super::failure::Failure;
use super::super::out::Out;
use super::super::traffic::adapter::{self, Task};
use crate::Host;
use crate::cli::Nic;
use args::Wish;
use client::Told;
use hub::Hub;
use server::{Served, Serving};

/// What is told at the end.
#[derive(Debug, Serialize)]
#[serde(tag = "role", rename_all = "lowercase")]
enum Ended {
    Server(Served),
    Client(Box<Told>),
}

pub(super) fn run(dapltest: &Dapltest, out: &Out) -> Result<End, Failure> {
    let wish = dapltest.wish()?;
    // What a client offers, its server's port must have: what every port has that takes frames of
    // 1500 bytes.
    let offers = wish.is_some().then_some(Mtu::B1024);
    let adapter = dapltest.adapter.clone().with_mtu(offers);
    let play = Playing { dapltest, wish, out: *out };
    let ended = adapter::with(&adapter, play)?;
    let (words, failed) = match &ended {
        Ended::Server(Served { tests, failed }) => {
            let words = format!("dapltest server: {tests} tests, {failed} failures\n");
            (words, *failed)
        }
        Ended::Client(told) => (told.lines(), 0),
    };
    out.result(&ended, &words)?;
    Ok(if failed == 0 { End::Ok } else { End::Failed })
}

struct Playing<'a> {
    dapltest: &'a Dapltest,
    wish: Option<(SocketAddr, Wish)>,
    out: Out,
}

impl Task for Playing<'_> {
    type Report = Ended;

    fn run<'p, H: Host>(self, nic: &mut Nic<'_, 'p, H>) -> Result<Ended, Failure> {
        let Self { dapltest, wish, out } = self;
        let hub = Hub::new(nic, &dapltest.patience)?;
        let ended = match &wish {
            Some((server, wish)) => called(&hub, dapltest, *server, wish, out)?,
            None => served(&hub, dapltest, out)?,
        };
        hub.free()?;
        Ok(ended)
    }
}

fn called<H: Host>(
    hub: &Hub<'_, '_, '_, H>,
    dapltest: &Dapltest,
    server: SocketAddr,
    wish: &Wish,
    out: Out,
) -> Result<Ended, Failure> {
    let told = RefCell::new(None);
    let first = async {
        let ended = client::call(hub, dapltest, server, wish, out).await?;
        told.replace(Some(ended));
        Ok(())
    };
    hub.run(&RefCell::default(), Box::pin(first))?;
    let told = told.take();
    told.map(|told| Ended::Client(Box::new(told)))
        .ok_or_else(|| Failure::new("the test ended without a result"))
}

fn served<H: Host>(
    hub: &Hub<'_, '_, '_, H>,
    dapltest: &Dapltest,
    out: Out,
) -> Result<Ended, Failure> {
    let served = Cell::default();
    let more = RefCell::default();
    let serving = Serving { hub, dapltest, out, served: &served };
    hub.run(&more, Box::pin(serving.run(&more)))?;
    Ok(Ended::Server(served.get()))
}
