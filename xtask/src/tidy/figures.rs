//! `cargo xtask tidy --figures`: the measures by which the design of the workspace is judged, from
//! the code itself.
//!
//! Checked measures have a limit in `limits.tsv`. Tidy fails above the limit, so that nothing is
//! lost, and mostly below it, so that the limit follows. `cargo xtask tidy --bless` lowers limits;
//! a limit is raised by hand only.
#![expect(clippy::wildcard_enum_match_arm, reason = "syn's enums may grow")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use syn::visit::{self, Visit};
use syn::{ImplItem, Item, ItemImpl, TraitItem, Type, Visibility};

use super::graph::{self, Findings, Floors};
use super::modules::{Crate, Syntax, attributes, folder_of, is_module, is_test};
use super::{Texts, lines, words};
use crate::record;

/// Crates with floors, the highest floor first (`lib.rs` and the loop provider stand on none), and
/// their measures of circles, of imports and of files on no floor.
const FLOORS: [(&str, &Floors, [&str; 3]); 2] = [
    (
        "dat-core",
        &["api", "engine", "objects", "data", "cm", "provider.rs", "types"],
        [
            "files in circles above three, dat-core",
            "upward imports, dat-core",
            "files on no floor, dat-core",
        ],
    ),
    (
        "hca-mlx5",
        // `data` is below `verbs`, which returns the ends of the queues that it creates, and below
        // `device`: the hot path runs no commands.
        &["provider.rs", "net", "verbs", "device", "data", "prm", "platform"],
        [
            "files in circles above three, hca-mlx5",
            "upward imports, hca-mlx5",
            "files on no floor, hca-mlx5",
        ],
    ),
];
/// Traits of the platform that a host need not implement: for hosts that lend memory, and for hosts
/// of tests. Their methods are shown, not counted.
const OPTIONAL: [&str; 2] = ["Lend", "Probe"];
/// Pages whose source files have to exist.
const PAGES: [&str; 8] = [
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "docs/dat-command.md",
    "docs/evidence.md",
    "docs/model.md",
    "docs/udapl.md",
    "docs/vfio-host.md",
];
/// The limits of the checked measures.
const LIMITS: &str = "xtask/src/tidy/limits.tsv";
/// Flags that say nothing of how the product is built: programs for guests are linked statically,
/// because guests have no C library; targets without a prebuilt library build their own; lines that
/// tests execute are counted, and so is what a fuzzer reaches.
const OTHER_FLAGS: [&str; 12] = [
    "target-feature=+crt-static",
    "strip=debuginfo",
    "build-std",
    "build-std=core",
    "build-std=core,compiler_builtins",
    "build-std-features=compiler-builtins-mem",
    "instrument-coverage",
    "passes=sancov-module",
    "llvm-args=-sanitizer-coverage-level=4",
    "llvm-args=-sanitizer-coverage-inline-8bit-counters",
    "llvm-args=-sanitizer-coverage-pc-table",
    "llvm-args=-sanitizer-coverage-trace-compares",
];

/// The criterion of a measure.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Against its limit.
    Checked,
    /// Against its limit, but only from above: every change of prose alters it.
    Capped,
    /// Only printed.
    Printed,
    /// Printed by another command.
    Measured(&'static str),
}
use Kind::{Capped, Checked, Measured, Printed};

