//! The unit tests of the library, in a program of the files that have any. The library's own test
//! program would compile the driver and the host a second time.
#![expect(dead_code, unused_imports, reason = "the rest of the library uses them")]

#[path = "../src/abi/mod.rs"]
mod abi;
#[path = "../src/combine.rs"]
mod combine;
#[path = "../src/config.rs"]
mod config;
#[path = "../src/gate.rs"]
mod gate;
#[path = "../src/log.rs"]
mod log;
#[path = "../src/sync.rs"]
mod sync;
