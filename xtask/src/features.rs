//! `cargo xtask features`: each crate with no feature, with each set of its features, and with all.

use anyhow::{Context, Result};
use cargo_metadata::MetadataCommand;
use dat_lab::run;

/// Checks every set of features of every crate that has some.
pub(crate) fn features() -> Result<()> {
    let metadata = MetadataCommand::new().current_dir(run::root()).no_deps().exec()?;
    let mut checked = 0;
    for package in &metadata.packages {
        let own: Vec<&str> = package.features.keys().map(String::as_str).collect();
        let own: Vec<&str> = own.into_iter().filter(|name| *name != "default").collect();
        if own.is_empty() {
            continue;
        }
        for set in sets(&own) {
            let mut check = run::cargo();
            check.args(["check", "--quiet", "--locked", "-p", package.name.as_str()]);
            check.arg("--no-default-features");
            if !set.is_empty() {
                check.args(["--features", &set.join(",")]);
            }
            check.env("CARGO_TARGET_DIR", run::target()?.join("features"));
            run::capture(check).with_context(|| format!("{} with {set:?}", package.name))?;
            checked += 1;
        }
    }
    println!("{checked} sets of features built");
    Ok(())
}

/// All sets: none first, all last. No crate has more than a handful.
fn sets<'n>(names: &[&'n str]) -> Vec<Vec<&'n str>> {
    let chosen = |set: usize| {
        let is_in = move |nth: &usize| set >> nth & 1 == 1;
        (0..names.len()).filter(is_in).map(|nth| names[nth]).collect()
    };
    (0..1 << names.len()).map(chosen).collect()
}

#[cfg(test)]
mod tests {
    use super::sets;

    #[test]
    fn every_set_is_there_once() {
        assert_eq!(sets(&["a", "b"]), [vec![], vec!["a"], vec!["b"], vec!["a", "b"]]);
    }
}