/// Measure, figure of the first edition, goal, kind.
type Goal = (&'static str, &'static str, &'static str, Kind);

const GOALS: &[Goal] = &[
    ("Rust lines", "187k (170k in the new layout)", "at most 145k, judged once", Printed),
    ("product code lines", "53k in the old layout", "at most 42k, judged once", Printed),
    ("files in circles above three, dat-core", "44 (33, 11)", "0", Checked),
    ("files in circles above three, hca-mlx5", "11 (7, 4)", "0", Checked),
    ("upward imports, dat-core", "63 in both crates", "0", Checked),
    ("upward imports, hca-mlx5", "63 in both crates", "0", Checked),
    ("files on no floor, dat-core", "", "0", Checked),
    ("files on no floor, hca-mlx5", "", "0", Checked),
    ("fields of Ia", "34", "at most 12", Checked),
    ("fields of Ia visible outside engine", "34", "0", Checked),
    ("not public methods of Ia", "175", "about 70", Checked),
    ("public methods of Ia", "145", "", Printed),
    ("files outside engine and api that name Ia", "123", "0", Checked),
    ("methods of the platform traits", "30", "at most 15", Checked),
    ("hidden compiler flags", "14", "0", Checked),
    ("own cfgs", "2", "at most 1, and 1 for planted bugs", Checked),
    ("files on the path of a post", "13", "8", Printed),
    ("files on the path of a disconnect", "20", "8", Printed),
    ("README lines", "200", "at most 150", Printed),
    ("README line of the first code", "41", "at most 25", Printed),
    ("banned words", "", "0", Capped),
    ("conformance rules", "987", "none lost", Printed),
    ("conformance cases", "", "none lost", Printed),
    ("DAT program rows", "80 + 70 + 52", "none lost", Printed),
    ("matrix cells", "351", "none lost", Printed),
    ("seeded bugs", "all", "none lost", Printed),
    ("mutants caught", "the table recorded before", "not fewer", Measured("cargo xtask mutants")),
    ("wr8_rt1", "193", "at most 200", Measured("cargo xtask bench")),
    ("recv_rt1", "162", "at most 155", Measured("cargo xtask bench")),
    ("wr8_b32", "118", "at most 112", Measured("cargo xtask bench")),
    ("rmr_bind", "278", "at most 300", Measured("cargo xtask bench")),
    ("cold test run", "11 to 19 min", "at least a third shorter", Measured("cargo xtask test")),
];

/// The measured figures.
#[derive(Default)]
pub(super) struct Figures {
    /// By measure: the figure, and details.
    now: BTreeMap<&'static str, (usize, String)>,
    /// Circles and upward imports with their files and names, by measure.
    lines: BTreeMap<&'static str, Vec<String>>,
    words: Vec<String>,
    faults: Vec<String>,
}

impl Figures {
    /// Measures the code.
    pub(super) fn measure(root: &Path, texts: &Texts, product: &Syntax) -> Result<Self> {
        let mut figures = Self::default();
        figures.set("Rust lines", texts.values().map(|text| text.lines().count()).sum());
        let by_crate = lines::by_crate(texts, product);
        let detail: Vec<_> = by_crate.iter().map(|(name, n)| format!("{name} {n}")).collect();
        figures.detail("product code lines", by_crate.values().sum(), detail.join(", "));
        figures.graphs(product);
        figures.interface_adapter(&of_crate(product, "dat-core"));
        figures.platform(&of_crate(product, "hca-mlx5"));
        figures.compiler(root, texts)?;
        figures.documents(root, texts)?;
        let (count, words) = words::count(root, texts)?;
        figures.set("banned words", count);
        figures.words = words;
        let record = record::Record::read(root)?;
        figures.set("conformance rules", record.count(record::RULE));
        figures.set("conformance cases", record.count(record::CASE));
        let rows = dat_lab::ROWS.map(|kind| record.count(kind));
        let [host, guest, wire, safe, subnet] = rows;
        let detail =
            format!("host {host}, guest {guest}, wire {wire}, safe {safe}, InfiniBand {subnet}");
        figures.detail("DAT program rows", rows.iter().sum(), detail);
        figures.set("matrix cells", record.count(dat_lab::CELL));
        figures.set("seeded bugs", record.count(record::SEED));
        Ok(figures)
    }

    fn set(&mut self, measure: &'static str, figure: usize) {
        self.detail(measure, figure, String::new());
    }

    fn detail(&mut self, measure: &'static str, figure: usize, detail: String) {
        self.now.insert(measure, (figure, detail));
    }

    fn graphs(&mut self, product: &Syntax) {
        for (name, floors, [in_circles, imports, on_none]) in FLOORS {
            let found = graph::findings(&of_crate(product, name), floors);
            let Findings { circles, upward, floorless: [floorless, files], .. } = found;
            let sizes: Vec<String> = circles.iter().map(ToString::to_string).collect();
            let detail = format!("{} circles: {}", circles.len(), sizes.join(", "));
            self.detail(in_circles, circles.iter().sum(), detail);
            self.set(imports, upward);
            self.detail(on_none, floorless, format!("of {files}"));
            self.lines.insert(in_circles, found.circle_lines);
            self.lines.insert(imports, found.upward_lines);
        }
    }

    fn interface_adapter(&mut self, files: &Syntax) {
        let krate = Crate::read(files);
        let code = krate.files();
        let (mut methods, mut public) = (0, 0);
        for (file, syntax) in files.iter().filter(|(file, _)| code.contains(file.as_str())) {
            for item in syntax.items.iter().filter(|item| !is_test(attributes(item))) {
                if let Item::Struct(item) = item {
                    if item.ident == "Ia" {
                        let seen = |vis| is_visible_outside_engine(vis, folder_of(file));
                        let visible = item.fields.iter().filter(|field| seen(&field.vis)).count();
                        self.set("fields of Ia", item.fields.len());
                        self.set("fields of Ia visible outside engine", visible);
                    }
                }
                if let Item::Impl(item) = item {
                    if item.trait_.is_none() && is_named(&item.self_ty, "Ia") {
                        let is_public =
                            |item: &&syn::ImplItemFn| matches!(item.vis, Visibility::Public(_));
                        methods += functions(item).count();
                        public += functions(item).filter(is_public).count();
                    }
                }
            }
        }
        let above = ["engine", "api", "lib", "testing"];
        let naming = krate.files_naming("Ia").into_iter();
        let naming = naming.filter(|file| !above.iter().any(|module| is_module(file, module)));
        self.set("not public methods of Ia", methods - public);
        self.set("public methods of Ia", public);
        self.set("files outside engine and api that name Ia", naming.count());
    }

    fn platform(&mut self, files: &Syntax) {
        let (mut sum, mut required, mut optional) = (0, Vec::new(), Vec::new());
        for (_, syntax) in files.iter().filter(|(file, _)| is_module(file, "platform")) {
            for item in &syntax.items {
                let Item::Trait(item) = item else { continue };
                let methods = item.items.iter().filter(|i| matches!(i, TraitItem::Fn(_))).count();
                let line = format!("{} {methods}", item.ident);
                if OPTIONAL.iter().any(|name| item.ident == name) {
                    optional.push(line);
                } else {
                    sum += methods;
                    required.push(line);
                }
            }
        }
        let detail = format!("{}; optional: {}", required.join(", "), optional.join(", "));
        self.detail("methods of the platform traits", sum, detail);
    }

    fn compiler(&mut self, root: &Path, texts: &Texts) -> Result<()> {
        let builds = |file: &str| {
            ["xtask/", "tests/lab/"].iter().any(|folder| file.starts_with(folder))
                || file.ends_with("build.rs")
        };
        let mut literals = Literals::default();
        let suspects = texts.iter().filter(|(_, text)| text.contains("-C") || text.contains("-Z"));
        for (file, text) in suspects.filter(|(file, _)| builds(file)) {
            literals.visit_file(&syn::parse_file(text).with_context(|| file.clone())?);
        }
        for name in [".cargo/config.toml", ".cargo/config"] {
            let config = fs::read_to_string(root.join(name)).unwrap_or_default();
            literals.0.extend(config.split(['"', '\'']).map(str::to_owned));
        }
        self.set("hidden compiler flags", literals.0.iter().map(|text| flags(text)).sum());
        let manifest = fs::read_to_string(root.join("Cargo.toml"))?;
        let list = manifest.split("check-cfg").nth(1).and_then(|rest| rest.split(']').next());
        // The switches of loom and of fuzzers, by their own documentation.
        let others = ["\"cfg(loom)\"", "\"cfg(fuzzing)\""];
        let own = |list: &str| {
            let known = others.iter().filter(|cfg| list.contains(**cfg)).count();
            list.matches("\"cfg(").count() - known
        };
        self.set("own cfgs", list.map_or(0, own));
        Ok(())
    }

    fn documents(&mut self, root: &Path, texts: &Texts) -> Result<()> {
        let readme = fs::read_to_string(root.join("README.md"))?;
        self.set("README lines", readme.lines().count());
        let first = readme.lines().position(|line| line.starts_with("```rust"));
        if let Some(line) = first {
            self.set("README line of the first code", line + 1);
        }
        for page in PAGES {
            let text = fs::read_to_string(root.join(page)).with_context(|| page.to_owned())?;
            let missing = missing_files(&text, texts);
            self.faults.extend(missing.iter().map(|file| format!("{page}: there is no `{file}`")));
        }
        let page = fs::read_to_string(root.join("ARCHITECTURE.md"))?;
        for measure in ["files on the path of a post", "files on the path of a disconnect"] {
            let stated = path_files(&page, measure, texts, &mut self.faults);
            if let Some(files) = stated {
                self.set(measure, files.len());
            }
        }
        Ok(())
    }

    /// Prints the table, and with `verbose` the files and names behind circles and imports.
    pub(super) fn print(&self, limits: &Limits, verbose: bool) {
        println!("| measure | first edition | now | goal | limit |\n|---|---|---|---|---|");
        for (measure, first, goal, kind) in GOALS {
            let now = match (self.now.get(measure), kind) {
                (Some((figure, detail)), _) if detail.is_empty() => figure.to_string(),
                (Some((figure, detail)), _) => format!("{figure} ({detail})"),
                (None, Measured(command)) => format!("`{command}`"),
                (None, Checked | Capped | Printed) => "not stated".to_owned(),
            };
            let limit = match kind {
                Checked | Capped => {
                    limits.get(*measure).map_or("none".to_owned(), ToString::to_string)
                }
                Printed | Measured(_) => String::new(),
            };
            println!("| {measure} | {first} | {now} | {goal} | {limit} |");
        }
        println!("\nbanned words: {}", self.words.join(", "));
        for (measure, lines) in self.lines.iter().filter(|_| verbose) {
            println!("\n{measure}:");
            lines.iter().for_each(|line| println!("  {line}"));
        }
    }

    /// The checked measures that differ from their limits.
    pub(super) fn faults(&self, limits: &Limits) -> Vec<String> {
        let mut faults = self.faults.clone();
        for (measure, .., kind) in checked() {
            let Some((figure, _)) = self.now.get(measure) else {
                faults.push(format!("{measure}: not measured"));
                continue;
            };
            match limits.get(*measure) {
                None => faults.push(format!("{measure}: no limit in {LIMITS}")),
                Some(limit) if figure > limit => {
                    faults.push(format!("{measure}: {figure}, above the limit {limit}"));
                    let lines = self.lines.get(measure).into_iter().flatten();
                    faults.extend(lines.map(|line| format!("  {line}")));
                    if *measure == "banned words" {
                        faults.push(format!("  {}", self.words.join(", ")));
                    }
                }
                Some(limit) if figure < limit && *kind == Checked => faults.push(format!(
                    "{measure}: {figure}, below the limit {limit}: lower the limit with \
                     `cargo xtask tidy --bless`"
                )),
                Some(_) => {}
            }
        }
        faults
    }

    /// Lowers limits to the figures, and adds missing ones.
    pub(super) fn bless(&self, root: &Path, limits: &mut Limits) -> Result<()> {
        let mut text = String::from("# measure\tlimit\n");
        for (measure, ..) in checked() {
            let Some((figure, _)) = self.now.get(measure) else {
                continue;
            };
            let limit = limits.get(*measure).map_or(*figure, |limit| *figure.min(limit));
            limits.insert((*measure).to_owned(), limit);
            text.push_str(&format!("{measure}\t{limit}\n"));
        }
        fs::write(root.join(LIMITS), text).with_context(|| LIMITS.to_owned())
    }
}

/// Limits by measure.
pub(super) type Limits = BTreeMap<String, usize>;

fn checked() -> impl Iterator<Item = &'static Goal> {
    GOALS.iter().filter(|(.., kind)| matches!(kind, Checked | Capped))
}

