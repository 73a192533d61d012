//! Cases of dat_srq_*(3), dat_ep_create_with_srq(3), and of Endpoints on a Shared Receive Queue.

mod flow;
mod made;

pub use flow::*;
pub use made::*;

use dat_core::{EvdFlags, MemPriv, Srq, SrqAttr};

use super::{Adapters, End, Mem, Side};

/// Attributes of a queue of so many receives.
pub(super) fn attr(max_recv_dtos: u16) -> SrqAttr {
    SrqAttr { max_recv_dtos, max_recv_iov: 2, low_watermark: 0 }
}

/// A Shared Receive Queue in a zone of its own, with memory for its receives.
#[track_caller]
pub(super) fn queue(ias: &mut Adapters<'_, impl Side>, side: usize, receives: u16) -> (Srq, Mem) {
    let pz = ias[side].pz_create().unwrap();
    let srq = ias[side].srq_create(pz, &attr(receives)).unwrap();
    let mem = ias.mem(side, pz, 1024, MemPriv::ALL);
    (srq, mem)
}

/// An Endpoint that takes its receives from `srq`, with Event Dispatchers and a zone of its own.
#[track_caller]
pub(super) fn member(ias: &mut Adapters<'_, impl Side>, side: usize, srq: Srq) -> End {
    let ia = &mut ias[side].ia;
    let pz = ia.pz_create().unwrap();
    let dto = EvdFlags::DTO | EvdFlags::RMR_BIND;
    let [recv, request, conn] =
        [dto, dto, EvdFlags::CONNECTION].map(|flags| ia.evd_create(16, flags).unwrap());
    let (given, attr) = ((Some(recv), Some(request), Some(conn)), ia.ep_attr_default());
    let ep = ia.ep_create_with_srq(Some(pz), given.0, given.1, given.2, srq, &attr);
    End { side, pz, recv, request, conn, ep: ep.unwrap() }
}

/// The cases.
#[macro_export]
macro_rules! srq_cases {
    ($with:ident) => {
        $with! { srq:
            a_new_queue_is_empty
            sizes_that_cannot_be_are_refused
            there_are_as_many_as_the_adapter_says
            fault_34_a_queue_holds_its_zone
            freed_handles_are_invalid
            a_queue_in_use_is_not_freed
            receives_are_checked
            a_full_queue_takes_no_more
            resize_loses_nothing
            resize_stays_above_the_low_watermark
            an_endpoint_knows_its_queue
            an_endpoint_with_a_queue_takes_no_receives
            an_endpoint_with_a_queue_needs_a_receive_evd
            the_poster_can_be_taken_out
            fault_22_events_name_the_endpoint
            fault_16_several_endpoints_share_a_queue
            messages_of_a_connection_stay_in_order
            slots_are_used_again
            an_empty_queue_makes_messages_wait
            query_counts_available_and_outstanding
            the_low_watermark_tells_once
            the_low_watermark_has_bounds
            as_many_receives_as_the_low_watermark_are_enough
            a_queue_made_with_a_low_watermark_tells
            a_disconnect_flushes_nothing_of_the_queue
            an_endpoint_says_once_that_it_takes_nothing_more
            a_reset_gives_back_what_was_taken
            a_failed_receive_breaks_one_connection
            the_zones_may_differ
            watermarks_count_what_an_endpoint_took
        }
    };
}
