//! The interface to the stock registry: the symbols that it looks up in a provider, and its calls
//! for providers.
//!
//! The registry's calls are looked up by name in the process, so this library can be loaded without
//! it.
#![expect(unsafe_code, reason = "names exported to C, and calls of another library by name")]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::abi::{DatHandle, Ret};
use crate::adapter::Adapter;
use crate::config::Config;
use crate::log::{Level, raise, say};
use crate::variant::{Pci, PciLocked, Table, User, UserLocked, Variant};

/// `DAT_PROVIDER_INFO`.
#[derive(Debug)]
#[repr(C)]
pub struct ProviderInfo {
    ia_name: [c_char; 256],
    dapl_version_major: u32,
    dapl_version_minor: u32,
    is_thread_safe: u32,
}

const _: () = assert!(size_of::<ProviderInfo>() == 268);

impl ProviderInfo {
    /// Returns whether the line has the one version that this library implements. Layouts of other
    /// versions differ, and calls do not carry the version.
    fn is_ours(&self) -> bool {
        (self.dapl_version_major, self.dapl_version_minor) == (2, 0)
    }
}

/// The symbol that the registry requires of a provider with extensions. Its value is not used.
#[unsafe(no_mangle)]
pub static dapl_extensions: c_int = 1;

/// `dat_registry_add_provider`, `dat_registry_remove_provider`.
type OfProvider = extern "C" fn(*const Table, *const ProviderInfo) -> Ret;
/// `dats_get_ia_handle`.
type OfHandle = extern "C" fn(DatHandle, *mut DatHandle) -> Ret;

/// Looks up a symbol in the process.
fn symbol(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: the name is terminated.
    let symbol = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!symbol.is_null()).then_some(symbol)
}

fn of_provider(name: &CStr) -> Option<OfProvider> {
    // SAFETY: the registry exports a function of that type by that name.
    symbol(name).map(|symbol| unsafe { std::mem::transmute::<*mut c_void, OfProvider>(symbol) })
}

/// Returns the handle that consumers have for an Interface Adapter: the registry's, if there is
/// one.
pub(crate) fn ia_handle(ours: DatHandle) -> DatHandle {
    let Some(symbol) = symbol(c"dats_get_ia_handle") else {
        return ours;
    };
    // SAFETY: the registry exports a function of that type by that name.
    let translate = unsafe { std::mem::transmute::<*mut c_void, OfHandle>(symbol) };
    let mut theirs = ours;
    if translate(ours, &raw mut theirs) == 0 { theirs } else { ours }
}

/// Pins this library in the process, so that unloading and loading it again finds the same objects:
/// handles keep pointing to them.
fn stay() {
    let here: *const c_void = (&raw const dapl_extensions).cast();
    let mut info = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: the first address is of this library, the second of memory for the result.
    if unsafe { libc::dladdr(here, info.as_mut_ptr()) } == 0 {
        return;
    }
    // SAFETY: all-zero bytes are a valid value, and the call fills it completely.
    let file = unsafe { info.assume_init() }.dli_fname;
    if file.is_null() {
        return;
    }
    let how = libc::RTLD_LAZY | libc::RTLD_NOLOAD | libc::RTLD_NODELETE;
    // SAFETY: the loader owns the name, which lasts as long as the library. The library is loaded
    // already.
    let handle = unsafe { libc::dlopen(file, how) };
    if !handle.is_null() {
        // SAFETY: it has just been opened. Closing it does not undo RTLD_NODELETE.
        unsafe { libc::dlclose(handle) };
    }
}

/// A line of `dat.conf`.
struct Entry<V: Variant> {
    name: &'static CStr,
    adapter: &'static Adapter<V>,
    /// Its dispatch table with the name. Never freed, because the registry keeps its address.
    table: &'static Table,
}

/// The providers of one variant: lines of `dat.conf` by name.
pub(crate) struct Providers<V: Variant> {
    entries: Mutex<Vec<Entry<V>>>,
    /// All adapters ever made. Lines with equal parameters share one.
    adapters: Mutex<Vec<&'static Adapter<V>>>,
    /// The tables of all names ever registered.
    tables: Mutex<Vec<(&'static CStr, &'static Table)>>,
}

impl<V: Variant> Providers<V> {
    pub(crate) const fn new() -> Self {
        Self {
            entries: Mutex::new(Vec::new()),
            adapters: Mutex::new(Vec::new()),
            tables: Mutex::new(Vec::new()),
        }
    }

    fn entries(&self) -> MutexGuard<'_, Vec<Entry<V>>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the adapter of that name, and the name with its table, both of which last.
    pub(crate) fn find(
        &self,
        name: &CStr,
    ) -> Option<(&'static Adapter<V>, (&'static CStr, &'static Table))> {
        let entries = self.entries();
        let found = entries.iter().find(|entry| entry.name == name)?;
        Some((found.adapter, (found.name, found.table)))
    }

