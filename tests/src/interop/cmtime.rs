//! cmtime: connections are made, nothing is moved, and they are ended again.
//!
//! Since rdma-core 48 or so the two sides keep step over TCP: a byte that the client says and the
//! server repeats before the connections, when all are there, and when all are gone. There are
//! three rounds of it: one connection, all, and all once more with queue pairs that do not exist,
//! which a peer that sends nothing does not notice.

use std::time::Instant;

use anyhow::Result;
use vfio_host::Host;

use super::channel::Channel;
use super::engine::{Engine, State};
use super::protocol::Role;

/// Connections that a client makes at a time. The server over there counts, and does not notice.
const BATCH: usize = 32;
/// Steps, by the names they have over there: begin, connect, disconnect.
const STEPS: [u8; 3] = [0, 12, 14];

/// Runs all rounds; returns a summary.
pub(super) fn run<H: Host>(engine: &mut Engine<'_, '_, '_, H>) -> Result<String> {
    let all = engine.args.count;
    let mut channel = None;
    let server = engine.args.server()?;
    if server.is_none() {
        engine.listen()?;
    }
    let timeout = engine.args.timeout();
    if let Some(port) = engine.args.tcp_port {
        channel = Some(match &engine.args.tcp {
            Some(host) => Channel::call(host, port, timeout)?,
            None => Channel::accept(engine.nic, port, engine.args.wait(), timeout)?,
        });
    }
    let rounds = if channel.is_some() { vec![1, all, all] } else { vec![all] };
    let role = if server.is_some() { Role::Client } else { Role::Server };
    let start = Instant::now();
    for count in &rounds {
        (engine.ups, engine.overs) = (0, 0);
        step(engine, channel.as_mut(), role, STEPS[0])?;
        if let Some(server) = server {
            while engine.overs < *count {
                let batch = BATCH.min(engine.links.len()).min(count - engine.overs);
                let done = engine.overs + batch;
                (0..batch).try_for_each(|link| engine.connect(link, server))?;
                engine.until("the connections", |it| it.ups == done)?;
                (0..batch).try_for_each(|link| engine.disconnect(link))?;
                engine.until("the ends of the connections", |it| it.overs == done)?;
                (0..batch).try_for_each(|link| engine.renew(link))?;
            }
            step(engine, channel.as_mut(), role, STEPS[1])?;
        } else {
            serve(engine, *count, |it| it.ups == *count)?;
            step(engine, channel.as_mut(), role, STEPS[1])?;
            serve(engine, *count, |it| it.overs == *count)?;
        }
        step(engine, channel.as_mut(), role, STEPS[2])?;
    }
    let made: usize = rounds.iter().sum();
    Ok(format!("{made} made and ended in {:.3} s", start.elapsed().as_secs_f64()))
}

/// Accepts connections until something holds; Endpoints of those that have ended serve again.
fn serve<'e, 's, 'p, H: Host>(
    engine: &mut Engine<'e, 's, 'p, H>,
    count: usize,
    holds: impl Fn(&Engine<'e, 's, 'p, H>) -> bool,
) -> Result<()> {
    while !holds(engine) {
        let seen = engine.overs;
        let what = format!("the next of {count} connections, or its end");
        engine.serve_until(&what, |it| it.overs > seen || holds(it))?;
        for link in 0..engine.links.len() {
            if engine.links[link].state == State::Over {
                engine.renew(link)?;
            }
        }
    }
    Ok(())
}

/// Keeps step with the peer.
fn step<H: Host>(
    engine: &mut Engine<'_, '_, '_, H>,
    channel: Option<&mut Channel>,
    role: Role,
    step: u8,
) -> Result<()> {
    let Some(channel) = channel else {
        return Ok(());
    };
    if role == Role::Client {
        channel.send(&[step])?;
        return channel.wait_for(engine.nic, &[step]);
    }
    channel.wait_for(engine.nic, &[step])?;
    channel.send(&[step])
}
