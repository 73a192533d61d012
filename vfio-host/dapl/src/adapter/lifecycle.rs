//! Opening and closing of an HCA: the first Interface Adapter opens it, the last to close closes
//! it.

use std::ffi::CStr;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use dat_core::{
    Cno, Cr, Csp, DatReturn, DatSubtype, DatType, Error, Evd, EvdFlags, Psp, Pz, Rmr, Rsp, Srq,
};
use heapless::Vec as Few;
use vfio_host::error::Kind as Reason;

use super::{Adapter, Open};
use crate::abi::DatHandle;
use crate::combine::ROOM;
use crate::log::{Level, say};
use crate::object::{Kind, Name, Note, Object};
use crate::variant::{Table, Variant};

/// Longest time for waiters to leave when their Interface Adapter is closed.
const PATIENCE: Duration = Duration::from_secs(5);
/// Time between two polls of that wait.
const LOOK: Duration = Duration::from_millis(1);

/// The destination of asynchronous errors of an Interface Adapter.
#[derive(Clone, Copy, Debug)]
pub(crate) enum AsyncEvd<V: Variant> {
    /// An Event Dispatcher of that length, created with it.
    New(u32),
    /// That of another Interface Adapter.
    None,
    /// This Event Dispatcher.
    Given(&'static Object<V>),
}

/// Why an Interface Adapter could not be opened.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// The device or its host.
    Host(vfio_host::Error),
    /// The adapter.
    Dat(Error),
}

impl Refusal {
    /// Returns the code for the consumer.
    pub(crate) fn ret(&self) -> DatReturn {
        match self {
            Self::Dat(error) => error.ret(),
            Self::Host(error) if error.kind() == Reason::NotFound => {
                DatReturn::new(DatType::ProviderNotFound, DatSubtype::NameNotFound)
            }
            Self::Host(_) => {
                DatReturn::new(DatType::InsufficientResources, DatSubtype::ResourceDevice)
            }
        }
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Host(error) => error.fmt(f),
            Self::Dat(error) => error.fmt(f),
        }
    }
}

