//! Calls that make and free Endpoints and LMRs: those of several threads and of one kind are
//! carried out together, so that their commands are on their way to the device at the same time. See [`crate::combine`].

use std::sync::Arc;

use dat_core::provider::Region;
use dat_core::{
    DatReturn, DatType, Ep, EpAttr, EpCreate, Error, Lmr, LmrCreate, LmrParam, MemPriv, Memory, Pz,
    VaType,
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
                let mut control = self.lock();
                let mut batch = self.combiner.take(own, std::mem::discriminant);
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
    /// Carries out requests, all of one kind.
    fn serve(&mut self, batch: &mut Batch<V>) {
        match batch.first() {
            Some((_, Ask::EpCreate(..), _)) => self.serve_ep_creates(batch),
            Some((_, Ask::EpFree(_), _)) => {
                self.serve_ep_frees(batch);
                self.drive();
            }
            Some((_, Ask::LmrCreate(_), _)) => self.serve_lmr_creates(batch),
            Some((_, Ask::LmrFree(_), _)) => self.serve_lmr_frees(batch),
            None => {}
        }
    }

    fn serve_ep_creates(&mut self, batch: &mut Batch<V>) {
        let (mut creates, mut places) = (Vec::<_, ROOM>::new(), Vec::<_, ROOM>::new());
        for (_, ask, answer) in batch {
            if let Ask::EpCreate(ia, create) = ask {
                let _ = creates.push((*create, None));
                let _ = places.push((*ia, answer));
            }
        }
        self.nic().ep_create_each(&mut creates);
        for ((_, made), (ia, answer)) in creates.iter().zip(places) {
            *answer = made.map(|made| made.map(|ep| Reply::Ep(self.adopt(ia, ep))));
        }
    }

    fn serve_ep_frees(&mut self, batch: &mut Batch<V>) {
        let (mut eps, mut places) = (Vec::<_, ROOM>::new(), Vec::<_, ROOM>::new());
        for (_, ask, answer) in batch {
            if let Ask::EpFree(object) = ask {
                match object.name::<Ep>() {
                    Ok(ep) => {
                        let _ = eps.push((*object, ep));
                        let _ = places.push(answer);
                    }
                    Err(ret) => *answer = Some(Err(ret.into())),
                }
            }
        }
        for (freed, answer) in self.free_eps(&eps).into_iter().zip(places) {
            *answer = Some(freed.map(|()| Reply::Freed));
        }
    }

    /// Frees a few Endpoints. Returns what became of each.
    pub(super) fn free_eps(
        &mut self,
        all: &[(&'static Object<V>, Ep)],
    ) -> Vec<Result<(), Error>, ROOM> {
        let (mut eps, mut results) = (Vec::<_, ROOM>::new(), Vec::new());
        for (_, ep) in all {
            let recalled = self.recall_ep(*ep);
            if recalled.is_ok() {
                let _ = eps.push((*ep, None));
            }
            let _ = results.push(recalled);
        }
        let now = self.nic().now();
        self.nic().ep_free_each(now, &mut eps);
        let mut freed = eps.into_iter();
        for (result, (object, ep)) in results.iter_mut().zip(all).filter(|(r, _)| r.is_ok()) {
            *result = freed.next().and_then(|(_, freed)| freed).unwrap_or(Ok(()));
            if result.is_ok() {
                self.addresses.forget(*ep);
                self.disown(object, *ep);
            }
        }
        results
    }

    fn serve_lmr_creates(&mut self, batch: &mut Batch<V>) {
        let (mut creates, mut places) = (Vec::<_, ROOM>::new(), Vec::<_, ROOM>::new());
        for (_, ask, answer) in batch {
            let Ask::LmrCreate(ask) = ask else { continue };
            match self.lent_for(ask) {
                Ok((region, memory)) => {
                    let LmrAsk { pz, privileges, va_type, .. } = *ask;
                    let _ = creates.push((LmrCreate { pz, memory, privileges, va_type }, None));
                    let _ = places.push((&*ask, region, answer));
                }
                Err(error) => *answer = Some(Err(error)),
            }
        }
        self.nic().lmr_create_each(&mut creates);
        for ((_, made), (ask, lent, answer)) in creates.into_iter().zip(places) {
            *answer = made.map(|made| match made {
                Ok(made) => {
                    let handle = self.adopt(ask.ia, made.lmr);
                    if let Some(object) = Object::<V>::find(handle) {
                        *object.note() = Note::Lmr(LmrMade::new(ask, lent));
                    }
                    Ok(Reply::Lmr(handle, made))
                }
                Err(error) => {
                    self.take_back(lent);
                    Err(error)
                }
            });
        }
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

    fn serve_lmr_frees(&mut self, batch: &mut Batch<V>) {
        let (mut lmrs, mut places) = (Vec::<_, ROOM>::new(), Vec::<_, ROOM>::new());
        for (_, ask, answer) in batch {
            if let Ask::LmrFree(object) = ask {
                match object.name::<Lmr>() {
                    Ok(lmr) => {
                        let _ = lmrs.push((*object, lmr));
                        let _ = places.push(answer);
                    }
                    Err(ret) => *answer = Some(Err(ret.into())),
                }
            }
        }
        for (freed, answer) in self.free_lmrs(&lmrs).into_iter().zip(places) {
            *answer = Some(freed.map(|()| Reply::Freed));
        }
    }

    /// Frees a few LMRs and takes back the memory that was lent for them. Returns what became of
    /// each.
    pub(super) fn free_lmrs(
        &mut self,
        all: &[(&'static Object<V>, Lmr)],
    ) -> Vec<Result<(), Error>, ROOM> {
        let mut lmrs: Vec<_, ROOM> = all.iter().map(|(_, lmr)| (*lmr, None)).collect();
        self.nic().lmr_free_each(&mut lmrs);
        let mut results = Vec::new();
        for ((_, freed), (object, lmr)) in lmrs.into_iter().zip(all) {
            let freed = freed.unwrap_or(Ok(()));
            if freed.is_ok() {
                if let Some(lent) = crate::call::lent(object) {
                    self.take_back(lent);
                }
                self.disown(object, *lmr);
            }
            let _ = results.push(freed);
        }
        results
    }
}

/// Returns the access rights that the device needs for those privileges.
fn reach(privileges: MemPriv) -> Reach {
    let written = MemPriv::LOCAL_WRITE | MemPriv::REMOTE_WRITE | MemPriv::REMOTE_ATOMIC;
    if privileges.intersects(written) { Reach::ReadWrite } else { Reach::Read }
}
