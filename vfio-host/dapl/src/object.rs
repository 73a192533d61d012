//! Handles: the handle that a consumer holds is the address of an [`Object`].
//!
//! An object begins with the address of its dispatch table, which the registry dereferences without
//! a check. So the memory of an object is never returned to the system, and a freed object is
//! reused only after many others: a stale handle finds an object of kind `Freed`. An object holds
//! its kind and its `dat_core` handle, whose generation lets `dat_core` detect stale handles as
//! well.
#![expect(
    unsafe_code,
    reason = "turns an address from a consumer into a reference, after checking that it is of an object"
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
use crate::variant::{DataQueue, Table, Variant};

/// Number of objects allocated at a time.
const CHUNK: usize = 64;
/// Number of objects that must be freed after an object before that is reused.
const REST: usize = 1024;

/// The kind of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Kind {
    /// Freed.
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
    /// Number of kinds.
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

    /// Returns `INVALID_HANDLE` of that kind.
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

/// A `dat_core` handle of one kind.
pub(crate) trait Name: Copy + Into<AnyHandle> {
    /// The kind.
    const KIND: Kind;
    /// Makes the handle of a word.
    fn of(raw: u64) -> Self;
    /// Returns its word.
    fn word(self) -> u64;
    /// Returns its index in the table of its kind.
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

/// The object behind a C handle.
#[repr(C)]
pub(crate) struct Object<V: Variant> {
    /// The dispatch table that the registry calls through. The first field, never null.
    table: AtomicPtr<Table>,
    kind: AtomicU32,
    /// Its `dat_core` handle.
    name: AtomicU64,
    /// The poster or reaper of an Endpoint, an Event Dispatcher or a Shared Receive Queue.
    pub(crate) queue: Gate<DataQueue<V>>,
    /// The Interface Adapter that it belongs to; null for an Interface Adapter.
    ia: AtomicPtr<Object<V>>,
    /// The HCA.
    adapter: AtomicPtr<Adapter<V>>,
    /// The consumer context.
    pub(crate) context: AtomicU64,
    /// Event Dispatcher: the code that a dequeue of an empty queue returns.
    pub(crate) nothing: AtomicU32,
    /// Event Dispatcher: flags for which `dat_core` has no streams.
    pub(crate) more_flags: AtomicU32,
    /// Endpoint: soft and hard high watermark, as C has them.
    watermarks: [AtomicI32; 2],
    /// Interface Adapter: number of its objects.
    pub(crate) children: AtomicU32,
    /// Data of one kind of object only.
    note: Mutex<Note>,
    /// Address of the peer, which queries return a pointer to.
    peer: Mutex<Option<Box<SockAddr>>>,
}

/// Data of one kind of object only.
#[derive(Debug, Default)]
pub(crate) enum Note {
    /// Nothing.
    #[default]
    None,
    /// Bytes whose address an event or a query has returned. Kept until the object is freed or the
    /// note replaced.
    Bytes(Box<[u8]>),
    /// Of an Interface Adapter.
    Ia {
        /// The name it was opened by.
        name: &'static CStr,
        /// The handle of its asynchronous Event Dispatcher; null if another one serves.
        async_evd: DatHandle,
        /// The Event Dispatcher is freed with the Interface Adapter.
        own: bool,
    },
    /// Of an LMR: the arguments of its creation.
    Lmr(crate::call::LmrMade),
    /// Of a Common Service Point: the arguments of its creation.
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
            queue: Gate::new(),
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

    /// Returns the handle of this object.
    pub(crate) fn handle(&'static self) -> DatHandle {
        DatHandle(std::ptr::from_ref(self).cast_mut().cast())
    }

    /// Returns the object of the first handle of a call. The registry has called through its table,
    /// so it is an object of this library.
    #[inline(always)]
    pub(crate) fn called(handle: DatHandle) -> &'static Self {
        // SAFETY: the registry has read our table's address there and called this library through
        // it. Only our objects begin with that address, and they are never freed.
        unsafe { &*handle.0.cast::<Self>().cast_const() }
    }

