//! Cases of dat_psp_*(3), dat_rsp_*(3), dat_csp_*, dat_cr_*(3), and of the ways to ask for a
//! connection.

mod ask;
mod points;
mod requests;

pub use ask::*;
pub use points::*;
pub use requests::*;

/// The cases.
#[macro_export]
macro_rules! cm_cases {
    ($with:ident) => {
        $with! { cm:
            psp_query_tells_what_it_is
            psp_create_checks_its_arguments
            a_qualifier_is_used_once
            create_any_finds_a_free_qualifier
            service_points_hold_their_evds
            a_psp_takes_any_number_of_requests
            a_freed_psp_leaves_its_requests
            fault_38_a_freed_psp_is_gone
            rsp_query_tells_what_it_is
            rsp_create_checks_its_arguments
            an_rsp_takes_one_request
            csp_query_tells_what_it_is
            csp_create_checks_its_arguments
            fault_40_common_connect_reaches_a_csp
            common_connect_checks_its_arguments
            cr_query_tells_who_asks
            an_accepted_request_is_used_up
            accept_needs_an_endpoint
            fault_27_a_refused_accept_changes_nothing
            accept_negotiates_the_number_of_reads
            a_rejected_request_is_used_up
            reject_refuses_too_much_private_data
            a_request_outlives_its_client
            handoff_presents_the_request_elsewhere
            handoff_needs_another_listener
            handoff_frees_the_reserved_endpoint
            handoff_makes_and_takes_endpoints
            handoff_to_a_full_service_point_is_refused
            dup_connect_leads_to_the_same_service_point
            dup_connect_follows_a_connection
            dup_connect_checks_its_arguments
            fault_39_dup_connect_of_an_accepted_endpoint_is_refused
        }
    };
}
