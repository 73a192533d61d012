//! `let` in a chain of conditions, which takes Rust 1.88: the lowest version is an older one, and
//! neither the compiler nor clippy of a newer one says a word about it.

use syn::visit::{self, Visit};
use syn::{BinOp, Expr, ExprIf, ExprWhile};

/// Returns the lines of a file that have such a chain.
pub(super) fn lines(text: &str) -> Vec<usize> {
    let mut chains = Chains::default();
    // Most files have none, and parsing takes longer than everything else.
    if may_have(text) {
        if let Ok(file) = syn::parse_file(text) {
            chains.visit_file(&file);
        }
    }
    chains.0
}

fn may_have(text: &str) -> bool {
    let mut after_let = false;
    text.lines().map(str::trim_start).any(|line| {
        let starts =
            ["if let ", "while let ", "} else if let "].iter().any(|s| line.starts_with(s));
        let found = line.contains("&& let ")
            || starts && line.contains(" && ")
            || after_let && line.starts_with("&& ");
        after_let = starts || after_let && !line.ends_with(['{', ';']);
        found
    })
}

#[derive(Default)]
struct Chains(Vec<usize>);

impl Chains {
    fn condition(&mut self, condition: &Expr) {
        if let Expr::Binary(both) = condition {
            if matches!(both.op, BinOp::And(_)) {
                for side in [&both.left, &both.right] {
                    if let Expr::Let(found) = &**side {
                        self.0.push(found.let_token.span.start().line);
                    } else {
                        self.condition(side);
                    }
                }
            }
        }
    }
}

impl<'ast> Visit<'ast> for Chains {
    fn visit_expr_if(&mut self, node: &'ast ExprIf) {
        self.condition(&node.cond);
        visit::visit_expr_if(self, node);
    }

    fn visit_expr_while(&mut self, node: &'ast ExprWhile) {
        self.condition(&node.cond);
        visit::visit_expr_while(self, node);
    }
}

#[cfg(test)]
mod tests {
    use super::lines;

    #[test]
    fn chains_are_found_and_nothing_else() {
        let chain = "fn f() {\n    if a\n        && let Some(x) = b\n    {\n    }\n}\n";
        assert_eq!(lines(chain), [3]);
        assert_eq!(lines("fn f() {\n    while let Some(x) = b && x > 1 {}\n}\n"), [2]);
        assert!(lines("fn f() {\n    if let Some(x) = b.filter(|b| *b && a) {}\n}\n").is_empty());
    }
}
