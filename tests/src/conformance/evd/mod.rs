//! Cases of dat_evd_*(3).

mod create;
mod dequeue;
mod free;
mod notify;
mod overflow;
mod resize;
mod upcall;
mod wait;

pub use create::*;
pub use dequeue::*;
pub use free::*;
pub use notify::*;
pub use overflow::*;
pub use resize::*;
pub use upcall::*;
pub use wait::*;

use std::task::Poll;
use std::time::Duration;

use dat_core::{CompletionFlags, DatReturn, EpAttr, Evd, EvdFlags, EvdWait, Event};

use super::{A, Adapters, B, End, Side};

/// No time at all.
pub(super) const NOW: Duration = Duration::ZERO;
/// A moment.
pub(super) const MOMENT: Duration = Duration::from_millis(5);

/// An Event Dispatcher for software events on side A.
pub(super) fn soft<S: Side>(ias: &mut Adapters<'_, S>, qlen: u32) -> Evd {
    ias.a.evd_create(qlen, EvdFlags::SOFTWARE).unwrap()
}

/// Posts software events `from..to`.
pub(super) fn post<S: Side>(ias: &mut Adapters<'_, S>, evd: Evd, pointers: std::ops::Range<u64>) {
    for pointer in pointers {
        ias.a.evd_post_se(evd, pointer).unwrap();
    }
}

/// Everything that is queued, of software events.
pub(super) fn drained<S: Side>(ias: &mut Adapters<'_, S>, evd: Evd) -> Vec<u64> {
    std::iter::from_fn(|| match ias.look(A, evd) {
        Some(Event::Software(pointer)) => Some(pointer),
        Some(other) => panic!("{other:?} came"),
        None => None,
    })
    .collect()
}

/// Begins a wait on side A.
#[track_caller]
pub(super) fn begin<S: Side>(
    ias: &mut Adapters<'_, S>,
    evd: Evd,
    timeout: Duration,
    threshold: u32,
) -> EvdWait {
    let now = ias.now();
    ias.a.evd_wait(now, evd, timeout, threshold).unwrap()
}

/// Looks at a wait.
pub(super) fn look<S: Side>(
    ias: &mut Adapters<'_, S>,
    wait: &mut EvdWait,
) -> Poll<Result<Event, DatReturn>> {
    let now = ias.now();
    ias.a.evd_waited(now, wait)
}

/// Waits on side A, driving both.
pub(super) fn wait<S: Side>(
    ias: &mut Adapters<'_, S>,
    evd: Evd,
    timeout: Duration,
    threshold: u32,
) -> Result<Event, DatReturn> {
    let now = ias.now();
    let wait = ias.a.evd_wait(now, evd, timeout, threshold);
    let mut wait = wait.map_err(|error| error.ret())?;
    loop {
        if let Poll::Ready(found) = look(ias, &mut wait) {
            return found;
        }
        ias.turn(Duration::from_micros(100));
    }
}

/// Two connected Endpoints with these completion flags at side A: of receives, and of requests. The
/// connect stream of A is apart.
pub(super) fn pair<S: Side>(
    ias: &mut Adapters<'_, S>,
    recv: CompletionFlags,
    request: CompletionFlags,
) -> [End; 2] {
    let tweak = |attr: &mut EpAttr| {
        attr.recv_completion_flags = recv;
        attr.request_completion_flags = request;
    };
    let ends = [ias.end_with(A, false, tweak), ias.end(B)];
    ias.connect(&ends[A], &ends[B]);
    ends
}

/// The cases.
#[macro_export]
macro_rules! evd_cases {
    ($with:ident) => {
        $with! { evd:
            create_of_length_zero
            create_beyond_the_adapter
            create_beyond_the_table
            create_of_no_stream_or_an_unknown_one
            create_with_a_cno
            a_new_one_is_enabled_waitable_and_empty
            default_is_every_stream_but_software
            fault_06_every_mix_of_streams_is_taken
            streams_go_where_they_are_taken
            query_tells_every_field
            query_tells_who_decides_what_notifies
            streams_of_one_evd_may_decide_differently
            each_stream_of_a_shared_evd_notifies_by_its_own_flags
            a_freed_one_is_a_stale_handle
            post_se_needs_its_stream
            fault_07_a_full_queue_is_no_overflow
            software_events_come_as_they_were_posted
            dequeue_of_an_empty_one
            dequeue_while_somebody_waits
            dequeue_while_a_thread_has_the_reaper
            one_stream_keeps_its_order_among_others
            free_with_a_stream
            free_with_a_waiter
            free_loses_what_is_queued
            free_of_the_async_one
            a_moderated_one_loses_nothing
            a_disabled_one_triggers_nothing
            enabling_twice_is_once
            modify_cno_moves_what_comes_next
            modify_cno_to_a_stale_one
            fault_44_an_overflow_names_its_dispatcher
            an_overflow_harms_nothing_else
            an_overflowing_async_dispatcher_is_dead
            no_connection_event_is_lost_within_the_length
            software_events_have_the_whole_length
            resize_to_nothing_or_too_much
            resize_keeps_what_is_queued
            resize_below_what_is_queued
            resize_under_a_waiter
            fault_35_a_shrunk_queue_is_sound
            resize_keeps_completions
            resize_in_mid_traffic
            upcalls_are_made_for_each_event_in_order
            upcalls_are_made_by_the_drive_alone
            upcalls_that_are_disabled
            upcalls_for_what_is_queued_or_only_for_what_comes
            upcalls_that_are_torn_down
            upcalls_and_cnos_exclude_each_other
            upcalls_may_use_the_adapter
            wait_threshold_of_zero
            wait_threshold_beyond_the_length
            wait_with_no_time
            wait_that_runs_out
            wait_expires_at_its_timeout
            wait_takes_the_first_and_counts_the_rest
            wait_for_completions_by_threshold
            wait_without_end
            a_second_waiter
            waits_on_an_unwaitable_one
            set_unwaitable_wakes_the_waiter
            close_aborts_the_waiter
            fault_23_the_time_of_a_wait_runs_once
            fault_24_thresholds_are_for_those_who_do_not_decide
            fault_31_an_unsignalled_completion_wakes_nobody
            an_unsignalled_receive_wakes_nobody
            any_number_of_unsignalled_receives_wake_nobody
            only_solicited_receives_wake
            suppressed_successes_are_no_events
            flushes_are_counted
            an_ended_wait_leaves_no_trace
        }
    };
}