impl<V: Variant> Adapter<V> {
    /// Opens an Interface Adapter, and the HCA with the first.
    pub(crate) fn enter(
        &'static self,
        (name, table): (&'static CStr, &'static Table),
        async_evd: AsyncEvd<V>,
    ) -> Result<&'static Object<V>, Refusal> {
        let _opening = self.opening.lock().unwrap_or_else(PoisonError::into_inner);
        self.process.store(std::process::id(), Ordering::Relaxed);
        let mut control = self.lock();
        let open = match &mut *control {
            Some(open) => open,
            none => none.insert(Open::new(self).map_err(Refusal::Host)?),
        };
        self.ep_attr_default.get_or_init(|| open.nic().ep_attr_default());
        let ia = V::objects().take();
        ia.begin_ia(table, self);
        open.ias.push(ia);
        let made = match async_evd {
            AsyncEvd::New(qlen) => match open.nic().evd_create(qlen, EvdFlags::ASYNC) {
                Ok(evd) => Ok((open.adopt(ia, evd), true)),
                Err(error) => Err(error),
            },
            AsyncEvd::None => Ok((DatHandle::NULL, false)),
            AsyncEvd::Given(evd) => Ok((evd.handle(), false)),
        };
        match made {
            Ok((async_evd, own)) => {
                *ia.note() = Note::Ia { name, async_evd, own };
                Ok(ia)
            }
            Err(error) => {
                drop(control);
                self.let_go(ia);
                Err(Refusal::Dat(error))
            }
        }
    }

    /// Closes an Interface Adapter. Graceful: `INVALID_STATE`/`IA_IN_USE` if objects of the
    /// consumer are left. Abrupt: frees them all.
    pub(crate) fn leave(
        &'static self,
        ia: &'static Object<V>,
        graceful: bool,
    ) -> Result<(), Error> {
        let _opening = self.opening.lock().unwrap_or_else(PoisonError::into_inner);
        if ia.kind() != Kind::Ia {
            return Err(Kind::Ia.invalid().into());
        }
        let own = u32::from(matches!(*ia.note(), Note::Ia { own: true, .. }));
        if graceful && ia.children.load(Ordering::Relaxed) > own {
            return Err(Error::new(DatType::InvalidState, DatSubtype::InvalidStateIaInUse));
        }
        self.end(ia);
        self.let_go(ia);
        Ok(())
    }

    /// Closes all Interface Adapters, because the library is unloaded. Those that a child of a fork
    /// has of its parent are the parent's.
    pub(crate) fn close_all(&'static self) {
        if self.process.load(Ordering::Relaxed) != std::process::id() {
            return;
        }
        let _opening = self.opening.lock().unwrap_or_else(PoisonError::into_inner);
        let ias = self.lock().as_ref().map(|open| open.ias.clone());
        for ia in ias.unwrap_or_default() {
            self.end(ia);
            self.let_go(ia);
        }
    }

    /// Frees all objects of an Interface Adapter.
    fn end(&'static self, ia: &'static Object<V>) {
        let mut all = Vec::new();
        V::objects().each(|object| {
            let kind = object.kind();
            if !matches!(kind, Kind::Freed | Kind::Ia) && std::ptr::eq(object.ia(), ia) {
                all.push((kind, object));
            }
        });
        // From here on every call finds the handles invalid. Waiters are woken and return.
        for (_, object) in &all {
            object.bury();
        }
        ia.bury();
        self.dismiss(ia);
        if let Some(open) = self.lock().as_mut() {
            open.end_all(&all);
            open.drive();
        }
    }

    /// Wakes the waiters on objects of `ia` until all have left.
    fn dismiss(&'static self, ia: &'static Object<V>) {
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            let mut waiting = false;
            if let Some(open) = self.lock().as_ref() {
                for sleeper in open.sleepers.iter().filter(|s| std::ptr::eq(s.object.ia(), ia)) {
                    waiting = true;
                    sleeper.bell.ring();
                }
            }
            if !waiting {
                return;
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Removes an Interface Adapter without objects, and closes the HCA with the last.
    fn let_go(&'static self, ia: &'static Object<V>) {
        let mut control = self.lock();
        let Some(open) = control.as_mut() else { return };
        open.ias.retain(|other| !std::ptr::eq(*other, ia));
        ia.end();
        if !open.ias.is_empty() {
            return;
        }
        let Some(mut open) = control.take() else {
            return;
        };
        drop(control);
        open.stop.store(true, Ordering::Release);
        open.poke();
        if let Some(thread) = open.thread.take() {
            // An error means that the thread has panicked, so it has ended too.
            let _ = thread.join();
        }
        open.close();
    }
}

impl<V: Variant> Open<V> {
    /// Frees those objects, users before the objects that they use.
    fn end_all(&mut self, all: &[(Kind, &'static Object<V>)]) {
        for (_, object) in all {
            self.stray |= self.recall(object).is_err();
        }
        self.each(all, |open, _, evd: Evd| {
            // Queued connection requests are rejected.
            while let Ok(event) = open.nic().evd_dequeue(evd) {
                if let Some(cr) = event.request() {
                    let _ = open.nic().cr_reject(cr, &[]);
                }
            }
            Ok(())
        });
        self.each(all, |open, object, cr: Cr| {
            open.nic().cr_reject(cr, &[])?;
            open.disown(object, cr);
            Ok(())
        });
        self.each(all, |open, object, rsp: Rsp| {
            let now = open.nic().now();
            open.nic().rsp_free(now, rsp)?;
            open.disown(object, rsp);
            Ok(())
        });
        self.each(all, |open, object, psp: Psp| {
            open.nic().psp_free(psp)?;
            open.disown(object, psp);
            Ok(())
        });
        self.each(all, |open, object, csp: Csp| {
            open.nic().csp_free(csp)?;
            open.disown(object, csp);
            Ok(())
        });
        self.each_few(all, Self::free_eps);
        self.each(all, |open, object, srq: Srq| {
            open.nic().srq_free(srq)?;
            open.disown(object, srq);
            Ok(())
        });
        self.each(all, |open, object, rmr: Rmr| {
            open.nic().rmr_free(rmr)?;
            open.disown(object, rmr);
            Ok(())
        });
        self.each_few(all, Self::free_lmrs);
        self.each(all, |open, object, evd: Evd| {
            open.nic().evd_free(evd)?;
            open.disown(object, evd);
            Ok(())
        });
        self.each(all, |open, object, cno: Cno| {
            open.nic().cno_free(cno)?;
            open.disown(object, cno);
            Ok(())
        });
        self.each(all, |open, object, pz: Pz| {
            open.nic().pz_free(pz)?;
            open.disown(object, pz);
            Ok(())
        });
    }

    /// Calls `what` for a few objects of one kind at a time. Errors are logged, as by
    /// [`Open::each`].
    fn each_few<N: Name>(
        &mut self,
        all: &[(Kind, &'static Object<V>)],
        what: impl Fn(&mut Self, &[(&'static Object<V>, N)]) -> Few<Result<(), Error>, ROOM>,
    ) {
        let mut named = all
            .iter()
            .filter(|(kind, _)| *kind == N::KIND)
            .map(|(_, object)| (*object, object.former::<N>()));
        loop {
            let some: Few<_, ROOM> = named.by_ref().take(ROOM).collect();
            if some.is_empty() {
                return;
            }
            for error in what(self, &some).into_iter().filter_map(Result::err) {
                say(Level::Debug, format_args!("closing: {:?}: {error}", N::KIND));
            }
        }
    }

    /// Calls `what` for each object of one kind. Errors are logged; such an object stays until the
    /// HCA is closed.
    fn each<N: Name>(
        &mut self,
        all: &[(Kind, &'static Object<V>)],
        mut what: impl FnMut(&mut Self, &'static Object<V>, N) -> Result<(), Error>,
    ) {
        for (_, object) in all.iter().filter(|(kind, _)| *kind == N::KIND) {
            if let Err(error) = what(self, object, object.former()) {
                say(Level::Debug, format_args!("closing: {:?}: {error}", N::KIND));
            }
        }
    }
}
