//! Cases of dat_ep_*(3): what an Endpoint is made of, and each transition of its state table.

mod asking;
mod create;
mod drain;
mod generations;
mod linked;
mod modify;
mod order;
mod posts;
mod status;
mod unconnected;

pub use asking::*;
pub use create::*;
pub use drain::*;
pub use generations::*;
pub use linked::*;
pub use modify::*;
pub use order::*;
pub use posts::*;
pub use status::*;
pub use unconnected::*;

use dat_core::{Cr, DtoStatus, Evd, EvdFlags, Event, Rsp};

use super::{Adapters, End, Side};

/// The next completion is that of `cookie`, flushed.
#[track_caller]
pub(super) fn flushed(ias: &mut Adapters<'_, impl Side>, end: &End, evd: Evd, cookie: u64) {
    let dto = ias.dto(end.side, evd);
    assert_eq!(
        (dto.ep, dto.cookie, dto.status, dto.len),
        (end.ep, cookie, DtoStatus::ErrFlushed, 0)
    );
}

/// A Reserved Service Point for `end`, its Event Dispatcher and its qualifier.
#[track_caller]
pub(super) fn reserve(ias: &mut Adapters<'_, impl Side>, end: &End) -> (Rsp, Evd, u64) {
    let evd = ias[end.side].evd_create(8, EvdFlags::CR).unwrap();
    let qualifier = ias.free_qualifier();
    let rsp = ias[end.side].rsp_create(qualifier, Some(end.ep), evd);
    (rsp.unwrap(), evd, qualifier)
}

/// The next request, at a service point of any kind.
#[track_caller]
pub(super) fn next_request(ias: &mut Adapters<'_, impl Side>, side: usize, evd: Evd) -> Cr {
    match ias.event(side, evd) {
        Event::ConnectionRequest { cr, .. }
        | Event::ReservedRequest { cr, .. }
        | Event::CommonRequest { cr, .. } => cr,
        other => panic!("expected a request, got {other:?}"),
    }
}

