//! Memory that processes share under a name; and what the guests' program does with memory, here
//! without a guest.
#![expect(unsafe_code, reason = "the test looks at memory that others may write")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::ptr::with_exposed_provenance_mut;

use dat_core::provider::Region;
use dat_core::{DatType, LmrTriplet, MemPriv, Memory, VaType};
use dat_tests::bytes::Bytes;
use vfio_host::{Host, Kind, Options};

use crate::rig::{NONE, Rig};

/// A name of this process's alone.
fn name(n: u8) -> [u8; 40] {
    let mut name = [n; 40];
    name[36..].copy_from_slice(&std::process::id().to_ne_bytes());
    name
}

fn file(name: &[u8; 40]) -> PathBuf {
    let hex: String = name.iter().map(|byte| format!("{byte:02x}")).collect();
    let folder = ["/dev/shm", "/tmp"].map(Path::new);
    let folder = folder.into_iter().find(|path| path.is_dir()).unwrap();
    folder.join(format!("dat-{hex}"))
}

fn put(at: u64, bytes: &[u8]) {
    for (n, byte) in bytes.iter().enumerate() {
        let place: *mut u8 = with_exposed_provenance_mut(at as usize + n);
        // SAFETY: memory that a host shares, and that is not ended meanwhile.
        unsafe { place.write_volatile(*byte) };
    }
}

#[test]
fn bytes_written_by_another_process_are_sent() {
    const TEST: &str = "named::bytes_written_by_another_process_are_sent";
    const MARK: &str = "VFIO_USER_SHARES";
    if let Some(said) = std::env::var_os(MARK) {
        let said = said.into_string().unwrap();
        let (socket, parent) = said.split_once(' ').unwrap();
        let mut name = name(1);
        name[36..].copy_from_slice(&parent.parse::<u32>().unwrap().to_ne_bytes());
        let host = vfio_host::user::VfioUser::open(Path::new(socket), &Options::default());
        let host = host.unwrap();
        let region = host.share(&name, 8192).unwrap();
        put(region.addr + 5000, b"from the other process");
        // It ends without a word, as processes do.
        std::process::exit(0);
    }
    let rig = Rig::new();
    let third = Rig::new();
    rig.connected(|pair| {
        let name = name(1);
        let a = &mut pair.sides[0];
        let region = a.nic.host().share(&name, 8192).unwrap();
        assert_eq!(a.nic.host().share(&name, 100).unwrap(), region);
        let memory = Memory::SharedVirtual(region, &name);
        let lmr = a.nic.lmr_create_from(a.pz, memory, MemPriv::ALL, VaType::Va).unwrap();
        let said = format!("{} {}", third.sockets[0].display(), std::process::id());
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", TEST, "--nocapture"])
            .env(MARK, said)
            .status();
        assert!(child.unwrap().success());
        let near = LmrTriplet { addr: region.addr + 5000, len: 22, context: lmr.lmr_context };
        let far = pair.sides[1].far(0, 22);
        let a = &mut pair.sides[0];
        a.nic.ep_post_rdma_write(a.ep, &[near], 1, &far, NONE).unwrap();
        pair.done(0, 1);
        assert_eq!(pair.sides[1].look(0, 22), b"from the other process");

        let a = &mut pair.sides[0];
        a.nic.lmr_free(lmr.lmr).unwrap();
        let host = a.nic.host();
        host.unshare(region);
        assert!(file(&name).exists(), "it was asked for twice");
        host.unshare(region);
        assert!(!file(&name).exists());
        assert!(host.maps().iter().all(|map| map.purpose != "process"));
        let memory = Memory::SharedVirtual(region, &name);
        let error = a.nic.lmr_create_from(a.pz, memory, MemPriv::ALL, VaType::Va).unwrap_err();
        assert_eq!(error.ret().ty(), DatType::InvalidState);
    });
}

#[test]
fn memory_that_the_program_shares_itself_gets_a_name() {
    let rig = Rig::new();
    let host = rig.host(0);
    let name = name(2);
    let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
    let path = folder.unwrap().keep().join("own");
    std::fs::write(&path, [3; 12_288]).unwrap();
    let file = std::fs::File::options().read(true).write(true).open(&path).unwrap();
    let shared = rustix::mm::MapFlags::SHARED;
    let rights = rustix::mm::ProtFlags::READ | rustix::mm::ProtFlags::WRITE;
    // SAFETY: a new mapping.
    let place = unsafe { rustix::mm::mmap(std::ptr::null_mut(), 12_288, rights, shared, &file, 0) };
    let place = place.unwrap();
    let addr = place.expose_provenance() as u64;
    let named = || {
        use hca_mlx5::platform::Lend;
        // SAFETY: taken back below.
        unsafe { host.lend_shared(&name, addr + 4096, 5000) }.unwrap();
        let region = Region { addr: addr + 4096, len: 5000 };
        assert_eq!(host.shared(&name), Some(region));
        let iova = host.lent(region).unwrap();
        let seen = rig.server().with(0, move |function| function.dma_read(iova, 1));
        assert_eq!(seen.unwrap().unwrap(), [3]);
        let done = rig.server().with(0, move |function| function.dma_write(iova + 1, &[4]));
        done.unwrap().unwrap();
        assert_eq!(std::fs::read(&path).unwrap()[4096..4098], [3, 4]);
        host.take_back(addr + 4096, 5000);
        assert_eq!(host.shared(&name), None);
    };
    named();
    // Found among the descriptors when it has no path any more.
    std::fs::remove_dir_all(path.parent().unwrap()).unwrap();
    // SAFETY: taken back at once.
    unsafe { host.lend_shared(&name, addr, 12_288) }.unwrap();
    host.take_back(addr, 12_288);

    let own = Box::new(Bytes::<100>::new());
    // SAFETY: it is refused.
    let error = unsafe { host.lend_shared(&name, own.addr(), 100) }.unwrap_err();
    assert_eq!(error.kind(), Kind::Unsupported);
    assert!(error.to_string().contains("the process's alone"), "{error}");
    // SAFETY: nobody uses it any more.
    unsafe { rustix::mm::munmap(place, 12_288) }.unwrap();
}

/// Runs the guests' program on both devices, and returns the line that says how that went.
fn guest(rig: &Rig, args: &[&str], mark: &str) -> String {
    let devices = rig.sockets.each_ref();
    let devices = devices.map(|path| format!("vfio-user:{}", path.display()));
    let done = Command::new(env!("CARGO_BIN_EXE_guest"))
        .args(&args[..1])
        .args(devices)
        .args(&args[1..])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&done.stdout);
    let wrong = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{said}{wrong}");
    let line = said.lines().find(|line| line.starts_with(mark));
    line.unwrap_or_else(|| panic!("no {mark} in {said}{wrong}")).to_owned()
}

#[test]
fn the_program_of_the_guests_lends_memory_here_too() {
    let said = guest(&Rig::new(), &["lent"], "@@lent ");
    assert!(said.contains("57 operations"), "{said}");
}

#[test]
fn cases_of_shared_memory_pass_over_the_socket() {
    let said = guest(&Rig::new(), &["conformance", "--only", "shared"], "@@conformance ");
    assert!(said.contains("cases passed"), "{said}");
}
