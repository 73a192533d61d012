//! The posts of 2.0, and what a receive is checked for.

use dat_core::{
    CompletionFlags, DatSubtype, DatType, DtoOperation, DtoStatus, EpState, Event, MemPriv,
    RmrTriplet,
};

use super::super::{A, Adapters, B, End, Mem, NONE, Side, refused};

/// More segments than there may be, and flags that nobody has, are refused at the post, with all
/// bits of the code.
pub fn fault_08_a_receive_is_checked_at_the_post(ias: &mut Adapters<'_, impl Side>) {
    let end = ias.end(A);
    let mem = ias.mem(A, end.pz, 64, MemPriv::ALL);
    let parameter = DatType::InvalidParameter;
    let posted = ias.a.ep_post_recv(end.ep, &[mem.seg(0, 1); 100], 1, NONE);
    refused(posted, parameter, DatSubtype::InvalidArg2);
    for flags in [
        CompletionFlags::from_bits_retain(0x40),
        CompletionFlags::SUPPRESS,
        CompletionFlags::UNSIGNALLED,
        CompletionFlags::BARRIER_FENCE,
    ] {
        let posted = ias.a.ep_post_recv(end.ep, &[mem.seg(0, 1)], 1, flags);
        refused(posted, parameter, DatSubtype::InvalidArg5);
    }
    assert!(ias.a.ep_get_status(end.ep).unwrap().recv_idle);
}

/// Two connected Endpoints, an RMR of `A` over 16..48 of memory of 64 bytes, and memory of `B`.
fn with_window(ias: &mut Adapters<'_, impl Side>, rights: MemPriv) -> ([End; 2], [Mem; 2], u32) {
    let ends = ias.connected();
    let mems = [A, B].map(|side| ias.mem(side, ends[side].pz, 64, MemPriv::ALL));
    let rmr = ias.a.rmr_create(ends[A].pz).unwrap();
    let range = mems[A].seg(16, 32);
    let context = ias.a.rmr_bind(rmr, &range, rights, ends[A].ep, 99, NONE);
    let event = ias.event(A, ends[A].request);
    assert!(matches!(event, Event::RmrBind { cookie: 99, .. }));
    (ends, mems, context.unwrap())
}

/// A read into what an own RMR opens.
pub fn a_read_may_end_in_an_rmr(ias: &mut Adapters<'_, impl Side>) {
    let ([from, _], [sink, source], context) = with_window(ias, MemPriv::REMOTE_WRITE);
    ias.fill(&source, 0, b"from afar");
    let local = RmrTriplet { addr: sink.seg(20, 0).addr, len: 9, context };
    ias.a.ep_post_rdma_read_to_rmr(from.ep, &local, 5, &source.far(0, 9), NONE).unwrap();
    assert_eq!(ias.done(&from, DtoOperation::RdmaRead, 5), 9);
    assert_eq!(ias.bytes(&sink, 20, 9), b"from afar");
}

/// It stays inside the RMR, which must be open and grant writing.
pub fn a_read_into_an_rmr_is_checked(ias: &mut Adapters<'_, impl Side>) {
    let ([from, _], [sink, source], context) = with_window(ias, MemPriv::REMOTE_WRITE);
    let inside = RmrTriplet { addr: sink.seg(16, 0).addr, len: 8, context };
    let far = source.far(0, 8);
    for (addr, len) in [(8, 8), (44, 8), (16, 33)] {
        let local = RmrTriplet { addr: sink.seg(addr, 0).addr, len, context };
        let far = source.far(0, len as usize);
        let posted = ias.a.ep_post_rdma_read_to_rmr(from.ep, &local, 5, &far, NONE);
        refused(posted, DatType::InvalidParameter, DatSubtype::InvalidArg2);
    }
    let local = RmrTriplet { context: context ^ 0xff, ..inside };
    let posted = ias.a.ep_post_rdma_read_to_rmr(from.ep, &local, 5, &far, NONE);
    let privileges = DatType::PrivilegesViolation;
    refused(posted, privileges, DatSubtype::PrivilegesRdmaRead);
    assert!(ias.a.ep_get_status(from.ep).unwrap().request_idle);
}

/// An RMR that only lets peers read is nothing to read into.
pub fn a_read_into_an_rmr_needs_the_right_to_write(ias: &mut Adapters<'_, impl Side>) {
    let ([from, _], [sink, source], context) = with_window(ias, MemPriv::REMOTE_READ);
    let local = RmrTriplet { addr: sink.seg(16, 0).addr, len: 8, context };
    let far = source.far(0, 8);
    let posted = ias.a.ep_post_rdma_read_to_rmr(from.ep, &local, 5, &far, NONE);
    let privileges = DatType::PrivilegesViolation;
    refused(posted, privileges, DatSubtype::PrivilegesRdmaRead);
}

/// Without a context it is a send.
pub fn a_send_that_invalidates_nothing_is_a_send(ias: &mut Adapters<'_, impl Side>) {
    let [from, to] = ias.connected();
    ias.b.ep_post_recv(to.ep, &[], 1, NONE).unwrap();
    ias.a.ep_post_send_with_invalidate(from.ep, &[], 2, NONE, None).unwrap();
    ias.done(&from, DtoOperation::Send, 2);
    ias.done(&to, DtoOperation::Receive, 1);
}

/// The peer cannot invalidate a context that it does not have: the connection breaks at both sides.
pub fn a_send_that_invalidates_an_unknown_context_breaks(ias: &mut Adapters<'_, impl Side>) {
    let [from, to] = ias.connected();
    ias.b.ep_post_recv(to.ep, &[], 1, NONE).unwrap();
    let unknown = Some(0xffff_ff00);
    ias.a.ep_post_send_with_invalidate(from.ep, &[], 2, NONE, unknown).unwrap();
    let dto = ias.dto(B, to.recv);
    assert!(dto.cookie == 1 && dto.status != DtoStatus::Success);
    ias.broken(B, to.conn, to.ep);
    let event = ias.event(A, from.conn);
    assert!(matches!(event, Event::Broken(_) | Event::Disconnected(_)), "{event:?}");
    assert_eq!(ias.state(&from), EpState::Disconnected);
}
