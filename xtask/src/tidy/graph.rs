//! The import graph of a crate by defining file: its circles, and the imports that point to a
//! higher floor.

use std::collections::{BTreeMap, BTreeSet};

use super::modules::{Crate, Syntax};

/// The largest circle of files that is no finding.
const SMALL: usize = 3;

/// The floors of a crate, the highest first: folders and files in its `src`.
pub(super) type Floors = [&'static str];

/// Imports by file and defining file: the names.
type Edges<'c> = BTreeMap<(&'c str, &'c str), BTreeSet<&'c str>>;

/// The findings of a crate.
#[derive(Debug, Default)]
pub(super) struct Findings {
    /// Sizes of the circles above three files, the largest first.
    pub(super) circles: Vec<usize>,
    /// Imports that point to a higher floor.
    pub(super) upward: usize,
    /// Files that stand on no floor, and all files.
    pub(super) floorless: [usize; 2],
    /// The findings with their files and names.
    pub(super) circle_lines: Vec<String>,
    pub(super) upward_lines: Vec<String>,
}

/// The crate root and the loop provider stand on no floor: they know everything.
fn is_exempt(file: &str) -> bool {
    file == "lib.rs" || file.starts_with("testing/")
}

/// The floor of a file, 0 for the highest.
fn floor(floors: &Floors, file: &str) -> Option<usize> {
    let top = file.split('/').next().unwrap_or(file).trim_end_matches(".rs");
    floors.iter().position(|floor| floor.trim_end_matches(".rs") == top)
}

pub(super) fn findings(files: &Syntax, floors: &Floors) -> Findings {
    let krate = Crate::read(files);
    let mut edges = Edges::new();
    for (from, to, name) in krate.uses() {
        if !is_exempt(from) && !is_exempt(to) {
            edges.entry((from, to)).or_default().insert(name);
        }
    }
    let line = |((from, to), names): (&(&str, &str), &BTreeSet<&str>)| {
        let names: Vec<&str> = names.iter().copied().collect();
        format!("{from} -> {to}: {}", names.join(" "))
    };
    let mut found = Findings::default();
    for circle in circles(&edges) {
        if circle.len() > SMALL {
            found.circles.push(circle.len());
            found.circle_lines.push(format!("circle of {} files:", circle.len()));
            let inside =
                edges.iter().filter(|((a, b), _)| circle.contains(a) && circle.contains(b));
            found.circle_lines.extend(inside.map(line));
        }
    }
    for (edge @ (from, to), names) in &edges {
        let (from, to) = (floor(floors, from), floor(floors, to));
        if from.zip(to).is_some_and(|(from, to)| to < from) {
            found.upward += 1;
            found.upward_lines.push(line((edge, names)));
        }
    }
    let files: Vec<&str> = krate.files().into_iter().filter(|file| !is_exempt(file)).collect();
    let floorless = files.iter().filter(|file| floor(floors, file).is_none()).count();
    found.floorless = [floorless, files.len()];
    found
}

/// The strongly connected components of two files and more, the largest first (Kosaraju).
fn circles<'c>(edges: &Edges<'c>) -> Vec<BTreeSet<&'c str>> {
    let (mut forward, mut backward) = (Graph::new(), Graph::new());
    for (from, to) in edges.keys() {
        forward.entry(from).or_default().push(to);
        backward.entry(to).or_default().push(from);
    }
    let (mut seen, mut finished) = (BTreeSet::new(), Vec::new());
    for start in forward.keys() {
        visit(&forward, start, &mut seen, &mut finished);
    }
    seen.clear();
    let mut circles = Vec::new();
    for start in finished.into_iter().rev() {
        let mut circle = Vec::new();
        visit(&backward, start, &mut seen, &mut circle);
        if circle.len() > 1 {
            circles.push(circle.into_iter().collect::<BTreeSet<_>>());
        }
    }
    circles.sort_by_key(|circle| std::cmp::Reverse(circle.len()));
    circles
}

type Graph<'c> = BTreeMap<&'c str, Vec<&'c str>>;

