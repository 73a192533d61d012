//! Writes the manual pages and the completions of `dat` and `mlx5-model` below a folder, where a
//! Debian package has them. `cargo xtask package` runs it.

use std::error::Error;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use clap::Command;
use clap_complete::{Shell, generate};
use clap_mangen::Man;

/// Shells, the folder of each, and what stands around a program's name there.
const SHELLS: [(Shell, &str, &str, &str); 3] = [
    (Shell::Bash, "usr/share/bash-completion/completions", "", ""),
    (Shell::Zsh, "usr/share/zsh/vendor-completions", "_", ""),
    (Shell::Fish, "usr/share/fish/vendor_completions.d", "", ".fish"),
];

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::args_os().nth(1).ok_or("usage: pages FOLDER")?;
    let folder = PathBuf::from(folder);
    for command in [dat::command(), mlx5_model::program::command()] {
        pages(&folder, &command)?;
        completions(&folder, command)?;
    }
    Ok(())
}

/// The page of a program, and one of each of its subcommands.
fn pages(folder: &Path, program: &Command) -> Result<(), Box<dyn Error>> {
    let folder = folder.join("usr/share/man/man1");
    fs::create_dir_all(&folder)?;
    let mut program = program.clone().version(env!("CARGO_PKG_VERSION"));
    program.build();
    page(&folder, program.clone(), program.get_name())?;
    let subcommands = program.get_subcommands().filter(|one| !one.is_hide_set());
    for one in subcommands {
        let name = format!("{}-{}", program.get_name(), one.get_name());
        page(&folder, one.clone().display_name(&name), &name)?;
    }
    Ok(())
}

fn page(folder: &Path, command: Command, name: &str) -> Result<(), Box<dyn Error>> {
    let man = Man::new(command).title(name.to_uppercase()).date("").manual("User Commands");
    man.render(&mut File::create(folder.join(format!("{name}.1")))?)?;
    Ok(())
}

fn completions(folder: &Path, mut program: Command) -> Result<(), Box<dyn Error>> {
    let name = program.get_name().to_owned();
    for (shell, path, before, behind) in SHELLS {
        let folder = folder.join(path);
        fs::create_dir_all(&folder)?;
        let mut file = File::create(folder.join(format!("{before}{name}{behind}")))?;
        generate(shell, &mut program, &name, &mut file);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_program_has_its_pages_and_completions() {
        let folder = std::env::temp_dir().join(format!("dat-pages-{}", std::process::id()));
        let dat = dat::command();
        pages(&folder, &dat).unwrap();
        completions(&folder, dat).unwrap();
        let read = |file: &str| fs::read_to_string(folder.join(file)).unwrap();
        let man = read("usr/share/man/man1/dat-ping.1");
        assert!(man.contains(".TH DAT-PING 1") && man.contains("\\-\\-count"), "{man}");
        for (_, path, before, behind) in SHELLS {
            assert!(read(&format!("{path}/{before}dat{behind}")).contains("listen"));
        }
        fs::remove_dir_all(folder).unwrap();
    }
}
