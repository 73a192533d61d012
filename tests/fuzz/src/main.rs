//! `fuzz TARGET FILE...` runs a target on files, or on the files of folders.
//!
//! Built with `--cfg fuzzing` it is a libFuzzer program instead, whose target the variable
//! `FUZZ_TARGET` names; `cargo xtask fuzz` builds and runs it.
#![cfg_attr(fuzzing, no_main)]
#![cfg_attr(
    not(fuzzing),
    expect(clippy::print_stdout, reason = "a command line tool that prints and is run by hand")
)]

#[cfg(fuzzing)]
mod fuzzer {
    use std::sync::OnceLock;

    static RUN: OnceLock<fn(&[u8])> = OnceLock::new();

    fn chosen() -> fn(&[u8]) {
        let name = std::env::var("FUZZ_TARGET").unwrap_or_default();
        match dat_fuzz::target(&name) {
            Some(target) => target.run,
            None => {
                eprintln!("FUZZ_TARGET: no target is named `{name}`: `cargo xtask fuzz --list`");
                std::process::exit(2);
            }
        }
    }

    libfuzzer_sys::fuzz_target!(
        init: {
            RUN.get_or_init(chosen);
        },
        |data: &[u8]| RUN.get_or_init(chosen)(data)
    );
}

#[cfg(not(fuzzing))]
fn main() -> std::process::ExitCode {
    use std::path::PathBuf;
    use std::time::Instant;

    let mut args = std::env::args_os().skip(1);
    let name = args.next().unwrap_or_default().to_string_lossy().into_owned();
    let Some(target) = dat_fuzz::target(&name) else {
        eprintln!("usage: fuzz TARGET FILE...; no target is named `{name}`");
        for target in dat_fuzz::TARGETS {
            eprintln!("  {:12} {}", target.name, target.about);
        }
        return std::process::ExitCode::from(2);
    };
    let mut paths: Vec<PathBuf> = args.map(PathBuf::from).collect();
    let mut runs = 0;
    let start = Instant::now();
    while let Some(path) = paths.pop() {
        if let Ok(entries) = std::fs::read_dir(&path) {
            paths.extend(entries.filter_map(|entry| Some(entry.ok()?.path())));
            continue;
        }
        match std::fs::read(&path) {
            Ok(bytes) => (target.run)(&bytes),
            Err(error) => {
                eprintln!("{}: {error}", path.display());
                return std::process::ExitCode::FAILURE;
            }
        }
        runs += 1;
    }
    println!("{name}: {runs} inputs in {:.3} s", start.elapsed().as_secs_f64());
    std::process::ExitCode::SUCCESS
}