/// Depth-first search from `at`; appends each file behind those that it leads to.
fn visit<'c>(
    graph: &Graph<'c>,
    at: &'c str,
    seen: &mut BTreeSet<&'c str>,
    finished: &mut Vec<&'c str>,
) {
    if seen.insert(at) {
        for next in graph.get(at).into_iter().flatten() {
            visit(graph, next, seen, finished);
        }
        finished.push(at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLOORS: &Floors = &["high", "low.rs"];

    fn found(files: &[(&str, &str)]) -> Findings {
        let parse = |text: &str| syn::parse_file(text).unwrap();
        let files = files.iter().map(|(file, text)| ((*file).to_owned(), parse(text)));
        findings(&files.collect(), FLOORS)
    }

    /// Four files in a row; `last` is the text of the fourth.
    fn row(root: &str, last: &str) -> Findings {
        found(&[
            ("lib.rs", &format!("mod a; mod b; mod c; mod d; {root}")),
            ("a.rs", "use crate::b::B; pub struct A(B);"),
            ("b.rs", "pub struct B(super::c::C);"),
            ("c.rs", "use crate::d; pub type C = [d::D; 2];"),
            ("d.rs", last),
        ])
    }

    #[test]
    fn a_circle_through_a_re_export_is_found() {
        assert_eq!(row("", "pub struct D;").circles, [0; 0]);
        let round = row("pub use a::A;", "pub struct D; fn f(_: crate::A) {}");
        assert_eq!(round.circles, [4]);
        assert!(round.circle_lines.contains(&"d.rs -> a.rs: A".to_owned()));
        assert_eq!(row("pub(crate) use a::*;", "pub struct D; fn f(_: crate::A) {}").circles, [4]);
    }

    #[test]
    fn a_re_export_and_a_test_are_no_use() {
        assert_eq!(row("", "pub struct D; pub use crate::a::A;").circles, [0; 0]);
        assert_eq!(
            row("", "pub struct D; #[cfg(test)] mod tests { use crate::a::A; }").circles,
            [0; 0]
        );
    }

    #[test]
    fn an_argument_of_a_macro_is_a_use() {
        let round = row("", "pub struct D; fn f() { assert!(x == crate::a::A::NEW) }");
        assert_eq!(round.circles, [4]);
        assert_eq!(row("", "pub struct D; fn f() { vec![core::a::A, x.a] }").circles, [0; 0]);
    }

    #[test]
    fn an_upward_import_through_a_glob_is_found() {
        let upward = |low: &str| {
            let high = ("high/mod.rs", "mod part; pub use part::*;");
            let part = ("high/part.rs", "pub struct Part; table! { Made }");
            found(&[("lib.rs", "mod high; mod low;"), high, part, ("low.rs", low)]).upward_lines
        };
        assert_eq!(
            upward("use crate::high::*; struct Low(Part);"),
            ["low.rs -> high/part.rs: Part"]
        );
        assert_eq!(upward("use crate::high::*; struct Low(u8);"), Vec::<String>::new());
        // Which names a macro makes is not seen: the module is what is used.
        assert_eq!(upward("use crate::high::Made;"), ["low.rs -> high/mod.rs: Made"]);
    }

    #[test]
    fn a_name_that_a_macro_makes_is_defined_in_its_module() {
        let made = found(&[
            ("lib.rs", "mod high; mod low;"),
            ("high.rs", "table! { Made }"),
            ("low.rs", "fn f() -> crate::high::Made { crate::high::made() }"),
        ]);
        assert_eq!(made.upward_lines, ["low.rs -> high.rs: Made made"]);
        let glob = found(&[
            ("lib.rs", "mod high; mod low;"),
            ("high.rs", "table! { Made }"),
            ("low.rs", "use crate::high::*;"),
        ]);
        assert_eq!(glob.upward, 1);
    }

    #[test]
    fn a_local_module_hides_the_name_of_another() {
        let local = |text: &str| {
            let lib = ("lib.rs", "mod high; mod low;");
            found(&[lib, ("high.rs", "pub struct X;"), ("low.rs", text)]).upward
        };
        assert_eq!(local("use crate::high; fn f(_: high::X) {}"), 1);
        assert_eq!(local("mod high { pub struct X; } fn f(_: high::X) {}"), 0);
        assert_eq!(local("mod inner { fn f(_: super::super::high::X) {} }"), 1);
    }

    #[test]
    fn files_on_no_floor_are_counted() {
        let files = [("lib.rs", "mod low; mod other;"), ("low.rs", ""), ("other.rs", "")];
        assert_eq!(found(&files).floorless, [1, 2]);
    }
}
