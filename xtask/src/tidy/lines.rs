//! Lines of product code.

use std::collections::{BTreeMap, BTreeSet};

use syn::Item;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use super::Texts;
use super::modules::{Syntax, attributes, folder_of, is_module, is_test, joined};

/// Code lines of each crate's folder, without the loop provider.
pub(super) fn by_crate<'p>(texts: &Texts, product: &'p Syntax) -> BTreeMap<&'p str, usize> {
    let tests = test_modules(product);
    let mut by_crate = BTreeMap::<&str, usize>::new();
    for (file, syntax) in product {
        let is_counted = !file.starts_with("dat-core/src/testing/")
            && !tests.iter().any(|test| is_module(file, test));
        if let Some(text) = texts.get(file).filter(|_| is_counted) {
            let name = file.split('/').next().unwrap_or_default();
            *by_crate.entry(name).or_default() += code_lines(text, syntax);
        }
    }
    by_crate
}

/// The modules that only test builds have, as paths without `.rs`.
fn test_modules(product: &Syntax) -> Vec<String> {
    let mut tests = Vec::new();
    for (file, syntax) in product {
        let (source, inside) = file.rsplit_once("src/").unwrap_or(("", file));
        let folder = joined(&format!("{source}src"), folder_of(inside));
        for item in &syntax.items {
            if let Item::Mod(item) = item {
                if item.content.is_none() && is_test(&item.attrs) {
                    tests.push(joined(folder.trim_end_matches('/'), &item.ident.to_string()));
                }
            }
        }
    }
    tests
}

/// Lines that are neither blank, nor a comment, nor of a test.
fn code_lines(text: &str, syntax: &syn::File) -> usize {
    let mut tests = TestLines::default();
    tests.visit_file(syntax);
    let mut in_comment = false;
    let lines = text.lines().enumerate().filter(|(index, line)| {
        let line = line.trim();
        let is_comment = in_comment || line.starts_with("/*");
        in_comment = is_comment && !line.contains("*/");
        !is_comment
            && !line.is_empty()
            && !line.starts_with("//")
            && !tests.0.contains(&(index + 1))
    });
    lines.count()
}

/// Numbers of the lines of test items.
#[derive(Default)]
struct TestLines(BTreeSet<usize>);

impl<'ast> Visit<'ast> for TestLines {
    fn visit_item(&mut self, item: &'ast Item) {
        if is_test(attributes(item)) {
            self.0.extend(item.span().start().line..=item.span().end().line);
        } else {
            visit::visit_item(self, item);
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if is_test(&item.attrs) {
            self.0.extend(item.span().start().line..=item.span().end().line);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blank_lines_comments_and_tests_are_no_code() {
        let text = "//! x\n\nuse a::B;\n/* one\n two */\n#[cfg(test)]\nmod tests {\n fn f() {}\n}\n\
            impl A {\n    // why\n    #[cfg(test)]\n    fn t() {}\n    fn g() {}\n}\n";
        assert_eq!(code_lines(text, &syn::parse_file(text).unwrap()), 4);
    }

    #[test]
    fn the_file_of_a_test_module_is_found() {
        let syntax = |file: &str, text: &str| {
            Syntax::from([(file.to_owned(), syn::parse_file(text).unwrap())])
        };
        let product = syntax("c/src/a/mod.rs", "#[cfg(test)] mod tests; mod b;");
        assert_eq!(test_modules(&product), ["c/src/a/tests"]);
        assert_eq!(test_modules(&syntax("c/src/lib.rs", "#[cfg(test)] mod t;")), ["c/src/t"]);
        assert!(is_module("c/src/t.rs", "c/src/t") && is_module("c/src/t/x.rs", "c/src/t"));
        assert!(!is_module("c/src/tt.rs", "c/src/t"));
    }
}
