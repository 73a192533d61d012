//! Link arguments of the freestanding image; none where the package is only checked with the rest
//! of the workspace.

#![expect(clippy::expect_used, reason = "a build without cargo is no build")]

use std::env;

fn main() {
    println!("cargo::rerun-if-changed=link.ld");
    println!("cargo::rerun-if-changed=build.rs");
    if env::var_os("CARGO_CFG_DAT_IMAGE").is_none() {
        return;
    }
    let here = env::var("CARGO_MANIFEST_DIR").expect("cargo sets it");
    for argument in [
        "-nostdlib",
        "-nostartfiles",
        "-static",
        "-no-pie",
        "-Wl,--build-id=none",
        "-Wl,-z,max-page-size=4096",
        &format!("-Wl,-T,{here}/link.ld"),
    ] {
        println!("cargo::rustc-link-arg-bins={argument}");
    }
}
