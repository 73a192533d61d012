//! Cases of dat_rmr_*(3).

mod bind;
mod create;
mod free;
mod own;
mod replays;

pub use bind::*;
pub use create::*;
pub use free::*;
pub use own::*;
pub use replays::*;

/// The cases.
#[macro_export]
macro_rules! rmr_cases {
    ($with:ident) => {
        $with! { rmr:
            fault_02_windows_exist
            a_new_rmr_is_bound_to_nothing
            zones_of_others_are_refused
            as_many_windows_as_there_is_room_for
            a_zone_is_held_by_its_rmrs
            a_bind_opens_its_range
            a_bind_opens_not_a_byte_more
            a_bind_is_a_request
            a_bind_completes_where_requests_do
            fault_32_binds_follow_the_states_of_requests
            fault_31_flags_of_a_bind
            binds_take_slots
            each_bind_has_another_context
            a_bind_comes_before_what_is_posted_behind_it
            remote_privileges_count_and_no_others
            privileges_need_their_local_ones
            a_range_outside_the_region_is_refused
            zones_that_differ_are_refused
            a_stale_rmr_is_refused
            binds_need_a_dispatcher_that_takes_them
            unbinding_is_a_bind_of_no_bytes
            unbinding_nothing_is_a_request_too
            a_rebind_moves_the_window
            a_rebind_moves_the_hold_on_the_region
            a_window_over_every_kind_of_region
            a_zero_based_window
            query_tells_what_is_bound
            fault_33_bound_rmrs_can_be_freed
            free_of_a_bound_rmr_lets_its_region_go
            free_closes_a_window_whose_bind_is_undequeued
            free_closes_a_window_whose_bind_was_suppressed
            free_closes_a_window_whose_bind_is_in_flight
            free_closes_a_window_whose_bind_cannot_complete
            free_breaks_each_connection_whose_bind_cannot_complete
            free_of_a_window_whose_bind_was_flushed
            free_of_a_window_whose_bind_failed
            free_closes_a_window_whose_endpoint_is_gone
            free_releases_the_zone_at_once
            completions_of_freed_windows_are_their_own
            a_window_serves_every_endpoint_of_its_zone
            a_window_is_closed_to_other_zones
            a_window_outlives_the_connection
            an_own_rmr_serves_one_endpoint
            an_own_rmr_moves_when_it_is_unbound
            an_own_rmr_is_bound_anew
            an_own_rmr_ends_with_its_endpoint
            an_own_rmr_keeps_the_rules_of_binds
            a_peer_closes_an_own_rmr_with_a_send
            an_own_rmr_whose_unbind_was_flushed_stays
            a_bind_that_fails_after_it_was_queued_breaks_the_connection
            stale_contexts_open_nothing
            low_bytes_are_spread
        }
    };
}
