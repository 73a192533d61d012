//! Link arguments of the freestanding images; none where the package is only checked with the rest
//! of the workspace, and for UEFI, whose format is the target's.

#![expect(clippy::expect_used, reason = "a build without cargo is no build")]

use std::env;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if env::var_os("CARGO_CFG_DAT_IMAGE").is_none() {
        return;
    }
    let of = |name| env::var(name).expect("cargo sets it");
    let script = format!("{}/{}.ld", of("CARGO_MANIFEST_DIR"), of("CARGO_CFG_TARGET_ARCH"));
    let arguments = match of("CARGO_CFG_TARGET_OS").as_str() {
        // A target with a linker only.
        "none" => vec!["--build-id=none".into(), "-n".into(), format!("-T{script}")],
        "linux" => vec![
            "-nostdlib".into(),
            "-nostartfiles".into(),
            "-static".into(),
            "-no-pie".into(),
            "-Wl,--build-id=none".into(),
            "-Wl,-z,max-page-size=4096".into(),
            format!("-Wl,-T,{script}"),
        ],
        _ => return,
    };
    println!("cargo::rerun-if-changed={script}");
    for argument in arguments {
        println!("cargo::rustc-link-arg-bins={argument}");
    }
}
