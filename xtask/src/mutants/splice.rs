//! Writes a source file with its mutants compiled in.

use std::collections::BTreeSet;
use std::ops::Range;

use super::sites::{Change, Form, Site, Sites};

/// The range of a mutant in the instrumented text.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Mark {
    pub(crate) range: Range<usize>,
    /// Numbers of mutants.
    pub(crate) ids: Vec<u32>,
}

#[derive(Debug)]
pub(crate) struct Spliced {
    pub(crate) text: String,
    pub(crate) marks: Vec<Mark>,
    /// The range of each function with mutants, with all their numbers.
    pub(crate) functions: Vec<Mark>,
}

/// Writes the file. `id` returns the number of a change, if it is compiled in.
pub(crate) fn splice(
    text: &str,
    sites: &Sites,
    switch: &str,
    id: &dyn Fn(&Change) -> Option<u32>,
) -> Spliced {
    let chosen: Vec<(&Site, Vec<(u32, bool)>)> = sites
        .sites
        .iter()
        .map(|site| {
            let ids = site.changes.iter().filter_map(|c| Some((id(c)?, c.forced)));
            (site, ids.collect())
        })
        .collect();
    let mutated: BTreeSet<usize> =
        chosen.iter().filter(|(_, ids)| !ids.is_empty()).map(|(site, _)| site.function).collect();
    let mut functions: Vec<Range<usize>> = Vec::new();
    let mut numbers = Vec::new();
    for function in &mutated {
        functions.extend(sites.functions.get(*function).cloned());
        let own = chosen.iter().filter(|(site, _)| site.function == *function);
        numbers.push(own.flat_map(|(_, ids)| ids.iter().map(|(id, _)| *id)).collect::<Vec<_>>());
    }
    let nodes = chosen
        .into_iter()
        .filter(|(site, ids)| match site.form {
            Form::Const => mutated.contains(&site.function),
            Form::Condition
            | Form::Let
            | Form::Else(_)
            | Form::Statement
            | Form::Arm
            | Form::Compare(..)
            | Form::Number(_)
            | Form::Constant => !ids.is_empty(),
        })
        .collect();
    let mut writer =
        Writer { text, switch, nodes, out: String::new(), marks: Vec::new(), ends: Vec::new() };
    writer.ends = functions.iter().flat_map(|f| [f.start, f.end]).map(|at| (at, 0)).collect();
    writer.write(0..text.len(), 0);
    let placed =
        |at: usize| writer.ends.iter().find(|(end, _)| *end == at).map_or(0, |(_, out)| *out);
    let functions = functions
        .iter()
        .zip(numbers)
        .map(|(f, ids)| Mark { range: placed(f.start)..placed(f.end), ids })
        .collect();
    Spliced { functions, text: writer.out, marks: writer.marks }
}

struct Writer<'a> {
    text: &'a str,
    switch: &'a str,
    nodes: Vec<(&'a Site, Vec<(u32, bool)>)>,
    out: String,
    marks: Vec<Mark>,
    /// Ends of functions in the source, and in the output.
    ends: Vec<(usize, usize)>,
}

