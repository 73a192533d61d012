//! The active side of a test: what `dat ping` and `dat perf` do, without their statistics.

use core::net::IpAddr;

use dat_core::{CloseFlag, DtoOperation, Event, MemPriv, Qos, RmrTriplet};

use super::{Conn, NONE, Peer, Trouble};
use crate::console::say;
use crate::hello::{Hello, Kind, Saying, Welcome, refusal_words};

impl Peer<'_> {
    /// Runs the tests that the options name against `to`, a connection for each.
    pub(super) fn calls(&mut self, to: IpAddr) -> Result<(), Trouble> {
        for kind in Kind::ALL {
            if self.options.test.is_none_or(|test| test == kind) {
                self.call(to, kind)?;
            }
        }
        Ok(())
    }

    fn call(&mut self, to: IpAddr, kind: Kind) -> Result<(), Trouble> {
        let hello = Hello {
            kind,
            depth: if kind == Kind::Ping { 1 } else { self.options.depth },
            size: self.options.size,
            count: self.options.count,
            seed: self.host.entropy.next(),
            mtu: self.mtu(),
        };
        let mut conn = self.conn(hello, 0, MemPriv::empty())?;
        let start = self.now();
        let welcome = self.connect(to, &conn)?;
        let connected = self.now();
        match kind {
            Kind::Ping => self.ping(&conn)?,
            Kind::Write => self.write(&mut conn, &welcome)?,
            Kind::Read => self.read(&mut conn, &welcome)?,
        }
        say!(
            "{} with {to}: {} of {} bytes verified; connected in {} us, done in {} us",
            kind.name(),
            hello.count,
            hello.size,
            connected.since(start).as_micros(),
            self.now().since(connected).as_micros()
        );
        self.ia.ep_disconnect(self.now(), conn.ep, CloseFlag::Graceful)?;
        while self.step(&conn, "the end of the connection")?.is_some() {}
        self.free(conn)
    }

    /// Connects and returns the listener's answer.
    fn connect(&mut self, to: IpAddr, conn: &Conn) -> Result<Welcome, Trouble> {
        let now = self.now();
        let (left, port) = (self.end.since(now), self.options.port);
        let hello = conn.hello.bytes();
        self.ia.ep_connect(now, conn.ep, to, port, left, &hello, Qos::BestEffort)?;
        loop {
            match self.event("the connection")? {
                Event::Established(ep) if ep == conn.ep => break,
                // If the connection fails, posted receives are flushed first.
                Event::Dto(_) => {}
                Event::PeerRejected(ep) if ep == conn.ep => {
                    let words = self.ia.ep_private_data(ep).ok().and_then(refusal_words);
                    say!("{to} refused: {}", words.unwrap_or("without a word"));
                    return Err(Trouble::Refused);
                }
                other => return Err(Trouble::Unexpected("the connection", other)),
            }
        }
        let welcome = Welcome::read(self.ia.ep_private_data(conn.ep)?, &conn.hello);
        welcome.ok_or(Trouble::Nonsense("welcome"))
    }

    fn ping(&mut self, conn: &Conn) -> Result<(), Trouble> {
        for number in 0..conn.hello.count {
            conn.fill(number, 2 * number);
            let place = conn.own.local(conn.data_at(number), conn.hello.size);
            self.ia.ep_post_send(conn.ep, &place, number, NONE)?;
            let answer = self.received(conn, "an answer")?;
            let answer = answer.filter(|done| done.len == conn.hello.size);
            let answer = answer.ok_or(Trouble::Nonsense("answer"))?;
            conn.check(&conn.own, conn.recv_at(answer.cookie), number, 2 * number + 1)?;
            self.post_recv(conn, answer.cookie)?;
        }
        Ok(())
    }

    /// Runs batches of as many writes as may be in flight, each verified by the listener.
    fn write(&mut self, conn: &mut Conn, welcome: &Welcome) -> Result<(), Trouble> {
        let count = conn.hello.count;
        let mut done = 0;
        while done < count {
            let to = count.min(done + u64::from(conn.hello.depth));
            for number in done..to {
                conn.fill(number, number);
                let place = conn.own.local(conn.data_at(number), conn.hello.size);
                let far = far(conn, welcome, number);
                self.ia.ep_post_rdma_write(conn.ep, &place, number, &far, NONE)?;
            }
            self.finished(conn, to - done, DtoOperation::RdmaWrite)?;
            self.verified(conn, to)?;
            done = to;
        }
        Ok(())
    }

    /// Runs batches of reads, each verified here; reports all to the listener at the end.
    fn read(&mut self, conn: &mut Conn, welcome: &Welcome) -> Result<(), Trouble> {
        let (count, offered) = (conn.hello.count, u64::from(conn.hello.offered()));
        let mut done = 0;
        while done < count {
            let to = count.min(done + u64::from(conn.hello.depth));
            for number in done..to {
                let place = conn.own.local(conn.data_at(number), conn.hello.size);
                let far = far(conn, welcome, number);
                self.ia.ep_post_rdma_read(conn.ep, &place, number, &far, NONE)?;
            }
            self.finished(conn, to - done, DtoOperation::RdmaRead)?;
            for number in done..to {
                conn.check(&conn.own, conn.data_at(number), number, number % offered)?;
            }
            done = to;
        }
        self.verified(conn, count)
    }

    /// Waits for the completions of a batch.
    fn finished(&mut self, conn: &Conn, batch: u64, wanted: DtoOperation) -> Result<(), Trouble> {
        let mut left = batch;
        while left > 0 {
            match self.step(conn, "a completion")? {
                Some(done) if done.operation == wanted => left -= 1,
                // The completion of a message.
                Some(done) if done.operation == DtoOperation::Send => {}
                Some(_) | None => return Err(Trouble::Nonsense("behaviour in mid-test")),
            }
        }
        Ok(())
    }

    /// Reports that operations up to `to` are done, and waits until the listener has verified them.
    fn verified(&mut self, conn: &mut Conn, to: u64) -> Result<(), Trouble> {
        self.say(conn, Saying::Verify, to)?;
        match self.message(conn)? {
            Some((Saying::Verified, number)) if number == to => Ok(()),
            Some((Saying::Wrong, number)) => {
                Err(Trouble::Content("the listener finds: operation", number, 0))
            }
            Some(_) | None => Err(Trouble::Nonsense("verdict")),
        }
    }
}

/// Returns the remote segment of operation `number`.
fn far(conn: &Conn, welcome: &Welcome, number: u64) -> RmrTriplet {
    RmrTriplet {
        addr: welcome.addr.wrapping_add(conn.far_at(number).into()),
        len: conn.hello.size,
        context: welcome.context,
    }
}
