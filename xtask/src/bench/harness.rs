//! Builds `tests/peers` against the sources of rdma-core and dapl: their own objects of the data
//! path, and nothing else of them. The machine needs a C compiler only.
//!
//! Replaces the build systems of both: writes a configuration, a folder of headers, and the
//! kernel's structures as macros.

use std::fmt::Write;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use dat_lab::images::sources::{self, Source, Wanted};
use dat_lab::run;

/// The newest rdma-core of a stable release, and the last release that has dapl.
const WANTED: [Wanted; 2] = [("rdma-core", "trixie"), ("dapl", "bookworm")];

/// Folders of headers in rdma-core, and the folders that they are included from. Of two headers of
/// one name the first counts.
const HEADERS: [(&str, &str); 7] = [
    ("libibverbs", "infiniband"),
    ("providers/mlx5", "infiniband"),
    ("kernel-headers/rdma", "infiniband"),
    ("kernel-headers/rdma", "rdma"),
    ("librdmacm", "rdma"),
    ("util", "util"),
    ("ccan", "ccan"),
];
/// Headers of the kernel that are also included as macros.
const MACROS: [&str; 2] = ["ib_user_verbs.h", "mlx5-abi.h"];
/// Hints for valgrind, replaced by what rdma-core has for builds without them.
const HINTS: (&str, &str) = ("buildlib/fixup-include/valgrind-memcheck.h", "valgrind/memcheck.h");

/// Files of the data path: of libmlx5, of the provider of dapl and of its registry.
const LIBMLX5: [&str; 2] = ["providers/mlx5/qp.c", "providers/mlx5/cq.c"];
const DAPL: [&str; 11] = [
    "dapl/common/dapl_cookie.c",
    "dapl/common/dapl_debug.c",
    "dapl/common/dapl_ep_post_rdma_write.c",
    "dapl/common/dapl_ep_post_recv.c",
    "dapl/common/dapl_ep_post_send.c",
    "dapl/common/dapl_ep_util.c",
    "dapl/common/dapl_evd_dequeue.c",
    "dapl/common/dapl_evd_util.c",
    "dapl/common/dapl_ring_buffer_util.c",
    "dapl/openib_common/cq.c",
    "dat/common/dat_api.c",
];
const DAPL_HEADERS: [&str; 10] = [
    "dat/include",
    "dat/common",
    "dat/udat",
    "dat/udat/linux",
    "dapl/include",
    "dapl/common",
    "dapl/udapl/linux",
    "dapl/openib_common",
    "dapl/openib_cma",
    "dapl/openib_cma/linux",
];

/// Both are compiled as their own builds do by default; position-independent, because they are
/// libraries.
const FLAGS: [&str; 4] = ["-O2", "-fPIC", "-w", "-D_GNU_SOURCE"];
const LIBMLX5_FLAGS: [&str; 1] = ["-DNDEBUG"];
const DAPL_FLAGS: [&str; 5] = [
    "-DDAT_EXTENSIONS",
    "-DOPENIB",
    "-DCQ_WAIT_OBJECT",
    "-DOS_RELEASE=393216",
    "-DDAT_CONF=\"/dev/null\"",
];
/// Functions that the cases never call are left undefined.
const LINK: [&str; 1] = ["-Wl,--unresolved-symbols=ignore-all,-z,now"];

/// Macros that the headers need.
const CONFIG: &str = "\
#define HAVE_STATEMENT_EXPR 1
#define HAVE_BUILTIN_TYPES_COMPATIBLE_P 1
#define HAVE_TYPEOF 1
#define HAVE_BUILTIN_CLZ 1
#define HAVE_BUILTIN_CLZL 1
#define HAVE_FUNC_ATTRIBUTE_ALWAYS_INLINE 1
#define SIZEOF_LONG 8
#define VERBS_IOCTL_ONLY 0
#define VERBS_WRITE_ONLY 0
";

/// The built program.
#[derive(Debug)]
pub(super) struct Harness {
    pub(super) program: PathBuf,
    pub(super) versions: String,
}

fn folder() -> Result<PathBuf> {
    Ok(run::target()?.join("peers"))
}

/// Builds the harness; where the sources cannot be had, says so and builds none.
pub(super) fn harness() -> Result<Option<Harness>> {
    match fetched() {
        Ok(sources) => build(&sources).map(Some),
        Err(error) => {
            println!("  SKIPPED: peers: {error:#}");
            Ok(None)
        }
    }
}

fn fetched() -> Result<Vec<Source>> {
    let asked = Command::new("cc").arg("--version").stdout(Stdio::null()).status();
    ensure!(asked.is_ok_and(|status| status.success()), "no `cc`: install gcc and libc6-dev");
    let folder = folder()?;
    fs::create_dir_all(&folder)?;
    sources::sources(&folder, &WANTED).context(
        "the sources of rdma-core and dapl cannot be had: repeat where a Debian mirror with trixie and bookworm can be reached",
    )
}

