//! Payload in completions: who gets it, and the directories by which reaping ends copy it.
//!
//! An object is in its directory as long as a copy may go by it: entered when it exists, taken out
//! before the command that ends it. Then every reaping end that is in the midst of a copy is waited
//! for: nanoseconds, unless its thread was stopped there.

use dat_core::fault;
use dat_core::provider::{Access, Fault, QpInit, Region, Service};

use super::{Mlx5, await_done};
use crate::data::inline::{self, Fields, Landing, Object, Opened, Queue};
use crate::device::{Config, Device};
use crate::platform::{Platform, Reach, Span};
use crate::prm::mkey::Mkey;
use crate::prm::object;
use crate::verbs::mkey::Wanted;
use crate::verbs::qp::QpObject;

/// The directories, and their memory.
#[derive(Debug)]
pub(super) struct Landings<'p, P: Platform> {
    memory: Span,
    pub(super) landing: Landing<'p, P>,
}

impl<'p, P: Platform> Landings<'p, P> {
    /// Those of a device, for so many queue pairs and keys. None if they were not asked for, or the
    /// device cannot.
    pub(super) fn new(
        device: &Device<'p, P>,
        config: &Config<'p>,
        objects: [usize; 2],
    ) -> Result<Option<Self>, Fault> {
        if !config.inline_receives || !device.caps().general.sctr_data_cqe() {
            return Ok(None);
        }
        let platform = device.platform();
        let memory = platform
            .alloc(inline::bytes(objects), inline::ENTRY, Reach::Read)
            .ok_or(fault!(Resources, "bring-up", "the arena is full", "make the arena larger"))?;
        let landing = Landing::new(platform, config.lender, memory.offset, objects);
        let landing = landing.ok_or(crate::verbs::memory::unseen())?;
        Ok(Some(Self { memory, landing }))
    }

    /// Gives the memory back.
    pub(super) fn close(self, platform: &P) {
        platform.free(self.memory);
    }
}

impl<P: Platform, const QPS: usize, const CQS: usize, const KEYS: usize, const NEIGHBOURS: usize>
    Mlx5<'_, P, QPS, CQS, KEYS, NEIGHBOURS>
{
    /// Whether short messages come in their completions: asked for by
    /// [`Config::inline_receives`](crate::Config::inline_receives), and the device can.
    #[must_use]
    pub const fn receives_inline(&self) -> bool {
        self.landings.is_some()
    }

    /// Whether those of a queue pair do. A datagram has a network header before it, and a shared
    /// receive is in no ring that the queue pair leads to.
    pub(super) fn has_inline(&self, init: &QpInit) -> bool {
        self.receives_inline() && init.service == Service::Connected && init.shared.is_none()
    }

    /// Reaping ends may copy to receives of that queue pair.
    pub(super) fn enter_queue(&self, object: &QpObject, pd: u32, index: u32) {
        if let Some(landings) = &self.landings {
            let (ring, log_stride) = object.receives();
            landings.landing.enter_queue(object.qpn.0, &Queue { ring, log_stride, index, pd });
        }
    }

    /// Reaping ends may copy to that region.
    pub(super) fn enter_opened(&self, key: Mkey, wanted: &Wanted, region: Region) {
        if let Some(landings) = &self.landings {
            let Wanted { pd, start, len, access } = *wanted;
            let writable = access.contains(Access::LOCAL_WRITE);
            let opened = Opened { lkey: key.0, pd, start, len, writable, addr: region.addr };
            landings.landing.enter_key(&opened);
        }
    }

    /// Refuses memory that the driver cannot copy to.
    pub(super) fn reachable(&self) -> Result<(), Fault> {
        if self.receives_inline() {
            return Err(fault!(
                Unsupported,
                "CREATE_MKEY",
                "with inline receives no memory is registered by device addresses",
                "open the device without Config::inline_receives",
            ));
        }
        Ok(())
    }

    /// Takes an object out of its directory, before it is destroyed.
    pub(super) fn take_out(&self, object: Object) -> Option<Fields> {
        self.landings.as_ref()?.landing.remove(object)
    }

    /// Enters an object again that could not be destroyed.
    pub(super) fn put_back(&self, object: Object, fields: Fields) {
        if let Some(landings) = &self.landings {
            landings.landing.restore(object, &fields);
        }
    }

    /// Waits for the end of every copy that has begun, if any object was taken out.
    pub(super) fn copies_over(&self, any: bool) -> Result<(), Fault> {
        if any { self.await_copies() } else { Ok(()) }
    }

    /// Waits for the end of every copy that has begun.
    fn await_copies(&self) -> Result<(), Fault> {
        let platform = self.device.platform();
        for cq in self.cqs.values() {
            if let Some(begun) = cq.copy_begun(platform) {
                if !await_done(platform, || cq.copy_over(platform, begun)) {
                    return Err(fault!(
                        Timeout,
                        "inline receives",
                        "a thread was stopped in the midst of taking a completion",
                        "let it go on, and try again"
                    )
                    .of(object::CQ, cq.cqn.0));
                }
            }
        }
        Ok(())
    }
}
