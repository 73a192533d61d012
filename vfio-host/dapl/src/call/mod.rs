//! The calls, as the dispatch table has them: a file for each kind of object.
//!
//! How to write one: a call is generic over the [`Variant`] and takes the types of [`crate::abi`].
//! Its body is a closure for [`call`], which converts a `Result` to a `DAT_RETURN` and logs the
//! cause of a refusal:
//!
//! ```text
//! pub(super) extern "C" fn pz_create<V: Variant>(ia: DatHandle, pz: Out<DatHandle>) -> Ret {
//!     call("dat_pz_create", || {
//!         let ia = ia_called::<V>(ia)?;          // the first handle: the registry has followed it, so it is an object of ours
//!         ia.adapter()?.with(|open| {            // the adapter, locked; `drive` for calls that start something
//!             let made = open.nic().pz_create()?;
//!             pz.put(open.adopt(ia, made));      // an object for it, and its handle
//!             Ok(())
//!         })
//!     })
//! }
//! ```
//!
//! * Check parameters first, object state with the adapter locked: `object.name::<Pz>()?` returns
//!   the `dat_core` handle, or `INVALID_HANDLE` of its kind; `object.sibling(handle)?` and
//!   `sibling_or_none` do it for the other handles of a call, which may be any address.
//! * Recall posters and reapers that the `Ia` needs: [`Open::recall`](crate::adapter::Open::recall)
//!   that of an object, `recall_ep` all that belong to an Endpoint. Do so before a free, a change
//!   of queue pairs or a count of events.
//! * Disown freed objects: `open.disown(object, name)`.
//! * Convert events and parameters to C with `crate::abi` and `open.around(object)`.

mod cno;
mod context;
mod cr;
mod csp;
mod ep;
mod evd;
mod extension;
mod ia;
mod list;
mod lmr;
mod post;
mod psp;
mod pz;
mod rmr;
mod rsp;
mod srq;

pub(crate) use cno::{Agent, Due};
pub(crate) use csp::Made as CspMade;
pub(crate) use lmr::{Made as LmrMade, lent};

use dat_core::{DatReturn, Error};

use crate::abi::{DatHandle, Ret, SUCCESS};
use crate::log::{Level, say, says};
use crate::object::{Kind, Object};
use crate::variant::{Table, Variant};

/// Runs a call and returns its code.
#[inline]
fn call(name: &str, body: impl FnOnce() -> Result<(), Error>) -> Ret {
    match body() {
        Ok(()) => SUCCESS,
        Err(error) => refused(name, &error),
    }
}

#[cold]
fn refused(name: &str, error: &Error) -> Ret {
    // The code cannot contain the error of the device.
    let level = if error.fault().is_some() { Level::Warn } else { Level::Debug };
    if says(level) {
        say(level, format_args!("{name}: {error}"));
    }
    error.ret().raw()
}

/// Returns the Interface Adapter of a call.
fn ia_called<V: Variant>(handle: DatHandle) -> Result<&'static Object<V>, DatReturn> {
    let object = Object::called(handle);
    if object.kind() == Kind::Ia { Ok(object) } else { Err(Kind::Ia.invalid()) }
}

/// Returns the port of a Connection Qualifier. The RDMA IP CM service has 16 bits for it, and as
/// every provider over that takes the lower ones, programs have others in the upper: a process
/// number, or nothing that they have set. A service point says its qualifier as it was given.
fn port(conn_qual: u64) -> u64 {
    conn_qual & u64::from(u16::MAX)
}