pub(super) fn limits(root: &Path) -> Result<Limits> {
    let text = fs::read_to_string(root.join(LIMITS)).unwrap_or_default();
    let rows = text.lines().filter(|line| !line.starts_with('#'));
    rows.map(|row| {
        let (measure, limit) = row.split_once('\t').with_context(|| format!("{LIMITS}: {row}"))?;
        ensure!(
            checked().any(|(known, ..)| *known == measure),
            "{LIMITS}: `{measure}` is no checked measure"
        );
        Ok((measure.to_owned(), limit.parse()?))
    })
    .collect()
}

/// The parsed files of the product; the sub-crates of vfio-host are part of it.
pub(super) fn product(texts: &Texts) -> Result<Syntax> {
    let of = ["dat-core/src/", "hca-mlx5/src/", "vfio-host/"];
    let mut product = Syntax::new();
    for (file, text) in texts.iter().filter(|(file, _)| of.iter().any(|f| file.starts_with(f))) {
        if !file.split('/').any(|part| matches!(part, "tests" | "examples" | "benches")) {
            product.insert(file.clone(), syn::parse_file(text).with_context(|| file.clone())?);
        }
    }
    Ok(product)
}

/// The files of a crate, by their path in its `src`.
pub(super) fn of_crate(product: &Syntax, name: &str) -> Syntax {
    let prefix = format!("{name}/src/");
    let files = product.iter().filter_map(|(file, syntax)| {
        Some((file.strip_prefix(&prefix)?.to_owned(), syntax.clone()))
    });
    files.collect()
}

