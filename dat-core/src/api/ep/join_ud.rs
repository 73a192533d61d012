//! Multicast groups of Endpoints for datagrams. No call of DAT: what `rdma_join_multicast(3)` and
//! `rdma_leave_multicast(3)` are for programs over verbs.

use core::net::IpAddr;
use core::task::Poll;

use crate::engine::Ia;
use crate::objects::Objects;
use crate::objects::ep::EpControl;
use crate::objects::table::Kind as _;
use crate::provider::{Destination, Provider, Qp, Service};
use crate::types::dat_return::{DatSubtype, DatType, Error};
use crate::types::handle::Ep;
use crate::types::time::Instant;

impl<P: Provider> Ia<'_, P> {
    /// Makes an Endpoint for datagrams a member of a multicast group, and returns the address to
    /// send to the group by. Pending while the subnet's manager is asked: ask again after
    /// [`Ia::advance`].
    ///
    /// A group that nobody has joined is made, with the Q_Key of the Endpoint; all members have the
    /// same. Groups are those of Linux `rdma_join_multicast(3)` in the UDP port space, whose Q_Key is
    /// 0x1234567. The device decides whether the sender gets its own datagrams. After a change of
    /// the subnet's manager the Endpoint is a member again by itself; the address may be another.
    ///
    /// `MODEL_NOT_SUPPORTED` for an Endpoint of connections or on Ethernet, `INVALID_PARAMETER` for
    /// an address that is no multicast address.
    pub fn ep_ud_join(
        &mut self,
        now: Instant,
        ep: Ep,
        group: IpAddr,
    ) -> Poll<Result<Destination, Error>> {
        let (qp, qkey) = member(&self.objects, ep, group)?;
        self.hca.group_join(qp, qkey, group, now).map_err(Error::from)
    }

    /// Takes an Endpoint for datagrams out of a group. No effect if it is in none of that address;
    /// [`Ia::ep_free`] takes it out of all. Errors as for [`Ia::ep_ud_join`].
    pub fn ep_ud_leave(&mut self, ep: Ep, group: IpAddr) -> Result<(), Error> {
        let (qp, _) = member(&self.objects, ep, group)?;
        self.hca.group_leave(qp, Some(group)).map_err(Error::from)
    }
}

/// The queue pair of a member of a group, and its Q_Key.
fn member(objects: &Objects<'_>, ep: Ep, group: IpAddr) -> Result<(Qp, u32), Error> {
    objects.of_datagrams(ep)?;
    if !group.is_multicast() {
        return Err(Error::new(DatType::InvalidParameter, DatSubtype::InvalidArg3));
    }
    let control = objects.eps.live(ep)?;
    match (control.service, control.qp) {
        (Service::Datagram { qkey }, Some(qp)) => Ok((qp, qkey)),
        _ => Err(EpControl::STALE.into()),
    }
}
