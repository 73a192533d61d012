//! A DAT peer on bare metal: nothing else runs on the machine.
//!
//! A loader of PVH images starts it; `boot.s` enters long mode; then, in order: start information
//! and command line, exceptions, ACPI, clock, the HCA on the bus, a reset of it, its BAR,
//! interrupts, the platform, and the peer, which serves the tests of the `dat` command or runs
//! them. Besides Rust's core there is only dat-core, hca-mlx5 and what they bring. Stable Rust; a
//! target with a hosted core is enough, since what that core wants of a C library is in `mem.s`.
//!
//! `cargo xtask nostd` builds it, as `target/nostd/x86_64-unknown-linux-gnu/image/dat-metal`. To
//! run it, with a socket of the model's (`mlx5-model --socket A`) in place of `A`:
//! ```text
//! qemu-system-x86_64 -M q35 -accel tcg -cpu max -smp 1 -m 256 \
//!   -object memory-backend-memfd,id=m,size=256M,share=on -machine memory-backend=m \
//!   -nodefaults -display none -serial stdio -no-reboot -kernel dat-metal \
//!   -append "ip=192.168.7.1/24 serve=3" \
//!   -device isa-debug-exit,iobase=0xf4,iosize=4 -device pcie-root-port,id=rp0,chassis=1,slot=1 \
//!   -device '{"driver":"vfio-user-pci","bus":"rp0","socket":{"type":"unix","path":"A"}}'
//! ```
//! An IOMMU may be there as well (`-device intel-iommu,intremap=on,caching-mode=on`); the image
//! leaves it off.
//!
//! The words of `-append` (`options.rs` has them all): `ip=ADDRESS[/PREFIX]`; with `peer=ADDRESS`
//! it runs `test=ping|write|read|all` of `count=` operations of `size=` bytes against
//! that one, without it it listens and serves `serve=N` tests; `port=`; `irq=msix|poll`;
//! `timeout=SECONDS` for all of it.
//!
//! | serial line | of |
//! |---|---|
//! | `bar 0: 32 MiB moved from 0xfc000000 to 0x4000000000` (or `32 MiB at` an address above 4 GiB) | both |
//! | `interrupts: MSI-X` (or `none, polling`) | both |
//! | `up: firmware 14.12.1220, MAC [..], 4237 pages given, .. us` | both |
//! | `listening on 192.168.7.1 port 4711` | the listener, from here on it can be called |
//! | `served 192.168.7.2: write, 4096 bytes, 16 verified` | the listener, for each test |
//! | `ping with 192.168.7.1: 16 of 4096 bytes verified; ..` | the caller, for each test |
//! | `given back: 0 pages and 0 bytes still out` | both, after the adapter is closed |
//! | `dat-metal: result ok` | the last, and the machine switches itself off: QEMU ends with 0 |
//! | `dat-metal: result failed` | the last, after a line that says why; QEMU ends with 3 |
//!
//! A failed image ends QEMU through `isa-debug-exit`; without that device it halts.
#![cfg_attr(dat_image, no_std, no_main)]
#![cfg_attr(
    any(dat_image, test),
    expect(
        unsafe_code,
        reason = "instructions, registers and memory that only a machine without an operating system lets one touch"
    )
)]
#![cfg_attr(
    all(test, not(dat_image)),
    expect(dead_code, reason = "only the parts that need no machine are tested")
)]

#[cfg(any(dat_image, test))]
mod acpi;
#[cfg(any(dat_image, test))]
mod boot;
#[cfg(any(dat_image, test))]
mod clock;
#[cfg(any(dat_image, test))]
mod contents;
#[cfg(any(dat_image, test))]
mod entropy;
#[cfg(any(dat_image, test))]
mod hello;
#[cfg(any(dat_image, test))]
mod image;
#[cfg(any(dat_image, test))]
mod interrupts;
#[cfg(any(dat_image, test))]
mod machine;
#[cfg(any(dat_image, test))]
mod memory;
#[cfg(any(dat_image, test))]
mod options;
#[cfg(any(dat_image, test))]
mod paging;
#[cfg(any(dat_image, test))]
mod pci;
#[cfg(any(dat_image, test))]
mod peer;
#[cfg(any(dat_image, test))]
mod ports;
#[cfg(any(dat_image, test))]
mod reserve;
#[cfg(any(dat_image, test))]
mod serial;

#[cfg(not(any(dat_image, test)))]
fn main() {}
