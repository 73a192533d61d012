//! `dat compat cmtime`: one side of cmtime, which makes connections, moves nothing, and ends them
//! again.
//!
//! Since rdma-core 48 or so its two sides keep step over TCP: a byte that the client says and the
//! server repeats before the connections, when all are there, and when all are gone. There are
//! three rounds of it: one connection, all, and all once more with queue pairs that do not exist,
//! which nobody notices who sends nothing.
//!
//! The rounds of this side's client come in batches, because an adapter has fewer Endpoints than
//! such a test has connections. Nobody over there notices: the server counts.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use serde::Serialize;
use vfio_host::Host;

use super::super::End;
use super::super::failure::Failure;
use super::super::out::{Out, progress};
use super::super::traffic::adapter::{self, Play, SIZES};
use super::super::traffic::histogram::{Histogram, Latency};
use super::args::Cmtime;
use super::ends::Makings;
use super::link::{Links, News};
use super::oob::{self, Channel};
use crate::Nic;

/// Connections that a client has at a time, and a server: all that there is room for.
const BATCH: usize = 32;
const HELD: usize = SIZES.eps as usize;
/// Before a server that wants to be asked again is.
const BREATH: Duration = Duration::from_millis(2);
/// Steps, by the names they have over there: begin, connect, disconnect.
const STEPS: [u8; 3] = [0, 12, 14];

/// What is told at the end.
#[derive(Debug, Serialize)]
struct Told {
    role: &'static str,
    peer: String,
    /// Made and ended, in all rounds.
    connections: u32,
    rounds: usize,
    seconds: f64,
    connections_per_second: f64,
    /// From the call to the connection, on a client.
    latency_us: Option<Latency>,
}

pub(super) fn run(cmtime: &Cmtime, out: &Out) -> Result<End, Failure> {
    let server = cmtime.side.peer(&cmtime.adapter, cmtime.port)?;
    let own = cmtime.side.adapter(&cmtime.adapter);
    let told = adapter::with(&own, Playing { cmtime, server, out })?;
    out.result(&told, &words(&told))?;
    Ok(End::Ok)
}

fn words(told: &Told) -> String {
    let Told { role, peer, connections, rounds, seconds, connections_per_second, latency_us } =
        told;
    let mut text = format!(
        "cmtime {role}: {connections} connections with {peer} made and ended in {rounds} rounds, \
         {seconds:.3} s, {connections_per_second:.0} a second\n"
    );
    if let Some(Latency { min, median, max, .. }) = latency_us {
        text.push_str(&format!(
            "to connect: min {min:.1} us, median {median:.1} us, max {max:.1} us\n"
        ));
    }
    text
}

struct Playing<'a> {
    cmtime: &'a Cmtime,
    server: Option<SocketAddr>,
    out: &'a Out,
}

impl Play for Playing<'_> {
    type Told = Told;

    fn play<'p, H: Host>(self, nic: &mut Nic<'_, 'p, H>) -> Result<Told, Failure> {
        let Self { cmtime, server, out } = self;
        let all = cmtime.connections as usize;
        let makings = Makings {
            count: all.min(if server.is_some() { BATCH } else { HELD }),
            requests: 1,
            receives: 1,
        };
        let mut table = Table {
            links: Links::new(nic, makings, &cmtime.patience, "cmtime")?,
            free: (0..makings.count).collect(),
            channel: None,
            times: Histogram::new(),
        };
        let steps = match server {
            Some(_) => cmtime.oob.is_some(),
            None => cmtime.oob_port.is_some(),
        };
        let rounds = if steps { vec![1, all, all] } else { vec![all] };
        let bar = progress(*out, rounds.iter().sum::<usize>() as u64, "cmtime");
        if server.is_none() {
            table.links.listen(nic, cmtime.port)?;
        }
        table.meet(nic, cmtime, server.is_some())?;
        let start = Instant::now();
        for round in &rounds {
            match server {
                Some(server) => table.call(nic, server, *round, || bar.inc(1))?,
                None => table.serve(nic, *round, cmtime, || bar.inc(1))?,
            }
        }
        bar.finish_and_clear();
        let seconds = start.elapsed().as_secs_f64();
        let connections = u32::try_from(rounds.iter().sum::<usize>()).unwrap_or(u32::MAX);
        let peer = table.links.peer.clone();
        let latency_us = table.times.latency();
        table.links.free(nic, [])?;
        Ok(Told {
            role: if server.is_some() { "client" } else { "server" },
            peer,
            connections,
            rounds: rounds.len(),
            seconds,
            connections_per_second: f64::from(connections) / seconds,
            latency_us,
        })
    }
}

/// The Endpoints, and the side channel.
struct Table {
    links: Links,
    /// Endpoints of no connection.
    free: Vec<usize>,
    channel: Option<Channel>,
    times: Histogram,
}