impl Writer<'_> {
    /// Copies source text without a site.
    fn copy(&mut self, range: Range<usize>) {
        for (end, out) in &mut self.ends {
            if range.contains(end) || *end == range.end {
                *out = self.out.len() + (*end - range.start);
            }
        }
        self.out.push_str(self.text.get(range).unwrap_or_default());
    }

    /// Writes a piece of the source with the sites in it, beginning at node `next`. Returns the
    /// node after it.
    fn write(&mut self, range: Range<usize>, mut next: usize) -> usize {
        let mut at = range.start;
        while let Some((site, ids)) = self.nodes.get(next) {
            let (site, ids) = (*site, ids.clone());
            if site.range.start >= range.end {
                break;
            }
            self.copy(at..site.range.start);
            at = site.range.end;
            next = self.site(site, &ids, next + 1);
        }
        self.copy(at..range.end);
        next
    }

    fn site(&mut self, site: &Site, ids: &[(u32, bool)], next: usize) -> usize {
        let start = self.out.len();
        let on = format!("{}::on", self.switch);
        let first = ids.first().map_or(0, |(id, _)| *id);
        let whole = site.range.clone();
        let after = match &site.form {
            Form::Const => next,
            Form::Condition => {
                self.out.push('(');
                for (id, forced) in ids {
                    let text = if *forced {
                        format!("{on}({id}) || ")
                    } else {
                        format!("!{on}({id}) && ")
                    };
                    self.out.push_str(&text);
                }
                self.out.push('(');
                let after = self.write(whole, next);
                self.out.push_str("))");
                after
            }
            Form::Let => {
                self.out.push_str(&format!("!{on}({first}) && "));
                self.write(whole, next)
            }
            Form::Else(block) => {
                self.out.push_str(&format!("if {on}({first}) "));
                self.out.push_str(self.text.get(block.clone()).unwrap_or_default());
                self.out.push(' ');
                self.write(whole, next)
            }
            Form::Statement | Form::Arm => {
                let braces = site.form == Form::Arm;
                self.out.push_str(if braces { "{ " } else { "" });
                self.out.push_str(&format!("if !{on}({first}) {{ "));
                let after = self.write(whole, next);
                self.out.push_str(if braces { " } }" } else { " }" });
                after
            }
            Form::Compare(op, to) => {
                self.out.push_str(&format!("(if {on}({first}) {{ "));
                let right = self.write(whole.start..op.start, next);
                self.out.push_str(to);
                self.write(op.end..whole.end, right);
                self.out.push_str(" } else { ");
                let after = self.write(whole, next);
                self.out.push_str(" })");
                after
            }
            Form::Number(to) => {
                self.out.push_str(&format!("(if {on}({first}) {{ {to} }} else {{ "));
                let after = self.write(whole, next);
                self.out.push_str(" })");
                after
            }
            Form::Constant => {
                self.out.push_str(&format!("{}::next({first}, ", self.switch));
                let after = self.write(whole, next);
                self.out.push(')');
                after
            }
        };
        let ids = ids.iter().map(|(id, _)| *id).collect::<Vec<_>>();
        if !ids.is_empty() {
            self.marks.push(Mark { range: start..self.out.len(), ids });
        }
        after
    }
}

#[cfg(test)]
mod tests {
    use super::super::names::{Names, names};
    use super::super::sites::sites;
    use super::*;

    /// Returns the text with all its mutants, and their keys.
    fn all(text: &str, names: &Names) -> (String, Vec<String>, Sites) {
        let found = sites(text, names).unwrap();
        let keys: Vec<String> =
            found.sites.iter().flat_map(|s| &s.changes).map(|c| c.key.clone()).collect();
        let id = |c: &Change| {
            keys.iter().position(|key| *key == c.key).and_then(|i| u32::try_from(i + 1).ok())
        };
        let spliced = splice(text, &found, "m", &id);
        for mark in spliced.marks.iter().chain(&spliced.functions) {
            assert!(spliced.text.get(mark.range.clone()).is_some());
        }
        // The output can be parsed again.
        syn::parse_file(&spliced.text).unwrap();
        (spliced.text, keys, found)
    }

    fn check(text: &str, expected: &str, keys: &[&str]) {
        let (out, found, _) = all(text, &Names::default());
        assert_eq!(out, expected);
        assert_eq!(found, keys);
    }

    #[test]
    fn conditions_are_forced_both_ways() {
        check(
            "fn f(a: bool) { if a { g() } }",
            "fn f(a: bool) { if (m::on(1) || !m::on(2) && (a)) { if !m::on(3) { g() } } }",
            &["f condition 1 true", "f condition 1 false", "f statement 1"],
        );
        check(
            "fn f() { while !a() {} }",
            "fn f() { while !(m::on(1) || !m::on(2) && (a())) {} }",
            &["f condition 1 true", "f condition 1 false"],
        );
        check(
            "fn f() -> u8 { match x { y if z => w, _ => v } }",
            "fn f() -> u8 { match x { y if (m::on(1) || !m::on(2) && (z)) => w, _ => v } }",
            &["f condition 1 true", "f condition 1 false"],
        );
        check(
            "fn f() -> bool { x.is_some_and(|y| y.z) }",
            "fn f() -> bool { x.is_some_and(|y| (m::on(1) || !m::on(2) && (y.z))) }",
            &["f condition 1 true", "f condition 1 false"],
        );
    }

