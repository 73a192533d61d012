//! A DAT peer on a machine without an operating system, or under UEFI firmware.
//!
//! `machine` has what differs from machine to machine: how it starts, finds its buses, prints, sleeps
//! and ends. It calls `program::run`, which finds the HCA, resets it, places its BAR and runs the
//! peer, which serves the tests of the `dat` command or runs them. Besides Rust's core there is only
//! dat-core, hca-mlx5, what they bring, and readers of a device tree or of UEFI's tables. Stable
//! Rust. On x86_64 a target with a hosted core is enough, since what that core wants of a C library
//! is in `mem.s`.
//!
//! `cargo xtask nostd` builds it for x86_64, as `target/nostd/x86_64-unknown-linux-gnu/image/dat-metal`,
//! and `cargo xtask qemu-test gallery` for the other machines; `docs/embedding.md` has their command
//! lines. To run the first, with a socket of the model's (`mlx5-model --socket A`) in place of `A`:
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
//! | line | of |
//! |---|---|
//! | `entropy: RDRAND` (or another source) | both |
//! | `bar 0: 32 MiB moved from 0xfc000000 to 0x4000000000` (or `32 MiB at` where firmware put it) | both |
//! | `interrupts: MSI-X` (or `none, polling`) | both |
//! | `up: firmware 14.12.1220, MAC [..], 4237 pages given, .. us` | both |
//! | `listening on 192.168.7.1 port 4711` | the listener, from here on it can be called |
//! | `served 192.168.7.2: write, 4096 bytes, 16 verified` | the listener, for each test |
//! | `ping with 192.168.7.1: 16 of 4096 bytes verified; ..` | the caller, for each test |
//! | `given back: 0 pages and 0 bytes still out` | both, after the adapter is closed |
//! | `dat-metal: result ok` | the last; the machine is off and QEMU ends with 0, or firmware goes on |
//! | `dat-metal: result failed` | the last, after a line that says why |
//!
//! A failed image ends QEMU with 3 on x86_64 (through `isa-debug-exit`; without that device it
//! halts) and with 1 on riscv64. On aarch64 it switches off as one that went well, with 0.
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
mod clock;
#[cfg(any(dat_image, test))]
mod console;
#[cfg(any(dat_image, test))]
mod contents;
#[cfg(any(dat_image, test))]
mod entropy;
#[cfg(any(dat_image, test))]
mod hello;
#[cfg(any(dat_image, test))]
mod host;
#[cfg(any(dat_image, test))]
mod machine;
#[cfg(any(dat_image, test))]
mod options;
#[cfg(any(dat_image, test))]
mod pci;
#[cfg(any(dat_image, test))]
mod peer;
#[cfg(any(dat_image, test))]
mod program;
#[cfg(any(dat_image, test))]
mod reserve;

#[cfg(not(any(dat_image, test)))]
fn main() {}