/// The cases.
#[macro_export]
macro_rules! ep_cases {
    ($with:ident) => {
        $with! { ep:
            a_new_endpoint_is_unconnected
            fault_25_attributes_are_optional
            wrong_handles_are_refused
            attributes_that_cannot_be_are_refused
            without_zone_or_evds_it_is_unconfigured
            modify_configures_it
            without_a_connect_evd_it_is_not_ready
            a_sender_needs_no_receives
            an_endpoint_holds_its_zone_and_evds
            a_freed_endpoint_is_an_invalid_handle
            there_are_as_many_as_the_adapter_says
            fault_01_idle_means_that_nothing_is_outstanding
            recv_query_counts_what_is_posted
            attributes_change_before_the_connection
            event_dispatchers_change_before_the_connection
            receives_stay_posted
            receives_of_another_zone_fail
            the_zone_changes_only_in_quiescence
            receive_flags_change_before_receives
            receives_need_their_room
            nothing_changes_with_a_connection
            a_refused_change_changes_nothing
            requests_are_refused_without_a_connection
            receives_wait_for_the_connection
            an_unconnected_endpoint_cannot_be_disconnected
            an_unconnected_endpoint_can_be_freed
            a_reserved_service_point_reserves
            a_reserved_endpoint_refuses_everything_else
            a_request_finds_the_reserved_endpoint
            a_reserved_endpoint_is_accepted
            a_pending_request_takes_no_other_endpoint
            a_rejected_endpoint_is_unconnected
            a_freed_rsp_leaves_its_request
            a_pending_endpoint_refuses_everything_else
            fault_37_a_provided_endpoint_can_be_furnished_and_used
            a_rejected_tentative_endpoint_is_gone
            a_tentative_endpoint_refuses_everything_else
            fault_36_an_rsp_makes_its_endpoint
            an_rsp_takes_its_own_endpoint_with_it
            a_refused_post_changes_nothing
            connect_starts_an_attempt
            connect_refuses_what_it_cannot_do
            connect_refuses_bad_addresses
            connect_refuses_bad_numbers
            fault_15_private_data_has_the_reported_length
            fault_29_too_much_private_data_is_refused
            an_accepted_attempt_is_established
            a_rejected_attempt_is_over
            fault_41_a_rejection_needs_no_private_data
            nobody_listening_is_no_peers_rejection
            a_full_backlog_turns_requests_away
            an_unknown_host_is_unreachable
            the_consumers_timeout_ends_an_attempt
            fault_28_a_timeout_spares_a_connection
            a_disconnect_ends_an_attempt
            a_late_answer_finds_nobody
            fault_12_free_ends_an_attempt_at_once
            an_asking_endpoint_refuses_everything_else
            an_accepted_request_waits_for_the_peer
            a_peer_that_goes_fails_the_accept
            a_disconnect_ends_an_accept
            fault_09_flushed_receives_are_dto_events
            fault_10_a_failed_attempt_flushes_receives
            fault_26_an_endpoint_keeps_its_own_copy_of_the_peer
            a_connection_carries_everything
            a_failed_request_breaks_the_connection
            a_failed_receive_breaks_the_connection
            a_transport_failure_breaks_the_connection
            the_peers_disconnect_ends_the_connection
            an_abrupt_disconnect_flushes_first
            fault_19_a_graceful_disconnect_waits_for_requests
            a_graceful_disconnect_of_an_idle_connection_is_immediate
            fault_18_a_second_graceful_disconnect_does_nothing
            an_abrupt_disconnect_ends_the_drain
            a_draining_endpoint_takes_no_requests
            a_failure_while_draining_ends_in_disconnected
            crossing_disconnects_end_in_one_event_each
            a_connected_endpoint_refuses_another_connection
            free_ends_a_connection
            a_disconnected_endpoint_may_be_disconnected_again
            fault_11_markers_come_back_last
            reset_makes_it_usable_again
            completions_of_an_earlier_connection_are_dropped
            a_disconnected_endpoint_is_not_connected_again
            closing_the_adapter_ends_connections
            fault_20_a_flush_is_no_loop
            fault_13_the_soft_watermark_tells_once
            the_hard_watermark_breaks_the_connection
            watermarks_are_for_any_state
            fault_08_a_receive_is_checked_at_the_post
            a_read_may_end_in_an_rmr
            a_read_into_an_rmr_is_checked
            a_read_into_an_rmr_needs_the_right_to_write
            a_send_that_invalidates_nothing_is_a_send
            a_send_that_invalidates_an_unknown_context_breaks
            a_break_right_after_a_reset_is_reported
            a_break_right_after_an_accept_is_reported
            the_cause_of_a_break_is_described_in_words
            idle_flags_do_not_wait_for_a_dequeue
            request_idle_counts_suppressed_requests
            request_idle_counts_requests_of_every_kind
            flushed_dtos_are_not_outstanding
            recv_query_counts_receives_that_have_not_completed
            watermarks_count_receives_that_have_not_completed
            as_many_receives_as_a_watermark_do_not_exceed_it
            status_and_query_report_each_state
            query_reports_zone_evds_and_attributes_in_each_state
            a_graceful_disconnect_completes_every_request
            a_graceful_disconnect_completes_the_last_bind
            a_graceful_disconnect_completes_suppressed_requests
            a_graceful_disconnect_needs_no_dequeue
            a_graceful_disconnect_does_not_wait_for_events_of_others
            graceful_disconnects_on_a_shared_evd_all_end
            a_graceful_disconnect_without_progress_becomes_abrupt
            either_side_may_disconnect_either_way
            a_disconnected_event_does_not_wait_for_other_endpoints
            events_of_successive_connections_come_in_order
            a_full_evd_loses_no_terminal_event
            neither_free_nor_reset_loses_a_terminal_event
            connection_events_outlive_their_endpoints
            after_a_failed_completion_none_of_its_direction_succeeds
            markers_make_a_reset_lossless
            completions_dropped_by_a_reset_take_no_room
            reset_is_refused_while_a_connection_comes_or_goes
            an_attempt_ends_at_its_timeout
            a_duplicate_attempt_ends_at_its_timeout
            attributes_change_in_the_states_of_the_table
        }
    };
}
