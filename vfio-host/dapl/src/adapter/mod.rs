//! One HCA of this process, and its control half under a lock.
//!
//! However many Interface Adapters a process opens on a line of `dat.conf`, the HCA is brought up
//! once: the first opens it, the last to close gives it back. Each sees only its own objects. The
//! control half, [`Open`], is entered by [`Adapter::with`] and [`Adapter::drive`]; the data halves
//! live in handles, see [`crate::gate`].

mod address;
mod around;
mod halves;
mod hold;
mod lent;
mod life;
mod open;

pub(crate) use hold::Driver;
pub(crate) use life::AsyncEvd;
pub(crate) use open::Open;

use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use dat_core::{AnyHandle, Error};

use crate::abi::DatHandle;
use crate::abi::sockaddr::SockAddr;
use crate::config::{Config, MOST_ENDPOINTS};
use crate::object::{Kind, Name, Object};
use crate::variant::Variant;

/// LMRs, and RMRs.
pub(crate) const LMRS: u32 = 4096;
/// Shared Receive Queues.
pub(crate) const SRQS: u16 = 16;
/// Queue pairs, completion queues and keys of the driver.
pub(crate) const QPS: usize = MOST_ENDPOINTS as usize;
pub(crate) const CQS: usize = 2048;
pub(crate) const KEYS: usize = 8192;

/// One HCA, open or not. It is never given back.
pub(crate) struct Adapter<V: Variant> {
    /// What `dat.conf` says of it.
    pub(crate) config: Config,
    /// Its own address, as C has it.
    pub(crate) address: SockAddr,
    /// Held while it opens and closes.
    opening: Mutex<()>,
    control: Mutex<Option<Open<V>>>,
    /// The objects of each kind, by the place in their names.
    places: [Box<[AtomicPtr<Object<V>>]>; Kind::COUNT],
    /// Agents of CNOs that are to be called, by whoever drives the adapter and holds no lock.
    pub(crate) due: Mutex<Vec<crate::call::Due>>,
}

impl<V: Variant> Adapter<V> {
    pub(crate) fn new(config: Config) -> Self {
        let room = |kind: usize| match kind {
            kind if kind == Kind::Evd as usize || kind == Kind::Cno as usize => {
                config.evds().into()
            }
            kind if kind == Kind::Lmr as usize || kind == Kind::Rmr as usize => LMRS,
            kind if kind == Kind::Srq as usize => SRQS.into(),
            kind if kind == Kind::Freed as usize || kind == Kind::Ia as usize => 0,
            _ => u32::from(config.endpoints),
        };
        let places = std::array::from_fn(|kind| {
            (0..room(kind)).map(|_| AtomicPtr::new(std::ptr::null_mut())).collect()
        });
        Self {
            address: SockAddr::new(config.net.addr, 0),
            config,
            opening: Mutex::new(()),
            control: Mutex::new(None),
            places,
            due: Mutex::new(Vec::new()),
        }
    }

    /// The control half, or nothing while no Interface Adapter is open.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Option<Open<V>>> {
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something with the control half. `INVALID_HANDLE`/`IA`, if the adapter is closed.
    pub(crate) fn with<R>(
        &self,
        what: impl FnOnce(&mut Open<V>) -> Result<R, Error>,
    ) -> Result<R, Error> {
        let mut control = self.lock();
        what(control.as_mut().ok_or(Kind::Ia.invalid())?)
    }

    /// The same for calls that may set something going: connections, events, timers.
    pub(crate) fn drive<R>(
        &self,
        what: impl FnOnce(&mut Open<V>) -> Result<R, Error>,
    ) -> Result<R, Error> {
        self.with(|open| {
            let result = what(open);
            open.drive();
            result
        })
    }

    /// Calls the agents of CNOs that are due. For who holds no lock: they may call whatever they
    /// like.
    pub(crate) fn call_agents(&self) {
        let due = std::mem::take(&mut *self.due.lock().unwrap_or_else(PoisonError::into_inner));
        for due in due {
            due.call();
        }
    }

    /// No agent is due.
    fn nothing_due(&self) -> bool {
        self.due.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// The handle of that object, or null if C has none for it.
    #[inline(always)]
    pub(crate) fn handle_of<N: Name>(&self, name: N) -> DatHandle {
        self.object_of(name).map_or(DatHandle::NULL, Object::handle)
    }

    /// The object of that name.
    #[inline(always)]
    pub(crate) fn object_of<N: Name>(&self, name: N) -> Option<&'static Object<V>> {
        let object = self.place(N::KIND, name.place())?.load(Ordering::Acquire);
        let object = Object::of_place(object)?;
        if object.is(name) {
            Some(object)
        } else {
            std::hint::cold_path();
            None
        }
    }

    /// Notes which object has that name.
    fn put<N: Name>(&self, name: N, object: Option<&'static Object<V>>) {
        if let Some(place) = self.place(N::KIND, name.place()) {
            let object = object.map_or(std::ptr::null_mut(), |o| std::ptr::from_ref(o).cast_mut());
            place.store(object, Ordering::Release);
        }
    }

    #[inline(always)]
    fn place(&self, kind: Kind, place: u32) -> Option<&AtomicPtr<Object<V>>> {
        self.places.get(kind as usize)?.get(place as usize)
    }

    /// The same of any name.
    pub(crate) fn handle_of_any(&self, handle: AnyHandle) -> DatHandle {
        match handle {
            AnyHandle::Ia => DatHandle::NULL,
            AnyHandle::Cno(name) => self.handle_of(name),
            AnyHandle::Cr(name) => self.handle_of(name),
            AnyHandle::Ep(name) => self.handle_of(name),
            AnyHandle::Evd(name) => self.handle_of(name),
            AnyHandle::Lmr(name) => self.handle_of(name),
            AnyHandle::Psp(name) => self.handle_of(name),
            AnyHandle::Pz(name) => self.handle_of(name),
            AnyHandle::Rmr(name) => self.handle_of(name),
            AnyHandle::Rsp(name) => self.handle_of(name),
            AnyHandle::Srq(name) => self.handle_of(name),
            AnyHandle::Csp(name) => self.handle_of(name),
        }
    }
}

impl<V: Variant> std::fmt::Debug for Adapter<V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Adapter").field("config", &self.config).finish_non_exhaustive()
    }
}
