//! Calls that make and free Endpoints and LMRs: those of several threads are
//! carried out together, so that their commands are on their way to the device at the same time. See [`crate::combine`].

use std::sync::Arc;

use dat_core::provider::Region;
use dat_core::{
    Control, Controlled, DatReturn, DatType, Ep, EpAttr, EpCreate, Error, Lmr, LmrCreate, LmrParam,
    MemPriv, Memory, Pz, VaType,
};
use heapless::Vec;
use vfio_host::Reach;

use super::{Adapter, Open};
use crate::abi::number::{DAT_MEM_TYPE_LMR, DAT_MEM_TYPE_SHARED_VIRTUAL, DAT_MEM_TYPE_VIRTUAL};
use crate::abi::structs::DatRegionDescription;
use crate::abi::{DatHandle, code};
use crate::call::LmrMade;
use crate::combine::{self, ROOM, Turn};
use crate::object::{Kind, Note, Object};
use crate::variant::Variant;

/// What a call asks for.
pub(crate) enum Ask<V: Variant> {
    /// An Endpoint of an Interface Adapter.
    EpCreate(&'static Object<V>, EpCreate),
    /// The end of one.
    EpFree(&'static Object<V>),
    /// An LMR.
    LmrCreate(LmrAsk<V>),
    /// The end of one.
    LmrFree(&'static Object<V>),
}

/// The arguments of `dat_lmr_create`.
pub(crate) struct LmrAsk<V: Variant> {
    pub(crate) ia: &'static Object<V>,
    pub(crate) pz: Pz,
    pub(crate) mem_type: u32,
    pub(crate) region: DatRegionDescription,
    pub(crate) length: u64,
    pub(crate) name: Option<Arc<[u8; 40]>>,
    pub(crate) privileges: MemPriv,
    pub(crate) va_type: VaType,
}

/// What came of it.
#[derive(Clone, Copy)]
pub(crate) enum Reply {
    /// An Endpoint.
    Ep(DatHandle),
    /// An LMR.
    Lmr(DatHandle, LmrParam),
    /// The object is freed.
    Freed,
}

type Answer = Result<Reply, Error>;
type Batch<V> = combine::Batch<Ask<V>, Answer>;
pub(super) type Combiner<V> = combine::Combiner<Ask<V>, Answer>;

impl<V: Variant> Adapter<V> {
    /// Carries out a call, with those of other threads that wait. `INVALID_HANDLE`/`IA` if the
    /// adapter is closed.
    pub(crate) fn together(&self, ask: Ask<V>) -> Answer {
        match self.combiner.enter(ask) {
            Turn::Done(answer) => answer,
            Turn::Lead(own) => {
                self.combiner.gather();
                let mut control = self.lock();
                let mut batch = self.combiner.take();
                if let Some(open) = control.as_mut() {
                    open.serve(&mut batch);
                }
                drop(control);
                self.combiner.finish(own, batch, closed)
            }
            Turn::Alone(ask) => {
                let mut batch = Batch::new();
                let _ = batch.push((0, ask, None));
                if let Some(open) = self.lock().as_mut() {
                    open.serve(&mut batch);
                }
                batch.pop().and_then(|(.., answer)| answer).unwrap_or_else(closed)
            }
        }
    }

    /// Returns the attributes of an Endpoint whose creator states none.
    pub(crate) fn ep_attr_default(&self) -> Result<EpAttr, Error> {
        self.ep_attr_default.get().copied().ok_or(Kind::Ia.invalid().into())
    }
}

fn closed() -> Answer {
    Err(Kind::Ia.invalid().into())
}

impl<V: Variant> Open<V> {
    /// Carries out requests: what comes before their commands, the commands of all of them, and what
    /// comes after.
    fn serve(&mut self, batch: &mut Batch<V>) {
        let (mut calls, mut places) = (Vec::<_, ROOM>::new(), Vec::<_, ROOM>::new());
        let mut drives = false;
        for (_, ask, answer) in batch {
            drives |= matches!(ask, Ask::EpFree(_));
            match self.call_of(ask) {
                Ok((call, region)) => {
                    let _ = calls.push((call, None));
                    let _ = places.push((&*ask, region, answer));
                }
                Err(error) => *answer = Some(Err(error)),
            }
        }
        let now = self.nic().now();
        self.nic().control_each(now, &mut calls);
        for ((call, came), (ask, region, answer)) in calls.into_iter().zip(places) {
            *answer = came.map(|came| self.reply(call, ask, region, came));
        }
        if drives {
            self.drive();
        }
    }

    /// Returns the call of a request, and the memory that was lent for it.
    fn call_of<'a>(&mut self, ask: &'a Ask<V>) -> Result<(Control<'a>, Option<Region>), Error> {
        Ok(match ask {
            Ask::EpCreate(_, create) => (Control::EpCreate(*create), None),
            Ask::EpFree(object) => {
                let ep = object.name()?;
                self.recall_ep(ep)?;
                (Control::EpFree(ep), None)
            }
            Ask::LmrCreate(ask) => {
                let (region, memory) = self.lent_for(ask)?;
                let LmrAsk { pz, privileges, va_type, .. } = *ask;
                let create = LmrCreate { pz, memory, privileges, va_type };
                (Control::LmrCreate(create), Some(region))
            }
            Ask::LmrFree(object) => (Control::LmrFree(object.name()?), None),
        })
    }

    /// Returns the answer to a request, after what its call came to.
    fn reply(
        &mut self,
        call: Control<'_>,
        ask: &Ask<V>,
        lent: Option<Region>,
        came: Result<Controlled, Error>,
    ) -> Answer {
        match (ask, call, came) {
            (Ask::EpCreate(ia, _), _, Ok(Controlled::Ep(ep))) => Ok(Reply::Ep(self.adopt(ia, ep))),
            (Ask::LmrCreate(ask), _, Ok(Controlled::Lmr(lmr))) => {
                let made = self.nic().lmr_query(lmr)?;
                let handle = self.adopt(ask.ia, lmr);
                if let (Some(object), Some(lent)) = (Object::<V>::find(handle), lent) {
                    *object.note() = Note::Lmr(LmrMade::new(ask, lent));
                }
                Ok(Reply::Lmr(handle, made))
            }
            (Ask::EpFree(object), Control::EpFree(ep), Ok(_)) => {
                self.ep_freed(object, ep);
                Ok(Reply::Freed)
            }
            (Ask::LmrFree(object), Control::LmrFree(lmr), Ok(_)) => {
                self.lmr_freed(object, lmr);
                Ok(Reply::Freed)
            }
            (_, _, came) => {
                if let Some(lent) = lent {
                    self.take_back(lent);
                }
                came.map(|_| Reply::Freed)
            }
        }
    }

    /// Lets go of an Endpoint that `dat_core` has freed.
    fn ep_freed(&mut self, object: &'static Object<V>, ep: Ep) {
        self.addresses.forget(ep);
        self.disown(object, ep);
    }

    /// Lets go of an LMR that `dat_core` has freed, and of the memory that was lent for it.
    fn lmr_freed(&mut self, object: &'static Object<V>, lmr: Lmr) {
        if let Some(lent) = crate::call::lent(object) {
            self.take_back(lent);
        }
        self.disown(object, lmr);
    }

    /// Frees a few Endpoints. Returns what became of each.
    pub(super) fn free_eps(
        &mut self,
        all: &[(&'static Object<V>, Ep)],
    ) -> Vec<Result<(), Error>, ROOM> {
        let mut calls = Vec::<_, ROOM>::new();
        let mut results = Vec::new();
        for (_, ep) in all {
            let recalled = self.recall_ep(*ep);
            if recalled.is_ok() {
                let _ = calls.push((Control::EpFree(*ep), None));
            }
            let _ = results.push(recalled);
        }
        let now = self.nic().now();
        self.nic().control_each(now, &mut calls);
        let mut freed = calls.into_iter();
        for (result, (object, ep)) in results.iter_mut().zip(all).filter(|(r, _)| r.is_ok()) {
            *result = freed.next().and_then(|(_, came)| came).map_or(Ok(()), |came| came.map(drop));
            if result.is_ok() {
                self.ep_freed(object, *ep);
            }
        }
        results
    }

    /// Frees a few LMRs. Returns what became of each.
    pub(super) fn free_lmrs(
        &mut self,
        all: &[(&'static Object<V>, Lmr)],
    ) -> Vec<Result<(), Error>, ROOM> {
        let mut calls: Vec<_, ROOM> =
            all.iter().map(|(_, lmr)| (Control::LmrFree(*lmr), None)).collect();
        let now = self.nic().now();
        self.nic().control_each(now, &mut calls);
        let mut results = Vec::new();
        for ((_, came), (object, lmr)) in calls.into_iter().zip(all) {
            let freed = came.map_or(Ok(()), |came: Result<_, Error>| came.map(drop));
            if freed.is_ok() {
                self.lmr_freed(object, *lmr);
            }
            let _ = results.push(freed);
        }
        results
    }

    /// Lends the memory that an LMR is to be made of.
    fn lent_for<'a>(&mut self, ask: &'a LmrAsk<V>) -> Result<(Region, Memory<'a>), Error> {
        let address = ask.region.virtual_address;
        let of = match ask.mem_type {
            DAT_MEM_TYPE_VIRTUAL | DAT_MEM_TYPE_SHARED_VIRTUAL => {
                Region { addr: address.addr() as u64, len: ask.length }
            }
            DAT_MEM_TYPE_LMR => {
                let other: Lmr = ask.ia.sibling(DatHandle(address))?;
                self.nic().lmr_query(other)?.region
            }
            _ => return Err(code::bad_arg(2).into()),
        };
        if of.len == 0 {
            return Err(DatReturn::of(DatType::LengthError).into());
        }
        if of.addr == 0 || of.addr.checked_add(of.len).is_none() {
            return Err(code::bad_arg(3).into());
        }
        match &ask.name {
            Some(name) => {
                self.lend_shared(of, name)?;
                Ok((of, Memory::SharedVirtual(of, name)))
            }
            None => {
                self.lend(of, reach(ask.privileges))?;
                Ok((of, Memory::Virtual(of)))
            }
        }
    }
}

/// Returns the access rights that the device needs for those privileges.
fn reach(privileges: MemPriv) -> Reach {
    let written = MemPriv::LOCAL_WRITE | MemPriv::REMOTE_WRITE | MemPriv::REMOTE_ATOMIC;
    if privileges.intersects(written) { Reach::ReadWrite } else { Reach::Read }
}
