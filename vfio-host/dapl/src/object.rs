//! Handles: what a consumer holds is the address of an [`Object`].
//!
//! An object begins with the address of its dispatch table, which the registry follows without
//! looking. So the place of an object is never given back to the system, and a place that was freed
//! is used again only after many others: a handle that a consumer kept too long finds something
//! that says "freed". What kind it is, and what `dat_core` calls it, stands in it. The generation
//! in that name makes a stale one known to `dat_core` as well.
#![expect(
    unsafe_code,
    reason = "an address that a consumer hands over becomes a reference, once it is known to be of an object"
)]

use std::collections::VecDeque;
use std::ffi::CStr;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError, RwLock};

use dat_core::{
    AnyHandle, Cno, Cr, Csp, DatReturn, DatSubtype, DatType, Ep, Evd, HandleType, Lmr, Psp, Pz,
    Rmr, Rsp, Srq,
};

use crate::abi::number::DAT_WATERMARK_INFINITE;
use crate::abi::sockaddr::SockAddr;
use crate::abi::{Count, DatHandle};
use crate::adapter::Adapter;
use crate::gate::Gate;
use crate::variant::{Half, Table, Variant};

/// Objects made at a time.
const CHUNK: usize = 64;
/// Freed objects that lie still before the first of them is used again.
const REST: usize = 1024;

/// What kind of object it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Kind {
    /// None any more.
    Freed,
    Ia,
    Pz,
    Evd,
    Cno,
    Ep,
    Psp,
    Rsp,
    Csp,
    Cr,
    Lmr,
    Rmr,
    Srq,
}

impl Kind {
    /// How many there are.
    pub(crate) const COUNT: usize = 13;

    const ALL: [Self; Self::COUNT] = [
        Self::Freed,
        Self::Ia,
        Self::Pz,
        Self::Evd,
        Self::Cno,
        Self::Ep,
        Self::Psp,
        Self::Rsp,
        Self::Csp,
        Self::Cr,
        Self::Lmr,
        Self::Rmr,
        Self::Srq,
    ];

    fn of_word(word: u32) -> Self {
        let place = usize::try_from(word).unwrap_or(0);
        Self::ALL.get(place).copied().unwrap_or(Self::Freed)
    }

    /// `INVALID_HANDLE` of that kind.
    pub(crate) const fn invalid(self) -> DatReturn {
        let subtype = match self {
            Self::Freed => DatSubtype::None,
            Self::Ia => DatSubtype::InvalidHandleIa,
            Self::Pz => DatSubtype::InvalidHandlePz,
            Self::Evd => DatSubtype::InvalidHandle1,
            Self::Cno => DatSubtype::InvalidHandleCno,
            Self::Ep => DatSubtype::InvalidHandleEp,
            Self::Psp => DatSubtype::InvalidHandlePsp,
            Self::Rsp => DatSubtype::InvalidHandleRsp,
            Self::Csp => DatSubtype::InvalidHandleCsp,
            Self::Cr => DatSubtype::InvalidHandleCr,
            Self::Lmr => DatSubtype::InvalidHandleLmr,
            Self::Rmr => DatSubtype::InvalidHandleRmr,
            Self::Srq => DatSubtype::InvalidHandleSrq,
        };
        DatReturn::new(DatType::InvalidHandle, subtype)
    }
}

/// What `dat_core` calls an object of one kind.
pub(crate) trait Name: Copy + Into<AnyHandle> {
    /// The kind.
    const KIND: Kind;
    /// The name of that word.
    fn of(raw: u64) -> Self;
    /// Its word.
    fn word(self) -> u64;
    /// Its place among those of its kind.
    fn place(self) -> u32;
}

macro_rules! names {
    ($($name:ident),*) => {
        $(impl Name for $name {
            const KIND: Kind = Kind::$name;
            fn of(raw: u64) -> Self {
                Self::from_raw(raw)
            }
            fn word(self) -> u64 {
                self.raw()
            }
            fn place(self) -> u32 {
                self.index()
            }
        })*
    };
}

names!(Cno, Cr, Csp, Ep, Evd, Lmr, Psp, Pz, Rmr, Rsp, Srq);