/// The dispatch table of a variant.
pub(crate) const fn table<V: Variant>() -> Table {
    Table {
        device_name: std::ptr::null(),
        extension: std::ptr::null_mut(),
        ia_open_func: ia::open::<V>,
        ia_query_func: ia::query::<V>,
        ia_close_func: ia::close::<V>,
        set_consumer_context_func: context::set::<V>,
        get_consumer_context_func: context::get::<V>,
        get_handle_type_func: context::handle_type::<V>,
        cno_create_func: cno::create::<V>,
        cno_modify_agent_func: cno::modify_agent::<V>,
        cno_query_func: cno::query::<V>,
        cno_free_func: cno::free::<V>,
        cno_wait_func: cno::wait_for::<V>,
        cr_query_func: cr::query::<V>,
        cr_accept_func: cr::accept::<V>,
        cr_reject_func: cr::reject::<V>,
        cr_handoff_func: cr::handoff::<V>,
        evd_create_func: evd::create::<V>,
        evd_query_func: evd::query::<V>,
        evd_modify_cno_func: evd::modify_cno::<V>,
        evd_enable_func: evd::enable::<V>,
        evd_disable_func: evd::disable::<V>,
        evd_wait_func: evd::wait_for::<V>,
        evd_resize_func: evd::resize::<V>,
        evd_post_se_func: evd::post_se::<V>,
        evd_dequeue_func: evd::dequeue::<V>,
        evd_free_func: evd::free::<V>,
        ep_create_func: ep::create::<V>,
        ep_query_func: ep::query::<V>,
        ep_modify_func: ep::modify::<V>,
        ep_connect_func: ep::connect::<V>,
        ep_dup_connect_func: ep::dup_connect::<V>,
        ep_disconnect_func: ep::disconnect::<V>,
        ep_post_send_func: post::send::<V>,
        ep_post_recv_func: post::recv::<V>,
        ep_post_rdma_read_func: post::rdma_read::<V>,
        ep_post_rdma_write_func: post::rdma_write::<V>,
        ep_get_status_func: ep::get_status::<V>,
        ep_free_func: ep::free::<V>,
        lmr_create_func: lmr::create::<V>,
        lmr_query_func: lmr::query::<V>,
        lmr_free_func: lmr::free::<V>,
        rmr_create_func: rmr::create::<V>,
        rmr_query_func: rmr::query::<V>,
        rmr_bind_func: rmr::bind::<V>,
        rmr_free_func: rmr::free::<V>,
        psp_create_func: psp::create::<V>,
        psp_query_func: psp::query::<V>,
        psp_free_func: psp::free::<V>,
        rsp_create_func: rsp::create::<V>,
        rsp_query_func: rsp::query::<V>,
        rsp_free_func: rsp::free::<V>,
        pz_create_func: pz::create::<V>,
        pz_query_func: pz::query::<V>,
        pz_free_func: pz::free::<V>,
        psp_create_any_func: psp::create_any::<V>,
        ep_reset_func: ep::reset::<V>,
        evd_set_unwaitable_func: evd::set_unwaitable::<V>,
        evd_clear_unwaitable_func: evd::clear_unwaitable::<V>,
        lmr_sync_rdma_read_func: lmr::sync_rdma_read::<V>,
        lmr_sync_rdma_write_func: lmr::sync_rdma_write::<V>,
        ep_create_with_srq_func: ep::create_with_srq::<V>,
        ep_recv_query_func: ep::recv_query::<V>,
        ep_set_watermark_func: ep::set_watermark::<V>,
        srq_create_func: srq::create::<V>,
        srq_free_func: srq::free::<V>,
        srq_post_recv_func: srq::post_recv::<V>,
        srq_query_func: srq::query::<V>,
        srq_resize_func: srq::resize::<V>,
        srq_set_lw_func: srq::set_lw::<V>,
        csp_create_func: csp::create::<V>,
        csp_query_func: csp::query::<V>,
        csp_free_func: csp::free::<V>,
        ep_common_connect_func: ep::common_connect::<V>,
        rmr_create_for_ep_func: rmr::create_for_ep::<V>,
        ep_post_send_with_invalidate_func: post::send_with_invalidate::<V>,
        ep_post_rdma_read_to_rmr_func: post::rdma_read_to_rmr::<V>,
        cno_fd_create_func: cno::fd_create::<V>,
        cno_trigger_func: cno::trigger::<V>,
        ia_ha_related_func: ia::ha_related::<V>,
        handle_extendedop_func: extension::operation::<V>,
    }
}