    /// Returns the object at the address of a handle, of any kind; `None` if there is none.
    pub(crate) fn find(handle: DatHandle) -> Option<&'static Self> {
        V::objects().at(handle)
    }

    /// Returns the object of an entry in a table of objects.
    #[inline(always)]
    pub(crate) fn of_place(object: *mut Self) -> Option<&'static Self> {
        // SAFETY: it is null or the address of an object, and objects are never freed.
        unsafe { object.as_ref() }
    }

    /// Returns whether its `dat_core` handle is `name`.
    #[inline(always)]
    pub(crate) fn is<N: Name>(&self, name: N) -> bool {
        self.name.load(Ordering::Relaxed) == name.word()
    }

    /// Returns the `dat_core` handle of another handle of a call. It has to be of the same HCA, but
    /// may be of another Interface Adapter: consumers that open an HCA several times mix them.
    pub(crate) fn sibling<N: Name>(&'static self, handle: DatHandle) -> Result<N, DatReturn> {
        let object = Self::find(handle).ok_or(N::KIND.invalid())?;
        let name = object.name()?;
        if object.adapter.load(Ordering::Acquire) == self.adapter.load(Ordering::Acquire) {
            Ok(name)
        } else {
            Err(N::KIND.invalid())
        }
    }

    /// Returns the same for a handle that may be null.
    pub(crate) fn sibling_or_none<N: Name>(
        &'static self,
        handle: DatHandle,
    ) -> Result<Option<N>, DatReturn> {
        if handle.is_null() {
            return Ok(None);
        }
        self.sibling(handle).map(Some)
    }

    /// Returns its current kind.
    pub(crate) fn kind(&self) -> Kind {
        Kind::of_word(self.kind.load(Ordering::Acquire))
    }

    /// Returns its `dat_core` handle, if it is of that kind.
    pub(crate) fn name<N: Name>(&self) -> Result<N, DatReturn> {
        if self.kind() == N::KIND {
            Ok(N::of(self.name.load(Ordering::Acquire)))
        } else {
            Err(N::KIND.invalid())
        }
    }

    /// Returns its `dat_core` handle, also after it was freed.
    pub(crate) fn former<N: Name>(&self) -> N {
        N::of(self.name.load(Ordering::Acquire))
    }

    /// Returns the Interface Adapter that it belongs to; itself, if it is one.
    pub(crate) fn ia(&'static self) -> &'static Self {
        Self::of_place(self.ia.load(Ordering::Acquire)).unwrap_or(self)
    }

    /// Returns the HCA. `INVALID_HANDLE` if it was never in use.
    #[inline]
    pub(crate) fn adapter(&self) -> Result<&'static Adapter<V>, DatReturn> {
        let adapter = self.adapter.load(Ordering::Acquire);
        // SAFETY: it is null or the address of an adapter, and adapters are never freed.
        unsafe { adapter.as_ref() }.ok_or(Kind::Ia.invalid())
    }

    /// Returns DAT's handle type; `None` if it is freed.
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

    /// Stores bytes with the object and returns their address, which stays the same while the bytes
    /// do. Frees other bytes stored before.
    pub(crate) fn keep(&self, bytes: &[u8]) -> *const u8 {
        let mut note = self.note();
        if let Note::Bytes(kept) = &*note {
            if **kept == *bytes {
                return kept.as_ptr();
            }
        }
        let kept: Box<[u8]> = bytes.into();
        let at = kept.as_ptr();
        *note = Note::Bytes(kept);
        at
    }

    /// Stores the soft and the hard high watermark of an Endpoint.
    pub(crate) fn set_watermarks(&self, marks: [Count; 2]) {
        for (place, mark) in self.watermarks.iter().zip(marks) {
            place.store(mark, Ordering::Relaxed);
        }
    }

    /// Returns the soft and the hard high watermark of an Endpoint, as they were set.
    pub(crate) fn watermarks(&self) -> [Count; 2] {
        self.watermarks.each_ref().map(|place| place.load(Ordering::Relaxed))
    }

    /// Stores the address of the peer until the object is freed. Returns a pointer to it.
    pub(crate) fn keep_peer(&self, peer: SockAddr) -> *const SockAddr {
        let mut kept = self.peer.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = kept.get_or_insert_default();
        **kept = peer;
        std::ptr::from_ref(&**kept)
    }

    /// Locks its note.
    pub(crate) fn note(&self) -> std::sync::MutexGuard<'_, Note> {
        self.note.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Initializes an unused object.
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
        // Reset fields that the previous use has left.
        self.nothing.store(DatReturn::QUEUE_EMPTY.raw(), Ordering::Relaxed);
        self.more_flags.store(0, Ordering::Relaxed);
        self.set_watermarks([DAT_WATERMARK_INFINITE; 2]);
        // ORDER: all other fields precede the kind, which makes the object visible.
        self.kind.store(kind as u32, Ordering::Release);
    }

    /// Initializes an unused object as an Interface Adapter. Its table has the name that it was
    /// opened by, which the registry looks up when it is closed.
    pub(crate) fn begin_ia(&'static self, table: &'static Table, adapter: &'static Adapter<V>) {
        self.table.store(std::ptr::from_ref(table).cast_mut(), Ordering::Release);
        self.begin(Kind::Ia, 0, None, adapter);
    }

    /// Frees an object whose gate is shut. Its memory stays readable.
    pub(crate) fn end(&'static self) {
        self.kind.store(Kind::Freed as u32, Ordering::Release);
        let table = std::ptr::from_ref(V::TABLE).cast_mut();
        self.table.store(table, Ordering::Release);
        *self.note() = Note::None;
        V::objects().give_back(self);
    }

    /// Invalidates its handle, although the object is not free for reuse yet.
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
    /// Never shortened; elements are never moved.
    chunks: RwLock<Vec<&'static [Object<V>]>>,
    /// Free objects, the one freed first at the front.
    free: Mutex<VecDeque<&'static Object<V>>>,
}