/// Compiles and links.
fn build(sources: &[Source]) -> Result<Harness> {
    let [rdma, dapl] = sources else { unreachable!("two are wanted") };
    let build = folder()?.join("build");
    if build.exists() {
        fs::remove_dir_all(&build)?;
    }
    let include = build.join("include");
    headers(&rdma.root, &include)?;

    let own = run::root().join("tests/peers");
    let mlx5 = rdma.root.join("providers/mlx5");
    let mut cc = compiler(&build.join("libmlx5"), &[&include, &mlx5])?;
    cc.args(LIBMLX5_FLAGS).args(LIBMLX5.map(|file| rdma.root.join(file)));
    cc.args(["rig.c", "libmlx5.c"].map(|file| own.join(file)));
    run::capture(cc).context("libmlx5 or tests/peers/libmlx5.c cannot be compiled")?;

    let folders = DAPL_HEADERS.map(|folder| dapl.root.join(folder));
    let mut folders: Vec<&Path> = folders.iter().map(PathBuf::as_path).collect();
    folders.extend([include.as_path(), &mlx5]);
    let mut cc = compiler(&build.join("udapl"), &folders)?;
    cc.arg(format!("-DPACKAGE_VERSION=\"{}\"", dapl.version)).args(DAPL_FLAGS);
    cc.args(DAPL.map(|file| dapl.root.join(file))).arg(own.join("udapl.c"));
    run::capture(cc).context("dapl or tests/peers/udapl.c cannot be compiled")?;

    let program = build.join("peers");
    let mut cc = Command::new("cc");
    cc.args(LINK).arg("-o").arg(&program);
    for folder in ["libmlx5", "udapl"] {
        cc.args(files(&build.join(folder))?);
    }
    cc.arg("-lpthread");
    run::capture(cc).context("the harness cannot be linked")?;
    let versions =
        format!("libmlx5 is of rdma-core {}, uDAPL of dapl {}", rdma.version, dapl.version);
    Ok(Harness { program, versions })
}

/// A compiler that leaves its objects in a new folder.
fn compiler(objects: &Path, include: &[&Path]) -> Result<Command> {
    fs::create_dir_all(objects)?;
    let mut cc = Command::new("cc");
    cc.current_dir(objects).arg("-c").args(FLAGS);
    for folder in include {
        cc.arg("-I").arg(folder);
    }
    Ok(cc)
}

fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files: Vec<PathBuf> =
        fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    files.sort();
    Ok(files)
}

/// Makes the folder of headers.
fn headers(rdma: &Path, include: &Path) -> Result<()> {
    for (from, into) in HEADERS {
        let into = include.join(into);
        fs::create_dir_all(&into)?;
        for file in files(&rdma.join(from))? {
            let link = into.join(file.file_name().unwrap_or_default());
            if file.extension().is_some_and(|e| e == "h") && !link.exists() {
                symlink(&file, link)?;
            }
        }
    }
    let macros = include.join("kernel-abi");
    fs::create_dir_all(&macros)?;
    for name in MACROS {
        let header = fs::read_to_string(rdma.join("kernel-headers/rdma").join(name))?;
        fs::write(macros.join(name), structures_as_macros(&header))?;
    }
    let (from, into) = HINTS;
    fs::create_dir_all(include.join("valgrind"))?;
    symlink(rdma.join(from), include.join(into))?;
    Ok(fs::write(include.join("config.h"), CONFIG)?)
}

/// Rewrites the structures of a header of the kernel: `struct name {…};` becomes a macro
/// `_STRUCT_name` for the same without a name. rdma-core puts them into structures of its own.
fn structures_as_macros(header: &str) -> String {
    let mut text = String::new();
    let mut depth = 0;
    for line in header.lines() {
        let line = without_comments(line);
        if depth == 0 {
            let words: Vec<&str> = line.split_whitespace().collect();
            if let [kind @ ("struct" | "union"), name, "{"] = *words {
                let _ = writeln!(text, "#define _STRUCT_{name} {kind} {{ \\");
                depth = 1;
            }
            continue;
        }
        let closes = line.starts_with('}') && line.ends_with(';');
        if closes && depth == 1 {
            let _ = writeln!(text, "{}\n", line.trim_end_matches(';'));
        } else {
            let _ = writeln!(text, "{line} \\");
        }
        if closes {
            depth -= 1;
        } else if line.ends_with('{') {
            depth += 1;
        }
    }
    text
}

/// A line without comments that end in it.
fn without_comments(line: &str) -> String {
    let line = line.split("//").next().unwrap_or_default();
    let mut text = String::new();
    let mut rest = line;
    while let Some((before, after)) = rest.split_once("/*") {
        let Some((_, after)) = after.split_once("*/") else { break };
        text.push_str(before);
        rest = after;
    }
    text.push_str(rest);
    text.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::structures_as_macros;

    #[test]
    fn structures_become_macros_and_the_rest_is_left_out() {
        let header = "#define X 1\nstruct a {\n\t__u32 b; /* c */\n\tunion {\n\t\t__u8 d;\n\t};\n};\nenum e { F };\n";
        let want =
            "#define _STRUCT_a struct { \\\n__u32 b; \\\nunion { \\\n__u8 d; \\\n}; \\\n}\n\n";
        assert_eq!(structures_as_macros(header), want);
    }
}