/// The string literals outside of tests.
#[derive(Default)]
struct Literals(Vec<String>);

impl<'ast> Visit<'ast> for Literals {
    fn visit_item(&mut self, item: &'ast Item) {
        if !is_test(attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_lit_str(&mut self, literal: &'ast syn::LitStr) {
        self.0.push(literal.value());
    }
}

/// The number of compiler flags in a text; programs of guests have options `-C 10`.
fn flags(text: &str) -> usize {
    let mut words = text.split_whitespace();
    let mut flags = 0;
    while let Some(word) = words.next() {
        let Some(flag) = word.strip_prefix("-C").or(word.strip_prefix("-Z")) else {
            continue;
        };
        let flag = if flag.is_empty() { words.next().unwrap_or_default() } else { flag };
        let is_flag = flag.starts_with(|c: char| c.is_ascii_lowercase());
        flags += usize::from(is_flag && !OTHER_FLAGS.contains(&flag));
    }
    flags
}

/// Whether a field of a struct in `module` can be named outside the folder `engine`.
fn is_visible_outside_engine(visibility: &Visibility, module: &str) -> bool {
    let is_outside = |module: &str| module != "engine" && !module.starts_with("engine/");
    match visibility {
        Visibility::Public(_) => true,
        Visibility::Inherited => false,
        Visibility::Restricted(restricted) => {
            let path = restricted.path.segments.iter().map(|segment| segment.ident.to_string());
            let path: Vec<String> = path.collect();
            match path.first().map(String::as_str) {
                Some("self") => false,
                Some("super") => {
                    is_outside(module.rsplit_once('/').map_or("", |(parent, _)| parent))
                }
                _ => is_outside(&path[1..].join("/")),
            }
        }
    }
}

/// The functions of an `impl` that are no tests.
fn functions(item: &ItemImpl) -> impl Iterator<Item = &syn::ImplItemFn> {
    let functions = item.items.iter().filter_map(|item| match item {
        ImplItem::Fn(function) => Some(function),
        _ => None,
    });
    functions.filter(|function| !is_test(&function.attrs))
}

fn is_named(ty: &Type, name: &str) -> bool {
    matches!(ty, Type::Path(ty) if ty.path.segments.last().is_some_and(|s| s.ident == name))
}

/// The files that the section `heading` of a page names as `` `path/file.rs::function` ``; `None`
/// without such a section.
fn path_files(
    page: &str,
    heading: &str,
    texts: &Texts,
    faults: &mut Vec<String>,
) -> Option<BTreeSet<String>> {
    let is_heading = |line: &&str| {
        line.starts_with('#') && line.trim_start_matches(['#', ' ']).eq_ignore_ascii_case(heading)
    };
    let mut lines = page.lines().skip_while(|line| !is_heading(line));
    lines.next()?;
    let mut files = BTreeSet::new();
    for line in lines.take_while(|line| !line.starts_with('#')) {
        for (file, function) in line.split('`').filter_map(|code| code.split_once(".rs::")) {
            let file = format!("{file}.rs");
            let known = texts.get(&file);
            let declared = [format!("fn {function}("), format!("fn {function}<")];
            if !known.is_some_and(|text| declared.iter().any(|words| text.contains(words))) {
                faults.push(format!("ARCHITECTURE.md: {file} has no function `{function}`"));
            }
            files.insert(file);
        }
    }
    Some(files)
}

/// Source files that a page names between backticks, by the end of their path, and that do not
/// exist.
fn missing_files(page: &str, texts: &Texts) -> Vec<String> {
    let code = page.lines().flat_map(|line| line.split('`').skip(1).step_by(2));
    let files = code.filter_map(|code| Some(format!("{}.rs", code.split_once(".rs")?.0)));
    let exists = |file: &String| texts.keys().any(|known| Path::new(known).ends_with(file));
    files.filter(|file| !file.contains(['*', ' ']) && !exists(file)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_names_files_that_exist() {
        let texts = [("a/src/b/c.rs".to_owned(), String::new())].into();
        let page = "`b/c.rs`, `c.rs::f` and `x/c.rs`\n`not/*.rs`";
        assert_eq!(missing_files(page, &texts), ["x/c.rs"]);
    }

    fn syntax(file: &str, text: &str) -> Syntax {
        [(file.to_owned(), syn::parse_file(text).unwrap())].into()
    }

    fn figures(measure: &'static str, figure: usize) -> Figures {
        let mut figures = Figures::default();
        checked().for_each(|(measure, ..)| figures.set(measure, 0));
        figures.set(measure, figure);
        figures
    }

    #[test]
    fn a_figure_has_to_be_its_limit() {
        let mut limits: Limits =
            checked().map(|(measure, ..)| ((*measure).to_owned(), 0)).collect();
        let _ = limits.insert("fields of Ia".to_owned(), 9);
        assert_eq!(figures("fields of Ia", 9).faults(&limits), Vec::<String>::new());
        assert!(figures("fields of Ia", 10).faults(&limits)[0].contains("above the limit 9"));
        assert!(figures("fields of Ia", 8).faults(&limits)[0].contains("lower the limit"));
    }

    #[test]
    fn fields_and_methods_of_the_interface_adapter_are_counted() {
        let mut files = syntax("lib.rs", "mod engine; mod low; mod variant;");
        files.extend(syntax(
            "engine/mod.rs",
            "pub struct Ia { a: u8, pub(crate) b: u8, pub(in crate::engine) c: u8, pub(super) d: u8 }
             impl Ia { pub fn f() {} fn g() {} pub(crate) fn h() {} #[cfg(test)] fn t() {} }
             impl Drop for Ia { fn drop(&mut self) {} }",
        ));
        files.extend(syntax("low.rs", "use crate::engine::Ia;"));
        let variant = "pub enum Handle { Ia } pub fn f() -> Handle { Handle::Ia }";
        files.extend(syntax("variant.rs", variant));
        let mut figures = Figures::default();
        figures.interface_adapter(&files);
        let now = |measure| figures.now[measure].0;
        assert_eq!(now("fields of Ia"), 4);
        assert_eq!(now("fields of Ia visible outside engine"), 2);
        assert_eq!(now("not public methods of Ia"), 2);
        assert_eq!(now("public methods of Ia"), 1);
        assert_eq!(now("files outside engine and api that name Ia"), 1);
    }

    #[test]
    fn options_of_programs_are_no_compiler_flags() {
        assert_eq!(flags("-Cllvm-args=-x -C lto"), 2);
        assert_eq!(flags("rping -C 10"), 0);
        assert_eq!(flags("-C target-feature=+crt-static"), 0);
    }

    #[test]
    fn a_path_names_files_that_exist() {
        let page = "# A\n## Files on the path of a post\n1. `a.rs::f`, `a.rs::g`\n2. `b.rs::f`\n\
            ## Next\n`c.rs::f`\n";
        let texts = Texts::from([("a.rs".to_owned(), "fn f() {} fn g<T>() {}".to_owned())]);
        let mut faults = Vec::new();
        let heading = "files on the path of a post";
        assert_eq!(path_files(page, heading, &texts, &mut faults).unwrap().len(), 2);
        assert_eq!(faults, ["ARCHITECTURE.md: b.rs has no function `f`"]);
        assert!(path_files("# A\n", heading, &texts, &mut faults).is_none());
    }
}
