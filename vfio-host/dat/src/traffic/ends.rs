//! Where a connection posts its requests and takes its events: at the adapter, or by halves of it
//! that another thread has.

use dat_core::{
    CompletionFlags, DatReturn, Ep, EpPoster, Evd, EvdReaper, Event, LmrTriplet, MemPriv, Rmr,
    RmrTriplet,
};
use hca_mlx5::Mlx5;
use vfio_host::{Host, Nic};

use super::super::failure::Failure;
use super::adapter::dat;
use super::conn::Conn;

/// The calls of DAT that a running test makes, for its Endpoint and its Event Dispatcher.
pub(super) trait Ends {
    fn post_recv(&mut self, ep: Ep, to: &[LmrTriplet], cookie: u64) -> Result<(), DatReturn>;
    fn post_send(
        &mut self,
        ep: Ep,
        from: &[LmrTriplet],
        cookie: u64,
        flags: CompletionFlags,
    ) -> Result<(), DatReturn>;
    fn post_rdma_write(
        &mut self,
        ep: Ep,
        from: &[LmrTriplet],
        cookie: u64,
        to: &RmrTriplet,
        flags: CompletionFlags,
    ) -> Result<(), DatReturn>;
    fn post_rdma_read(
        &mut self,
        ep: Ep,
        to: &[LmrTriplet],
        cookie: u64,
        from: &RmrTriplet,
        flags: CompletionFlags,
    ) -> Result<(), DatReturn>;
    fn rmr_bind(
        &mut self,
        rmr: Rmr,
        range: &LmrTriplet,
        rights: MemPriv,
        ep: Ep,
        cookie: u64,
    ) -> Result<u32, DatReturn>;
    fn ring(&mut self, ep: Ep) -> Result<(), DatReturn>;
    fn dequeue(&mut self, evd: Evd) -> Result<Event, DatReturn>;
}

/// No flags.
const PLAIN: CompletionFlags = CompletionFlags::empty();

impl<H: Host> Ends for Nic<'_, '_, H> {
    fn post_recv(&mut self, ep: Ep, to: &[LmrTriplet], cookie: u64) -> Result<(), DatReturn> {
        self.ep_post_recv(ep, to, cookie, PLAIN)
    }

    fn post_send(
        &mut self,
        ep: Ep,
        from: &[LmrTriplet],
        cookie: u64,
        flags: CompletionFlags,
    ) -> Result<(), DatReturn> {
        self.ep_post_send(ep, from, cookie, flags)
    }

    fn post_rdma_write(
        &mut self,
        ep: Ep,
        from: &[LmrTriplet],
        cookie: u64,
        to: &RmrTriplet,
        flags: CompletionFlags,
    ) -> Result<(), DatReturn> {
        self.ep_post_rdma_write(ep, from, cookie, to, flags)
    }

    fn post_rdma_read(
        &mut self,
        ep: Ep,
        to: &[LmrTriplet],
        cookie: u64,
        from: &RmrTriplet,
        flags: CompletionFlags,
    ) -> Result<(), DatReturn> {
        self.ep_post_rdma_read(ep, to, cookie, from, flags)
    }

    fn rmr_bind(
        &mut self,
        rmr: Rmr,
        range: &LmrTriplet,
        rights: MemPriv,
        ep: Ep,
        cookie: u64,
    ) -> Result<u32, DatReturn> {
        (**self).rmr_bind(rmr, range, rights, ep, cookie, PLAIN)
    }

    fn ring(&mut self, ep: Ep) -> Result<(), DatReturn> {
        self.ep_ring(ep)
    }

    fn dequeue(&mut self, evd: Evd) -> Result<Event, DatReturn> {
        self.evd_dequeue(evd)
    }
}

/// The halves of one connection, whose handles say nothing here.
#[derive(Debug)]
pub(super) struct Halves<'s, 'p, H: Host> {
    poster: EpPoster<'s, Mlx5<'p, H>>,
    reaper: EvdReaper<'s, Mlx5<'p, H>>,
}

impl<'s, 'p, H: Host> Halves<'s, 'p, H> {
    /// Takes them out of the adapter.
    pub(super) fn take(nic: &mut Nic<'s, 'p, H>, conn: &Conn<'p, H>) -> Result<Self, Failure> {
        let poster = nic.ep_take_poster(conn.ep).map_err(|e| dat("ep_take_poster", e))?;
        match nic.evd_take_reaper(conn.evd) {
            Ok(reaper) => Ok(Self { poster, reaper }),
            Err(error) => {
                let _ = nic.ep_return_poster(poster);
                Err(dat("evd_take_reaper", error))
            }
        }
    }

    /// Puts them back.
    pub(super) fn give_back(self, nic: &mut Nic<'s, 'p, H>) {
        // They are of this adapter.
        let _ = nic.ep_return_poster(self.poster);
        let _ = nic.evd_return_reaper(self.reaper);
    }
}

impl<H: Host> Ends for Halves<'_, '_, H> {
    fn post_recv(&mut self, _: Ep, to: &[LmrTriplet], cookie: u64) -> Result<(), DatReturn> {
        self.poster.post_recv(to, cookie, PLAIN)
    }

    fn post_send(
        &mut self,
        _: Ep,
        from: &[LmrTriplet],
        cookie: u64,
        flags: CompletionFlags,
    ) -> Result<(), DatReturn> {
        self.poster.post_send(from, cookie, flags)
    }

    fn post_rdma_write(
        &mut self,
        _: Ep,
        from: &[LmrTriplet],
        cookie: u64,
        to: &RmrTriplet,
        flags: CompletionFlags,
    ) -> Result<(), DatReturn> {
        self.poster.post_rdma_write(from, cookie, to, flags)
    }

    fn post_rdma_read(
        &mut self,
        _: Ep,
        to: &[LmrTriplet],
        cookie: u64,
        from: &RmrTriplet,
        flags: CompletionFlags,
    ) -> Result<(), DatReturn> {
        self.poster.post_rdma_read(to, cookie, from, flags)
    }

    fn rmr_bind(
        &mut self,
        rmr: Rmr,
        range: &LmrTriplet,
        rights: MemPriv,
        _: Ep,
        cookie: u64,
    ) -> Result<u32, DatReturn> {
        self.poster.rmr_bind(rmr, range, rights, cookie, PLAIN)
    }

    fn ring(&mut self, _: Ep) -> Result<(), DatReturn> {
        self.poster.ring();
        Ok(())
    }

    fn dequeue(&mut self, _: Evd) -> Result<Event, DatReturn> {
        self.reaper.dequeue()
    }
}