    #[test]
    fn operands_are_forced_if_that_is_a_separate_mutant() {
        check(
            "fn f() -> bool { a && b }",
            "fn f() -> bool { (m::on(1) || !m::on(2) && ((m::on(3) || (a)) && (m::on(4) || (b)))) }",
            &[
                "f condition 1 true",
                "f condition 1 false",
                "f condition 2 true",
                "f condition 3 true",
            ],
        );
        check(
            "fn f() -> bool { a || b }",
            "fn f() -> bool { (m::on(1) || !m::on(2) && ((!m::on(3) && (a)) || (!m::on(4) && (b)))) }",
            &[
                "f condition 1 true",
                "f condition 1 false",
                "f condition 2 false",
                "f condition 3 false",
            ],
        );
    }

    #[test]
    fn a_let_is_refused_only() {
        check(
            "fn f() -> u8 { if let Some(a) = b && c { d } else { e } }",
            "fn f() -> u8 { if !m::on(1) && let Some(a) = b && (m::on(2) || (c)) { d } else { e } }",
            &["f condition 1 false", "f condition 2 true"],
        );
        check(
            "fn f() { let Some(a) = b else { return }; }",
            "fn f() { if m::on(1) { return } let Some(a) = b else { return }; }",
            &["f else 1"],
        );
    }

    #[test]
    fn statements_are_dropped() {
        check(
            "impl A { fn f(&mut self) -> u8 { self.a(); self.b = c; self.d += e; let _ = g(); self.h()?; i() } }",
            "impl A { fn f(&mut self) -> u8 { if !m::on(1) { self.a(); } if !m::on(2) { self.b = c; } \
             if !m::on(3) { self.d += e; } if !m::on(4) { let _ = g(); } if !m::on(5) { self.h()?; } i() } }",
            &[
                "A::f statement 1",
                "A::f statement 2",
                "A::f statement 3",
                "A::f statement 4",
                "A::f statement 5",
            ],
        );
        check(
            "fn f() { match a { B => c(), _ => {} } }",
            "fn f() { match a { B => { if !m::on(1) { c() } }, _ => {} } }",
            &["f statement 1"],
        );
    }

    #[test]
    fn comparisons_and_numbers_are_shifted() {
        check(
            "fn f() -> bool { a < 0x10_u32 }",
            "fn f() -> bool { (if m::on(1) { a <= (if m::on(2) { 17u32 } else { 0x10_u32 }) } else \
             { a < (if m::on(2) { 17u32 } else { 0x10_u32 }) }) }",
            &["f comparison 1", "f number 1"],
        );
        let mut text = Names::default();
        text.integers.insert("MOST".into());
        let (out, ..) = all("fn f() -> u32 { MOST }", &text);
        assert_eq!(out, "fn f() -> u32 { m::next(1, MOST) }");
    }

    #[test]
    fn constant_expressions_are_only_counted() {
        let text = "const A: [u8; 2] = [1; 2]; const fn f(a: u8) -> bool { a < 1 } fn g() { h!(3); let 4 = i else { return }; } \
                    #[cfg(test)] fn j() { k(); } impl Debug for B { fn fmt(&self) { l(); } } enum C { D = 5 }";
        let found =
            sites(text, &Names { constant: ["f".to_owned()].into(), ..Names::default() }).unwrap();
        let keys: Vec<_> = found.sites.iter().flat_map(|s| &s.changes).map(|c| &c.key).collect();
        assert_eq!(keys, ["g else 1"]);
        let left = found.left_out;
        assert_eq!((left.constant, left.macros, left.cfg, left.debug), (5, 1, 1, 1));
    }

    #[test]
    fn functions_lose_const_unless_constants_need_them() {
        let text = "const A: u8 = f(); const fn f() -> u8 { g() } const fn g() -> u8 { 1 } const fn h() -> u8 { 2 }";
        let names = names(&[text]).unwrap();
        let (out, keys, _) = all(text, &names);
        assert_eq!(keys, ["h number 1"]);
        assert!(
            out.contains("const fn g() -> u8 { 1 }")
                && out.contains(" fn h()")
                && !out.contains("const fn h")
        );
    }

    #[test]
    fn keys_do_not_depend_on_lines() {
        let (_, before, _) = all("fn f() { a(); }\nfn g() { if b { c(); } }", &Names::default());
        let (_, after, _) = all(
            "// d\n\nfn f() {\n a();\n e();\n}\n\nfn g() {\n if b {\n c();\n }\n}",
            &Names::default(),
        );
        assert_eq!(before[1..], after[2..]);
    }
}
