//! Cases of posting and of completions: dat_ep_post_*(3), and what their events say.

mod checks;
mod endings;
mod flags;
mod lists;
mod moves;
mod owned;

pub use checks::*;
pub use endings::*;
pub use flags::*;
pub use lists::*;
pub use moves::*;
pub use owned::*;

use dat_core::{CompletionFlags, DatReturn, LmrTriplet, MemPriv, RmrTriplet};

use super::{A, Adapters, B, End, Mem, NONE, Side};

/// Bytes of each side's memory in these cases.
const BYTES: usize = 8192;

/// Two connected Endpoints, and memory of each with all rights.
#[track_caller]
fn rig(ias: &mut Adapters<'_, impl Side>) -> ([End; 2], [Mem; 2]) {
    let ends = ias.connected();
    let mems = memory(ias, &ends);
    (ends, mems)
}

/// Memory of each Endpoint's zone with all rights.
#[track_caller]
fn memory(ias: &mut Adapters<'_, impl Side>, ends: &[End; 2]) -> [Mem; 2] {
    [A, B].map(|side| ias.mem(side, ends[side].pz, BYTES, MemPriv::ALL))
}

/// The four DTOs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dto {
    Send,
    Recv,
    Write,
    Read,
}

impl Dto {
    const ALL: [Self; 4] = [Self::Send, Self::Recv, Self::Write, Self::Read];
    const REQUESTS: [Self; 3] = [Self::Send, Self::Write, Self::Read];

    /// Posts it.
    fn post(
        self,
        ias: &mut Adapters<'_, impl Side>,
        end: &End,
        iov: &[LmrTriplet],
        cookie: u64,
        far: &RmrTriplet,
        flags: CompletionFlags,
    ) -> Result<(), DatReturn> {
        let ia = &mut ias[end.side].ia;
        match self {
            Self::Send => ia.ep_post_send(end.ep, iov, cookie, flags),
            Self::Recv => ia.ep_post_recv(end.ep, iov, cookie, flags),
            Self::Write => ia.ep_post_rdma_write(end.ep, iov, cookie, far, flags),
            Self::Read => ia.ep_post_rdma_read(end.ep, iov, cookie, far, flags),
        }
    }
}

/// Asserts that nothing is outstanding: a refused post took no slot.
#[track_caller]
fn idle(ias: &mut Adapters<'_, impl Side>, end: &End) {
    let status = ias[end.side].ep_get_status(end.ep).unwrap();
    assert!(status.recv_idle && status.request_idle, "{status:?}");
}

/// A message of 16 bytes crosses from A to B: the connection works.
#[track_caller]
fn crosses(ias: &mut Adapters<'_, impl Side>, ends: &[End; 2], mems: &[Mem; 2]) {
    use dat_core::DtoOperation;
    ias.recv(&ends[B], &mems[B], 4096, 16, 0xbb);
    ias.send(&ends[A], &mems[A], 4096, 16, 0xaa);
    assert_eq!(ias.done(&ends[B], DtoOperation::Receive, 0xbb), 16);
    assert_eq!(ias.done(&ends[A], DtoOperation::Send, 0xaa), 16);
}

/// A post without flags that has to be accepted.
#[track_caller]
fn posted(
    dto: Dto,
    ias: &mut Adapters<'_, impl Side>,
    end: &End,
    iov: &[LmrTriplet],
    cookie: u64,
    far: &RmrTriplet,
) {
    dto.post(ias, end, iov, cookie, far, NONE).unwrap();
}

/// The cases.
#[macro_export]
macro_rules! post_cases {
    ($with:ident) => {
        $with! { post:
            too_many_segments_are_refused
            segments_outside_their_lmr_are_refused
            unknown_contexts_are_refused
            segments_without_the_right_are_refused
            segments_of_another_zone_are_refused
            segments_of_no_bytes_are_not_looked_at
            messages_beyond_the_endpoints_longest_are_refused
            a_write_longer_than_its_target_is_refused
            a_read_longer_than_its_buffer_is_refused
            requests_are_refused_before_the_connection
            requests_are_refused_while_a_disconnect_drains
            a_full_queue_refuses_and_a_dequeue_makes_room
            a_freed_endpoint_takes_nothing
            too_many_segments_and_unknown_flags_are_refused_in_full_words
            segments_are_checked_at_the_post
            flags_that_are_not_for_receives_are_refused
            unsignalled_wants_the_endpoints_consent
            suppressed_successes_are_silent
            a_suppressed_request_tells_of_its_failure
            suppressed_requests_never_fill_the_queue_for_good
            a_queue_holds_as_many_of_the_widest_as_it_was_made_for
            a_fenced_send_follows_the_read
            a_deferred_request_waits_for_the_bell
            suppressed_binds_and_unbinds_are_silent_alike
            segments_are_gathered_and_filled_in_order
            a_short_message_leaves_the_rest_alone
            a_message_of_no_bytes_takes_a_receive
            rdma_of_no_bytes_looks_at_no_memory
            a_shorter_write_moves_what_there_is
            a_longer_buffer_takes_what_the_read_names
            the_longest_message_crosses
            the_list_is_the_consumers_when_the_post_returns
            receives_posted_before_the_connection_serve_it
            completions_come_in_the_order_of_posts
            cookies_come_back_whole
            fault_21_every_completion_says_what_it_was
            a_list_of_writes_is_posted_in_order
            a_list_of_receives_is_filled_in_order
            a_list_of_pieces_stays_in_its_stretch
            a_list_of_sends_is_posted_in_order
            a_list_of_reads_is_posted_in_order
            a_list_of_binds_is_posted_in_order
            a_message_too_long_for_its_receive_fails_on_both_sides
            memory_freed_under_a_receive_fails_it
            a_write_without_a_key_is_refused_by_the_peer
            a_read_without_a_key_is_refused_by_the_peer
            a_peer_that_is_gone_ends_the_retries
            a_peer_without_receives_ends_the_patience
            requests_after_a_failure_are_flushed_in_order
            a_disconnect_flushes_receives_in_order
            posts_on_a_disconnected_endpoint_are_flushed
            receives_posted_while_draining_are_flushed
            successes_come_before_the_end_of_a_merged_dispatcher
            nothing_of_before_a_reset_comes_after_it
            a_buffer_comes_back_with_its_completion
            a_part_of_a_buffer_is_posted
            a_refused_buffer_comes_back_at_once
            a_made_up_event_brings_no_buffer
            a_reset_brings_back_what_is_out
            a_poster_excludes_the_handle
        }
    };
}
