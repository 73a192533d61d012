//! One HCA of this process, with its driver under a lock.
//!
//! However many Interface Adapters a process opens on a line of `dat.conf`, the HCA is brought up
//! once: the first opens it, the last to close closes it. Each sees only its own objects.
//! [`Adapter::with`] and [`Adapter::drive`] lock the open adapter, [`Open`]; [`Adapter::together`]
//! carries out calls of several threads under one lock. Posters and reapers
//! are in the gates of handles, see [`crate::gate`].

mod address;
mod around;
mod hold;
mod lent;
mod lifecycle;
mod open;
mod queues;
mod together;

pub(crate) use hold::Driver;
pub(crate) use lifecycle::AsyncEvd;
pub(crate) use open::Open;
pub(crate) use together::{Ask, LmrAsk, Reply};

use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use dat_core::{AnyHandle, EpAttr, Error};

use crate::abi::DatHandle;
use crate::abi::sockaddr::SockAddr;
use crate::config::{Config, MOST_ENDPOINTS};
use crate::object::{Kind, Name, Object};
use crate::variant::Variant;

/// Largest number of LMRs, and of RMRs.
pub(crate) const LMRS: u32 = 4096;
/// Largest number of Shared Receive Queues.
pub(crate) const SRQS: u32 = 16;
/// Table sizes of the driver: queue pairs, completion queues, keys and neighbours.
pub(crate) const QPS: usize = MOST_ENDPOINTS as usize;
pub(crate) const CQS: usize = 2048;
pub(crate) const KEYS: usize = 8192;
pub(crate) const NEIGHBOURS: usize = 4096;

/// One HCA, open or not. Never freed.
pub(crate) struct Adapter<V: Variant> {
    /// Its parameters in `dat.conf`.
    pub(crate) config: Config,
    /// Its own address, as C has it.
    pub(crate) address: SockAddr,
    /// Held while an Interface Adapter is opened or closed.
    opening: Mutex<()>,
    /// The process that opened it last. A child of a fork has locks that nobody gives back.
    process: AtomicU32,
    control: Mutex<Option<Open<V>>>,
    /// Calls that threads make together.
    combiner: together::Combiner<V>,
    /// Attributes of an Endpoint whose creator states none, once it was open.
    ep_attr_default: OnceLock<EpAttr>,
    /// The objects of each kind, by the index in their `dat_core` handle.
    places: [Box<[AtomicPtr<Object<V>>]>; Kind::COUNT],
    /// Agents of CNOs to call. The thread that drives the adapter calls them without a lock.
    pub(crate) due: Mutex<Vec<crate::call::Due>>,
}

impl<V: Variant> Adapter<V> {
    pub(crate) fn new(config: Config) -> Self {
        let room = |kind: usize| match kind {
            kind if kind == Kind::Evd as usize || kind == Kind::Cno as usize => config.evds(),
            kind if kind == Kind::Lmr as usize || kind == Kind::Rmr as usize => LMRS,
            kind if kind == Kind::Srq as usize => SRQS,
            kind if kind == Kind::Freed as usize || kind == Kind::Ia as usize => 0,
            _ => config.endpoints,
        };
        let places = std::array::from_fn(|kind| {
            (0..room(kind)).map(|_| AtomicPtr::new(std::ptr::null_mut())).collect()
        });
        Self {
            address: SockAddr::new(config.net.addr, 0),
            config,
            opening: Mutex::new(()),
            process: AtomicU32::new(0),
            control: Mutex::new(None),
            combiner: together::Combiner::new(),
            ep_attr_default: OnceLock::new(),
            places,
            due: Mutex::new(Vec::new()),
        }
    }

    /// Locks the open adapter; `None` while no Interface Adapter is open.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Option<Open<V>>> {
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls a function with the adapter locked. `INVALID_HANDLE`/`IA` if the adapter is closed.
    pub(crate) fn with<R>(
        &self,
        what: impl FnOnce(&mut Open<V>) -> Result<R, Error>,
    ) -> Result<R, Error> {
        let mut control = self.lock();
        what(control.as_mut().ok_or(Kind::Ia.invalid())?)
    }

    /// Calls a function like [`Adapter::with`], then drives the adapter. For calls that may start
    /// connections, events or timers.
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

    /// Calls the due agents of CNOs. The caller must not hold the lock: agents may make any call.
    pub(crate) fn call_agents(&self) {
        let due = std::mem::take(&mut *self.due.lock().unwrap_or_else(PoisonError::into_inner));
        for due in due {
            due.call();
        }
    }

    /// Returns whether no agent is due.
    fn nothing_due(&self) -> bool {
        self.due.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// Returns the C handle of an object; null if it has none.
    #[inline(always)]
    pub(crate) fn handle_of<N: Name>(&self, name: N) -> DatHandle {
        self.object_of(name).map_or(DatHandle::NULL, Object::handle)
    }

    /// Returns the object of a `dat_core` handle.
    #[inline(always)]
    pub(crate) fn object_of<N: Name>(&self, name: N) -> Option<&'static Object<V>> {
        let object = self.place(N::KIND, name.place())?.load(Ordering::Acquire);
        let object = Object::of_place(object)?;
        if object.is(name) { Some(object) } else { stale() }
    }

    /// Records the object of a `dat_core` handle.
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

    /// Returns the C handle of an object of any kind.
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

/// Answers for a place whose object is another one by now.
#[cold]
#[inline(never)]
fn stale<T>() -> Option<T> {
    None
}