/// One object, as C holds it.
#[repr(C)]
pub(crate) struct Object<V: Variant> {
    /// What the registry calls through. First, and never null.
    table: AtomicPtr<Table>,
    kind: AtomicU32,
    /// What `dat_core` calls it.
    name: AtomicU64,
    /// The data half, of an Endpoint, an Event Dispatcher or a Shared Receive Queue, while it is
    /// out.
    pub(crate) half: Gate<Half<V>>,
    /// The Interface Adapter it was made on; null of one of those.
    ia: AtomicPtr<Object<V>>,
    /// The HCA beneath.
    adapter: AtomicPtr<Adapter<V>>,
    /// The consumer's own word.
    pub(crate) context: AtomicU64,
    /// Of an Event Dispatcher: what a dequeue returns that finds nothing.
    pub(crate) nothing: AtomicU32,
    /// Of an Event Dispatcher: flags that `dat_core` has no streams for.
    pub(crate) more_flags: AtomicU32,
    /// Of an Endpoint: soft and hard high watermark, as C has them.
    watermarks: [AtomicI32; 2],
    /// Of an Interface Adapter: objects made on it.
    pub(crate) children: AtomicU32,
    /// What goes with one kind of object only.
    note: Mutex<Note>,
    /// Whom it is connected to, for who asks for the address of the address.
    peer: Mutex<Option<Box<SockAddr>>>,
}

/// What goes with one kind of object only.
#[derive(Debug, Default)]
pub(crate) enum Note {
    /// Nothing.
    #[default]
    None,
    /// Bytes that an event or a query has given the address of: they stay until the object is
    /// freed, or the note replaced.
    Bytes(Box<[u8]>),
    /// Of an Interface Adapter: its asynchronous Event Dispatcher, and whether that was made with
    /// it.
    Ia {
        /// The name it was opened by.
        name: &'static CStr,
        /// The Event Dispatcher's handle, null if another one serves.
        async_evd: DatHandle,
        /// It goes with the Interface Adapter.
        own: bool,
    },
    /// Of an LMR: what it was made of.
    Lmr(crate::call::LmrMade),
    /// Of a Common Service Point: what it was made with.
    Csp(Box<crate::call::CspMade>),
    /// Of a CNO: its agent, as C has it: instance and function.
    Agent(crate::call::Agent),
}

impl<V: Variant> Object<V> {
    fn new() -> Self {
        Self {
            table: AtomicPtr::new(std::ptr::from_ref(V::TABLE).cast_mut()),
            kind: AtomicU32::new(Kind::Freed as u32),
            name: AtomicU64::new(0),
            half: Gate::new(),
            ia: AtomicPtr::new(std::ptr::null_mut()),
            adapter: AtomicPtr::new(std::ptr::null_mut()),
            context: AtomicU64::new(0),
            nothing: AtomicU32::new(DatReturn::QUEUE_EMPTY.raw()),
            more_flags: AtomicU32::new(0),
            watermarks: [const { AtomicI32::new(DAT_WATERMARK_INFINITE) }; 2],
            children: AtomicU32::new(0),
            note: Mutex::new(Note::None),
            peer: Mutex::new(None),
        }
    }

    /// The handle of this object.
    pub(crate) fn handle(&'static self) -> DatHandle {
        DatHandle(std::ptr::from_ref(self).cast_mut().cast())
    }