impl<V: Variant> Objects<V> {
    pub(crate) const fn new() -> Self {
        Self { chunks: RwLock::new(Vec::new()), free: Mutex::new(VecDeque::new()) }
    }

    /// Takes an unused object.
    pub(crate) fn take(&self) -> &'static Object<V> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            // A new object is preferred to a recently freed one.
            let rested = free.len() > REST
                || free
                    .front()
                    .is_some_and(|object| object.adapter.load(Ordering::Relaxed).is_null());
            if rested {
                if let Some(object) = free.pop_front() {
                    return object;
                }
            }
            for object in self.more().iter().rev() {
                free.push_front(object);
            }
        }
    }

    /// Allocates new objects in place, not on the stack: threads of a consumer may have small
    /// stacks.
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

    /// Returns the object at that address, if there is one.
    fn at(&self, handle: DatHandle) -> Option<&'static Object<V>> {
        let chunks = self.chunks.read().unwrap_or_else(PoisonError::into_inner);
        let wanted = handle.0.cast::<Object<V>>().cast_const();
        let after = chunks.partition_point(|chunk| chunk.as_ptr() <= wanted);
        let chunk = chunks.get(after.checked_sub(1)?)?;
        let distance = wanted.addr().checked_sub(chunk.as_ptr().addr())?;
        if distance % size_of::<Object<V>>() != 0 {
            return None;
        }
        chunk.get(distance / size_of::<Object<V>>())
    }

    /// Calls a function for every object, free or in use.
    pub(crate) fn each(&self, mut see: impl FnMut(&'static Object<V>)) {
        let chunks = self.chunks.read().unwrap_or_else(PoisonError::into_inner);
        for object in chunks.iter().flat_map(|chunk| chunk.iter()) {
            see(object);
        }
    }
}
