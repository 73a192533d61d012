//! Cases of dat_lmr_*(3), and of what kDAPL adds to them.

mod addresses;
mod create;
mod embedder;
mod free;
mod local;
mod queued;
mod sync;

pub use addresses::*;
pub use create::*;
pub use embedder::*;
pub use free::*;
pub use local::*;
pub use queued::*;
pub use sync::*;

/// The cases.
#[macro_export]
macro_rules! lmr_cases {
    ($with:ident) => {
        $with! { lmr:
            a_region_is_what_was_asked_for
            contexts_work_on_both_sides
            no_rmr_context_without_a_remote_privilege
            fault_05_length_of_zero_and_write_only_privileges
            privileges_hold_for_peers
            unknown_privileges_are_refused
            memory_of_nobody_is_refused
            handles_of_others_are_refused
            as_many_as_there_is_room_for
            two_regions_over_the_same_memory
            fault_03_region_over_a_region
            a_region_over_a_region_outlives_it
            a_region_over_a_region_takes_no_other
            shared_memory_by_its_whole_name
            memory_that_is_not_shared_is_refused
            fault_04_zero_based_addresses
            zero_based_addresses_end_with_the_region
            zero_based_region_that_begins_within_a_page
            zero_based_memory_serves_every_operation
            free_is_refused_while_an_rmr_is_bound
            a_freed_region_is_closed_to_local_posts
            a_freed_region_is_closed_to_peers
            a_freed_handle_is_stale
            a_zone_is_held_by_its_regions
            free_leaves_the_memory_as_it_is
            keys_of_one_slot_differ
            fault_30_segments_are_checked_when_posted
            fault_08_too_many_segments_are_refused
            a_segment_of_another_zone_is_refused
            a_segment_without_the_privilege_is_refused
            local_read_is_asked_for_what_is_sent
            an_empty_segment_names_nothing
            no_segments_are_a_message_of_no_bytes
            segments_fill_in_order
            lengths_of_both_ends_are_compared
            sync_takes_segments_of_any_zone
            sync_refuses_what_is_outside
            sync_refuses_unknown_contexts
            sync_makes_both_directions_visible
            each_sync_call_serves_its_own_direction
            pages_by_device_address
            pages_out_of_order_are_one_region
            pages_have_to_be_whole
            the_reserved_region_serves_local_buffers
            the_reserved_region_is_not_for_others
            hints_of_length_and_alignment
            an_allocated_region_opens_nothing
            a_registration_opens_and_an_invalidation_closes
            a_registration_is_there_for_what_is_posted_behind_it
            a_registration_of_more_pages_than_allocated_is_refused
            one_registration_at_a_time
            states_of_an_allocated_region
            edits_are_refused_and_flushed_as_other_requests
            edits_keep_the_rules_of_zones_and_flags
            contexts_of_registrations_differ
        }
    };
}