    /// The object behind the first handle of a call: the registry has followed it to a table of
    /// ours.
    #[inline(always)]
    pub(crate) fn called(handle: DatHandle) -> &'static Self {
        // SAFETY: the registry has read our table's address where this points, and called this
        // library through it. Our objects alone begin with it, and are never given back.
        unsafe { &*handle.0.cast::<Self>().cast_const() }
    }

    /// The object of that handle, whatever it is by now; `None` if the address is of no object.
    pub(crate) fn find(handle: DatHandle) -> Option<&'static Self> {
        V::objects().at(handle)
    }

    /// The object in a place of a table of objects.
    #[inline(always)]
    pub(crate) fn of_place(object: *mut Self) -> Option<&'static Self> {
        // SAFETY: it is null or the address of an object, which are never given back.
        unsafe { object.as_ref() }
    }

    /// Whether `dat_core` calls it that.
    #[inline(always)]
    pub(crate) fn is<N: Name>(&self, name: N) -> bool {
        self.name.load(Ordering::Relaxed) == name.word()
    }

    /// What `dat_core` calls the object of another handle of a call. It has to be of the same HCA,
    /// on whatever Interface Adapter it was made: consumers that open one several times mix
    /// them.
    pub(crate) fn sibling<N: Name>(&'static self, handle: DatHandle) -> Result<N, DatReturn> {
        let object = Self::find(handle).ok_or(N::KIND.invalid())?;
        let name = object.name()?;
        if object.adapter.load(Ordering::Acquire) == self.adapter.load(Ordering::Acquire) {
            Ok(name)
        } else {
            Err(N::KIND.invalid())
        }
    }

    /// The same of a handle that may be null.
    pub(crate) fn sibling_or_none<N: Name>(
        &'static self,
        handle: DatHandle,
    ) -> Result<Option<N>, DatReturn> {
        if handle.is_null() {
            return Ok(None);
        }
        self.sibling(handle).map(Some)
    }

    /// What it is now.
    pub(crate) fn kind(&self) -> Kind {
        Kind::of_word(self.kind.load(Ordering::Acquire))
    }

    /// What `dat_core` calls it, if it is of that kind.
    pub(crate) fn name<N: Name>(&self) -> Result<N, DatReturn> {
        if self.kind() == N::KIND {
            Ok(N::of(self.name.load(Ordering::Acquire)))
        } else {
            Err(N::KIND.invalid())
        }
    }

    /// What `dat_core` called it while it lived, or calls it.
    pub(crate) fn former<N: Name>(&self) -> N {
        N::of(self.name.load(Ordering::Acquire))
    }

    /// The Interface Adapter it belongs to; itself, if it is one.
    pub(crate) fn ia(&'static self) -> &'static Self {
        Self::of_place(self.ia.load(Ordering::Acquire)).unwrap_or(self)
    }

    /// The HCA beneath. `INVALID_HANDLE` of a place that never was an object.
    #[inline]
    pub(crate) fn adapter(&self) -> Result<&'static Adapter<V>, DatReturn> {
        let adapter = self.adapter.load(Ordering::Acquire);
        // SAFETY: it is null or the address of an adapter, which are never given back.
        unsafe { adapter.as_ref() }.ok_or(Kind::Ia.invalid())
    }

    /// The kind of handle in DAT's number; `None` if it is freed.
    pub(crate) fn handle_type(&self) -> Option<HandleType> {
        Some(match self.kind() {
            Kind::Freed => return None,
            Kind::Ia => HandleType::Ia,
            Kind::Pz => HandleType::Pz,
            Kind::Evd => HandleType::Evd,
            Kind::Cno => HandleType::Cno,
            Kind::Ep => HandleType::Ep,
            Kind::Psp => HandleType::Psp,
            Kind::Rsp => HandleType::Rsp,
            Kind::Csp => HandleType::Csp,
            Kind::Cr => HandleType::Cr,
            Kind::Lmr => HandleType::Lmr,
            Kind::Rmr => HandleType::Rmr,
            Kind::Srq => HandleType::Srq,
        })
    }

    /// Keeps bytes with the object and gives their address: the same for as long as they are the
    /// same. Others that it kept before go.
    pub(crate) fn keep(&self, bytes: &[u8]) -> *const u8 {
        let mut note = self.note();
        if let Note::Bytes(kept) = &*note
            && **kept == *bytes
        {
            return kept.as_ptr();
        }
        let kept: Box<[u8]> = bytes.into();
        let at = kept.as_ptr();
        *note = Note::Bytes(kept);
        at
    }

    /// Notes the soft and the hard high watermark of an Endpoint.
    pub(crate) fn set_watermarks(&self, marks: [Count; 2]) {
        for (place, mark) in self.watermarks.iter().zip(marks) {
            place.store(mark, Ordering::Relaxed);
        }
    }

    /// Returns the soft and the hard high watermark of an Endpoint, as they were set.
    pub(crate) fn watermarks(&self) -> [Count; 2] {
        self.watermarks.each_ref().map(|place| place.load(Ordering::Relaxed))
    }

    /// Keeps the address of a peer with the object, until it is freed, and gives the address of
    /// that.
    pub(crate) fn keep_peer(&self, peer: SockAddr) -> *const SockAddr {
        let mut kept = self.peer.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = kept.get_or_insert_default();
        **kept = peer;
        std::ptr::from_ref(&**kept)
    }

    /// What goes with it.
    pub(crate) fn note(&self) -> std::sync::MutexGuard<'_, Note> {
        self.note.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a fresh place an object.
    pub(crate) fn begin(
        &'static self,
        kind: Kind,
        name: u64,
        ia: Option<&'static Self>,
        adapter: &'static Adapter<V>,
    ) {
        let ia = ia.map_or(std::ptr::null_mut(), |ia| std::ptr::from_ref(ia).cast_mut());
        self.name.store(name, Ordering::Relaxed);
        self.ia.store(ia, Ordering::Relaxed);
        self.adapter.store(std::ptr::from_ref(adapter).cast_mut(), Ordering::Relaxed);
        self.context.store(0, Ordering::Relaxed);
        self.children.store(0, Ordering::Relaxed);
        // What an earlier object in this place has left.
        self.nothing.store(DatReturn::QUEUE_EMPTY.raw(), Ordering::Relaxed);
        self.more_flags.store(0, Ordering::Relaxed);
        self.set_watermarks([DAT_WATERMARK_INFINITE; 2]);
        // ORDER: everything about it precedes the kind, without which nobody looks.
        self.kind.store(kind as u32, Ordering::Release);
    }

    /// Makes a fresh place an Interface Adapter. Its table has the name in it that it was opened
    /// by, which the registry looks for when it is closed.
    pub(crate) fn begin_ia(&'static self, table: &'static Table, adapter: &'static Adapter<V>) {
        self.table.store(std::ptr::from_ref(table).cast_mut(), Ordering::Release);
        self.begin(Kind::Ia, 0, None, adapter);
    }

    /// Ends an object whose half is home. The place stays readable.
    pub(crate) fn end(&'static self) {
        self.kind.store(Kind::Freed as u32, Ordering::Release);
        let table = std::ptr::from_ref(V::TABLE).cast_mut();
        self.table.store(table, Ordering::Release);
        *self.note() = Note::None;
        V::objects().give_back(self);
    }

    /// Its handle is dead from now on, though the place is not free yet.
    pub(crate) fn bury(&self) {
        self.kind.store(Kind::Freed as u32, Ordering::Release);
    }
}

