//! The passive side of a test: what `dat listen` does.

use dat_core::{DtoStatus, Event, MemPriv, PspFlag};

use super::{Conn, NONE, Peer, Trouble};
use crate::console::say;
use crate::hello::{Hello, Kind, Saying, Welcome, refusal};

/// The listener's rights for its peer.
fn rights(kind: Kind) -> MemPriv {
    match kind {
        Kind::Ping => MemPriv::empty(),
        Kind::Write => MemPriv::REMOTE_WRITE,
        Kind::Read => MemPriv::REMOTE_READ,
    }
}

impl Peer<'_> {
    /// Serves the number of tests in the options.
    pub(super) fn listen(&mut self) -> Result<(), Trouble> {
        let (ip, port) = (self.options.ip, self.options.port);
        let psp = self.ia.psp_create(port, self.evd, PspFlag::Consumer)?;
        say!("listening on {ip} port {port}");
        let mut served = 0;
        while served < self.options.serve {
            served += u32::from(self.serve()?);
        }
        Ok(self.ia.psp_free(psp)?)
    }

    /// Serves one test. Returns false if it was refused, or given up before it began.
    fn serve(&mut self) -> Result<bool, Trouble> {
        let cr = match self.next.take() {
            Some(cr) => cr,
            None => match self.event("a peer")? {
                Event::ConnectionRequest { cr, .. } => cr,
                other => return Err(Trouble::Unexpected("a peer", other)),
            },
        };
        let request = self.ia.cr_query(cr)?;
        let peer = request.remote;
        let conn = match Hello::read(request.private_data) {
            Ok(hello) if hello.mtu > self.mtu() => {
                Err("its packets are shorter than that: give a smaller --mtu")
            }
            Ok(hello) => {
                let offered = hello.offered().checked_mul(hello.stride());
                let made = self.conn(hello, offered.unwrap_or(u32::MAX), rights(hello.kind));
                made.map_err(|_| "there is no memory left for its buffers")
            }
            Err(objection) => Err(objection),
        };
        let mut conn = match conn {
            Ok(conn) => conn,
            Err(words) => {
                say!("{peer} refused: {words}");
                self.ia.cr_reject(self.now(), cr, &refusal(words))?;
                return Ok(false);
            }
        };
        self.offer(&conn);
        let welcome = conn.far.as_ref().map_or(Welcome::default(), |far| Welcome {
            addr: far.lmr.region.addr,
            len: far.lmr.region.len,
            context: far.lmr.rmr_context,
        });
        let welcome = welcome.bytes(&conn.hello);
        self.ia.cr_accept(self.now(), cr, Some(conn.ep), &welcome)?;
        self.early.clear();
        let begun = loop {
            match self.event("the connection")? {
                Event::Established(ep) if ep == conn.ep => break true,
                Event::AcceptCompletionError(ep) if ep == conn.ep => break false,
                Event::Dto(done) if done.status == DtoStatus::Success => {
                    let more = self.early.push_back(done);
                    more.map_err(|_| Trouble::Nonsense("number of early messages"))?;
                }
                Event::Dto(_) => {}
                Event::ConnectionRequest { cr, .. } => self.refuse(cr)?,
                other => return Err(Trouble::Unexpected("the connection", other)),
            }
        };
        if begun {
            conn.began = self.now();
            let Hello { kind, size, count, .. } = conn.hello;
            let verified = match kind {
                Kind::Ping => self.answer(&mut conn)?,
                Kind::Write | Kind::Read => self.verify(&mut conn)?,
            };
            say!("served {peer}: {}, {size} bytes, {verified} verified", kind.name());
            if verified != count && count != 0 {
                return Err(Trouble::Nonsense("end, before its count,"));
            }
        }
        self.free(conn)?;
        Ok(begun)
    }

    /// Fills the memory that the peer will read.
    fn offer(&self, conn: &Conn) {
        let Some(far) = conn.far.as_ref().filter(|_| conn.hello.kind == Kind::Read) else {
            return;
        };
        for number in 0..u64::from(conn.hello.offered()) {
            let (at, size) = (conn.far_at(number) as usize, conn.hello.size);
            crate::contents::fill(&far.buffer, at, size, conn.hello.seed, number);
        }
    }

    /// Serves a ping: verifies and answers each question.
    fn answer(&mut self, conn: &mut Conn) -> Result<u64, Trouble> {
        let mut number = 0;
        while let Some(done) = self.received(conn, "a question")? {
            if done.len != conn.hello.size {
                return Err(Trouble::Nonsense("question"));
            }
            conn.check(&conn.own, conn.recv_at(done.cookie), number, 2 * number)?;
            self.post_recv(conn, done.cookie)?;
            conn.fill(number, 2 * number + 1);
            let place = conn.own.local(conn.data_at(number), conn.hello.size);
            self.ia.ep_post_send(conn.ep, &place, number, NONE)?;
            number += 1;
            conn.complete = number == conn.hello.count;
        }
        Ok(number)
    }

    /// Serves writes and reads: verifies the operations that the peer reports, and answers.
    fn verify(&mut self, conn: &mut Conn) -> Result<u64, Trouble> {
        let Hello { kind, count, .. } = conn.hello;
        let most = if count == 0 { u64::MAX } else { count };
        let offered = u64::from(conn.hello.offered());
        let mut verified = 0;
        while let Some(message) = self.message(conn)? {
            let (Saying::Verify, to) = message else {
                return Err(Trouble::Nonsense("message"));
            };
            let sound = match kind {
                Kind::Ping => false,
                Kind::Write => to > verified && to - verified <= offered && to <= most,
                Kind::Read => verified == 0 && (to == count || count == 0 && to != 0),
            };
            if !sound {
                return Err(Trouble::Nonsense("count of operations"));
            }
            // The reader has verified what it read; here nothing may have changed.
            let pieces = if kind == Kind::Write { verified..to } else { 0..offered };
            for number in pieces {
                let Some(far) = &conn.far else { break };
                if let Err(wrong) = conn.check(far, conn.far_at(number), number, number) {
                    self.say(conn, Saying::Wrong, number)?;
                    return Err(wrong);
                }
            }
            verified = to;
            self.say(conn, Saying::Verified, to)?;
            conn.complete = count == 0 || verified == count;
        }
        Ok(verified)
    }
}