    /// Adds a line. Returns its table.
    fn add(&self, name: &CStr, config: Config) -> &'static Table {
        let mut adapters = self.adapters.lock().unwrap_or_else(PoisonError::into_inner);
        let known = adapters.iter().copied().find(|known| known.config.is_same(&config));
        let adapter = known.unwrap_or_else(|| {
            let adapter: &'static Adapter<V> = Box::leak(Box::new(Adapter::new(config)));
            adapters.push(adapter);
            adapter
        });
        drop(adapters);
        let mut tables = self.tables.lock().unwrap_or_else(PoisonError::into_inner);
        let known = tables.iter().copied().find(|(known, _)| *known == name);
        let (name, table) = known.unwrap_or_else(|| {
            let name: &'static CStr = Box::leak(name.to_owned().into_boxed_c_str());
            let table: &'static Table =
                Box::leak(Box::new(Table { device_name: name.as_ptr(), ..*V::TABLE }));
            tables.push((name, table));
            (name, table)
        });
        drop(tables);
        let mut entries = self.entries();
        entries.retain(|entry| entry.name != name);
        entries.push(Entry { name, adapter, table });
        table
    }

    /// Removes a name. Closes an adapter that has no name any more.
    fn remove(&self, name: &CStr) -> Option<&'static Table> {
        let mut entries = self.entries();
        let place = entries.iter().position(|entry| entry.name == name)?;
        let Entry { adapter, table, .. } = entries.swap_remove(place);
        let still = entries.iter().any(|other| std::ptr::eq(other.adapter, adapter));
        drop(entries);
        if !still {
            adapter.close_all();
        }
        Some(table)
    }
}

/// Called by the registry after it has loaded the library for a line of `dat.conf` with parameters
/// `ia_params`.
///
/// # Safety
/// Both are null or the addresses that the registry passes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dat_provider_init(info: *const ProviderInfo, ia_params: *const c_char) {
    if info.is_null() || ia_params.is_null() {
        return;
    }
    // SAFETY: it is the registry's, for the time of the call.
    let info = unsafe { &*info };
    // SAFETY: the registry ends the name.
    let name = unsafe { CStr::from_ptr(info.ia_name.as_ptr()) };
    // SAFETY: the registry terminates the text.
    let params = unsafe { CStr::from_ptr(ia_params) };
    if !info.is_ours() {
        say(
            Level::Error,
            format_args!(
                "dat.conf, {}: version {}.{} is not of this provider; write u2.0",
                name.to_string_lossy(),
                info.dapl_version_major,
                info.dapl_version_minor
            ),
        );
        return;
    }
    let config = match Config::read(&params.to_string_lossy()) {
        Ok(config) => config,
        Err(why) => {
            say(Level::Error, format_args!("dat.conf, {}: {why}", name.to_string_lossy()));
            return;
        }
    };
    raise(config.log);
    stay();
    let locked = info.is_thread_safe != 0;
    let table = match (&config.device, locked) {
        (vfio_host::Address::Pci(_), false) => begin::<Pci>(name, config),
        (vfio_host::Address::Pci(_), true) => begin::<PciLocked>(name, config),
        (vfio_host::Address::User(_), false) => begin::<User>(name, config),
        (vfio_host::Address::User(_), true) => begin::<UserLocked>(name, config),
    };
    match of_provider(c"dat_registry_add_provider") {
        Some(add) => {
            let refused = add(table, info);
            if refused != 0 {
                say(
                    Level::Error,
                    format_args!(
                        "{}: the registry refuses it: {refused:#x}",
                        name.to_string_lossy()
                    ),
                );
            }
        }
        None => {
            say(Level::Error, format_args!("no registry in this process: libdat2 has to be loaded"))
        }
    }
}

pub(crate) fn begin<V: Variant>(name: &CStr, config: Config) -> *const Table {
    V::providers().add(name, config)
}

/// Called by the registry before it unloads the library for a line of `dat.conf`.
///
/// # Safety
/// The address is null or the one that the registry passes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dat_provider_fini(info: *const ProviderInfo) {
    if info.is_null() {
        return;
    }
    // SAFETY: it is the registry's, for the time of the call.
    let info = unsafe { &*info };
    // SAFETY: the registry ends the name.
    let name = unsafe { CStr::from_ptr(info.ia_name.as_ptr()) };
    if !info.is_ours() {
        // This line was never registered, but another one of the same name may be.
        return;
    }
    let table = if info.is_thread_safe == 0 {
        end::<Pci>(name).or_else(|| end::<User>(name))
    } else {
        end::<PciLocked>(name).or_else(|| end::<UserLocked>(name))
    };
    if let (Some(table), Some(remove)) = (table, of_provider(c"dat_registry_remove_provider")) {
        // The registry knows the table unless it refused it.
        let _ = remove(table, info);
    }
}

fn end<V: Variant>(name: &CStr) -> Option<*const Table> {
    V::providers().remove(name).map(std::ptr::from_ref)
}