impl<V: Variant> std::fmt::Debug for Object<V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} at {:p}", self.kind(), self)
    }
}

/// All objects of one variant of the library.
pub(crate) struct Objects<V: Variant> {
    /// Never shortened, and their elements never moved.
    chunks: RwLock<Vec<&'static [Object<V>]>>,
    /// Those that are free, the one that has been so for longest first.
    free: Mutex<VecDeque<&'static Object<V>>>,
}

impl<V: Variant> Objects<V> {
    pub(crate) const fn new() -> Self {
        Self { chunks: RwLock::new(Vec::new()), free: Mutex::new(VecDeque::new()) }
    }

    /// A place for an object.
    pub(crate) fn take(&self) -> &'static Object<V> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            // A fresh place goes before one that was used a short while ago.
            let rested = free.len() > REST
                || free
                    .front()
                    .is_some_and(|object| object.adapter.load(Ordering::Relaxed).is_null());
            if rested && let Some(object) = free.pop_front() {
                return object;
            }
            for object in self.more().iter().rev() {
                free.push_front(object);
            }
        }
    }

    /// Fresh places, made where they stay: a consumer's threads may have small stacks.
    fn more(&self) -> &'static [Object<V>] {
        let chunk: Vec<_> = std::iter::repeat_with(Object::new).take(CHUNK).collect();
        let chunk: &'static [Object<V>] = chunk.leak();
        let mut chunks = self.chunks.write().unwrap_or_else(PoisonError::into_inner);
        let at = chunks.partition_point(|other| other.as_ptr() < chunk.as_ptr());
        chunks.insert(at, chunk);
        chunk
    }

    fn give_back(&self, object: &'static Object<V>) {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        free.push_back(object);
    }

    /// The object at that address, if there is one.
    fn at(&self, handle: DatHandle) -> Option<&'static Object<V>> {
        let chunks = self.chunks.read().unwrap_or_else(PoisonError::into_inner);
        let wanted = handle.0.cast::<Object<V>>().cast_const();
        let after = chunks.partition_point(|chunk| chunk.as_ptr() <= wanted);
        let chunk = chunks.get(after.checked_sub(1)?)?;
        let distance = wanted.addr().checked_sub(chunk.as_ptr().addr())?;
        if !distance.is_multiple_of(size_of::<Object<V>>()) {
            return None;
        }
        chunk.get(distance / size_of::<Object<V>>())
    }

    /// Every place that there is.
    pub(crate) fn each(&self, mut see: impl FnMut(&'static Object<V>)) {
        let chunks = self.chunks.read().unwrap_or_else(PoisonError::into_inner);
        for object in chunks.iter().flat_map(|chunk| chunk.iter()) {
            see(object);
        }
    }
}