impl Table {
    fn meet<H: Host>(
        &mut self,
        nic: &mut Nic<'_, '_, H>,
        cmtime: &Cmtime,
        client: bool,
    ) -> Result<(), Failure> {
        let (timeout, port) = (cmtime.patience.timeout, cmtime.oob_port.unwrap_or(cmtime.port));
        self.channel = match (&cmtime.oob, cmtime.oob_port) {
            (Some(host), _) => Some(Channel::call(host, port, timeout, "cmtime")?),
            (None, Some(port)) if !client => {
                let listener = oob::listen(port, "cmtime")?;
                let wait = cmtime.patience.wait;
                Some(Channel::accept(nic, &listener, wait, timeout, "cmtime")?)
            }
            (None, _) => None,
        };
        Ok(())
    }

    /// The client's side of a step.
    fn say<H: Host>(&mut self, nic: &mut Nic<'_, '_, H>, step: u8) -> Result<(), Failure> {
        let Some(channel) = &mut self.channel else {
            return Ok(());
        };
        channel.say_step(step)?;
        channel.hear_step(nic, step)
    }

    /// The server's side of a step.
    fn answer<H: Host>(&mut self, nic: &mut Nic<'_, '_, H>, step: u8) -> Result<(), Failure> {
        let Some(channel) = &mut self.channel else {
            return Ok(());
        };
        channel.hear_step(nic, step)?;
        channel.say_step(step)
    }

    /// A round of a client.
    fn call<H: Host>(
        &mut self,
        nic: &mut Nic<'_, '_, H>,
        server: SocketAddr,
        count: usize,
        tell: impl Fn(),
    ) -> Result<(), Failure> {
        let [begin, connect, disconnect] = STEPS;
        self.say(nic, begin)?;
        let timeout = self.links.timeout;
        let mut left = count;
        while left > 0 {
            let batch = left.min(self.free.len());
            let mut started = Vec::with_capacity(batch);
            for link in 0..batch {
                started.push(Instant::now());
                self.links.begin(nic, link, server, timeout)?;
            }
            self.connected(nic, server, &started)?;
            for link in 0..batch {
                self.links.end(nic, link)?;
            }
            let mut over = 0;
            while over < batch {
                let news = self.links.heard(nic, "the ends of the connections")?;
                over += usize::from(matches!(news, News::Over(_)));
            }
            for link in 0..batch {
                self.links.renew(nic, link)?;
                tell();
            }
            left -= batch;
        }
        self.say(nic, connect)?;
        self.say(nic, disconnect)
    }

    /// Waits until those are connected that were started then.
    fn connected<H: Host>(
        &mut self,
        nic: &mut Nic<'_, '_, H>,
        server: SocketAddr,
        started: &[Instant],
    ) -> Result<(), Failure> {
        let timeout = self.links.timeout;
        let until = Instant::now() + timeout;
        let mut up = 0;
        while up < started.len() {
            match self.links.heard(nic, "the connections")? {
                News::Up(link) => {
                    up += 1;
                    if let Some(start) = started.get(link) {
                        self.times.add(start.elapsed());
                    }
                }
                News::Again(link) if Instant::now() < until => {
                    // Over there a program has to answer each request and each end, and takes its
                    // time.
                    std::thread::sleep(BREATH);
                    self.links.renew(nic, link)?;
                    self.links.begin(nic, link, server, timeout)?;
                }
                News::Again(_) => {
                    return Err(Failure::new(format!(
                        "{server} does not take as many connections, or does not let go of earlier ones"
                    ))
                    .remedy("its output says why"));
                }
                News::Over(_) => {
                    return Err(Failure::new(format!("{server} parts before all is connected"))
                        .remedy("its output says why"));
                }
                News::Done(..) | News::Asked(_) => {}
            }
        }
        Ok(())
    }

    /// A round of a server.
    fn serve<H: Host>(
        &mut self,
        nic: &mut Nic<'_, '_, H>,
        count: usize,
        cmtime: &Cmtime,
        tell: impl Fn(),
    ) -> Result<(), Failure> {
        let [begin, connect, disconnect] = STEPS;
        self.answer(nic, begin)?;
        let mut turned_away: Option<IpAddr> = None;
        let (mut up, mut over) = (0, 0);
        let mut told = false;
        while over < count {
            if up == count && !told {
                self.answer(nic, connect)?;
                told = true;
            }
            let limit = if up == 0 { cmtime.patience.wait } else { cmtime.patience.timeout };
            let news = self.links.next(nic, limit, "the next connection, or its end");
            let news = news.map_err(|failure| match turned_away {
                Some(peer) => {
                    Failure::new(format!("{peer} asked for more than {HELD} connections at a time"))
                        .remedy(format!("give -c {HELD} or less on both sides"))
                }
                None => failure,
            })?;
            match news {
                News::Asked(cr) => match self.free.pop() {
                    Some(link) => self.links.accept(nic, cr, link)?,
                    None => {
                        turned_away = nic.cr_query(cr).ok().map(|request| request.remote);
                        Links::refuse(nic, cr);
                    }
                },
                News::Up(_) => up += 1,
                News::Over(link) => {
                    over += 1;
                    tell();
                    self.links.renew(nic, link)?;
                    self.free.push(link);
                }
                News::Again(link) => {
                    self.links.renew(nic, link)?;
                    self.free.push(link);
                }
                News::Done(..) => {}
            }
        }
        if !told {
            self.answer(nic, connect)?;
        }
        self.answer(nic, disconnect)
    }
}
