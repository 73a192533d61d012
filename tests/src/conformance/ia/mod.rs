//! Cases of dat_ia_*(3) and of the calls that serve objects of every kind.

mod attributes;
mod close;
mod objects;
mod open;
mod open_query;
mod words;

pub use attributes::*;
pub use close::*;
pub use objects::*;
pub use open::*;
pub use open_query::*;
pub use words::*;

/// The cases.
#[macro_export]
macro_rules! ia_cases {
    ($with:ident) => {
        $with! { ia:
            open_makes_an_async_evd
            the_async_evd_receives_errors
            an_async_evd_of_no_length_is_refused
            an_async_evd_too_long_is_refused
            an_adapter_without_an_async_evd_works
            an_evd_of_the_consumers_takes_async_events
            the_consumers_async_evd_stays_the_consumers
            an_evd_for_other_streams_is_no_async_evd
            the_async_evd_cannot_be_freed
            handles_of_one_adapter_are_unknown_to_another
            graceful_close_of_an_empty_adapter
            graceful_close_with_a_zone
            graceful_close_with_an_evd
            graceful_close_with_an_endpoint
            graceful_close_with_memory
            graceful_close_with_a_service_point
            abrupt_close_frees_everything
            abrupt_close_disconnects_the_peer
            abrupt_close_aborts_connecting
            a_closed_adapter_makes_nothing
            closing_twice_is_refused
            memory_of_a_closed_adapter_is_out_of_reach
            a_poster_that_is_out_outlives_its_adapter_harmlessly
            an_adapter_opened_again_connects_again
            adapter_vendor_and_provider_have_names
            versions_are_reported
            the_address_is_the_one_that_peers_use
            a_second_query_says_the_same
            max_eps_is_where_endpoints_end
            max_evds_is_where_event_dispatchers_end
            max_pzs_is_where_zones_end
            max_lmrs_is_where_registrations_end
            max_rmrs_is_where_windows_end
            max_evd_qlen_is_the_longest_event_dispatcher
            max_software_evd_qlen_is_the_longest_without_completions
            max_dto_per_ep_is_the_most_of_each_direction
            an_endpoint_takes_as_many_receives_as_it_was_made_for
            max_iov_segments_are_the_most_of_each_operation
            max_rdma_reads_are_the_most_of_an_endpoint
            guaranteed_reads_are_enough_for_all_endpoints
            max_message_size_is_the_most_of_an_endpoint
            max_rdma_size_is_the_most_of_an_endpoint
            max_lmr_block_size_is_the_most_of_a_registration
            the_highest_addresses_include_the_consumers_memory
            extensions_are_announced_with_their_version
            transport_and_vendor_attributes_are_lists
            virtual_memory_is_supported
            segment_lists_are_the_consumers_when_a_post_returns
            only_the_announced_quality_of_service_is_granted
            announced_completion_flags_are_taken
            private_data_of_the_announced_size_is_taken
            endpoints_are_made_if_asked
            zones_are_objects_of_their_own
            the_best_alignment_divides_256
            streams_merge_as_announced
            high_availability_is_out
            no_synchronisation_is_needed
            every_dto_comes_back
            a_read_needs_no_write_privilege_for_peers
            an_lmr_exposes_what_its_privileges_say
            windows_of_a_zone_are_announced
            thread_and_signal_safety_are_reported
            fault_14_every_attribute_is_set
            fault_17_connections_need_no_lid
            a_context_is_nothing_at_first
            a_context_comes_back_as_it_was_set
            a_context_is_replaced_by_the_next
            a_context_outlives_changes_of_state
            a_context_goes_with_its_object
            the_context_of_an_adapter_goes_with_it
            a_context_of_a_freed_object_is_refused
            a_handle_tells_its_type
            handle_types_have_the_numbers_of_the_header
            the_type_of_a_freed_object_is_refused
            fault_43_a_word_that_is_no_handle_is_refused
            every_word_has_its_strings
            no_two_words_have_the_same_strings
            success_has_its_string
            a_value_that_is_no_return_code_has_no_strings
            return_codes_have_the_numbers_of_the_header
            subtypes_have_the_numbers_of_the_header
            refusals_carry_the_error_class
            a_query_tells_what_the_adapter_tells
            a_query_is_not_on_the_network
            a_query_that_is_closed_makes_way
            a_query_is_opened_by_name
        }
    };
}
