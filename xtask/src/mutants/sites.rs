//! Finds the places of a source file that can be mutated.
//!
//! A site is an expression or statement with one or two mutants. Sites nest and never overlap
//! otherwise. Code that the compiler evaluates (`const`, patterns, types), the arguments of macros,
//! `Debug` and what stands behind a `#[cfg]` cannot be switched at run time and are counted only.
#![expect(clippy::wildcard_enum_match_arm, reason = "syn's enums may grow")]

use std::collections::{BTreeMap, HashSet};
use std::ops::Range;

use anyhow::Result;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{BinOp, Block, Expr, Item, Lit, Pat, Stmt, UnOp};

use super::names::{LeftOut, Names};

/// The form of a site, which determines its rewriting.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Form {
    /// An expression of type `bool`.
    Condition,
    /// A condition with a `let`, which can be made false only.
    Let,
    /// A `let` with an `else` block, which is taken at once.
    Else(Range<usize>),
    /// A statement that is dropped.
    Statement,
    /// The body of a match arm that is dropped.
    Arm,
    /// A comparison; where its operator is, and the one that takes its place.
    Compare(Range<usize>, &'static str),
    /// An integer literal, and the next one.
    Number(String),
    /// The use of a named integer.
    Constant,
    /// The word `const` of a function.
    Const,
}

/// One change of a site.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Change {
    /// Names the mutant inside its file: function, kind, ordinal of that kind in the function,
    /// change.
    pub(crate) key: String,
    pub(crate) function: String,
    /// Description of the mutant.
    pub(crate) what: String,
    /// For a condition: the forced value.
    pub(crate) forced: bool,
}

#[derive(Debug)]
pub(crate) struct Site {
    pub(crate) range: Range<usize>,
    pub(crate) form: Form,
    pub(crate) changes: Vec<Change>,
    /// Index of the function.
    pub(crate) function: usize,
}

#[derive(Debug)]
pub(crate) struct Sites {
    /// In order of their start, outer ones first.
    pub(crate) sites: Vec<Site>,
    /// The range of each function.
    pub(crate) functions: Vec<Range<usize>>,
    pub(crate) left_out: LeftOut,
}

/// Reads one file.
pub(crate) fn sites(text: &str, names: &Names) -> Result<Sites> {
    let file = syn::parse_file(text)?;
    let mut finder = Finder {
        text,
        names,
        path: Vec::new(),
        function: Vec::new(),
        counts: BTreeMap::new(),
        unit: HashSet::new(),
        constant: 0,
        cfg: 0,
        debug: 0,
        out: Sites { sites: Vec::new(), functions: Vec::new(), left_out: LeftOut::default() },
    };
    finder.visit_file(&file);
    let mut out = finder.out;
    // Stable: of two sites with one range the outer one was found first.
    out.sites.sort_by_key(|site| (site.range.start, usize::MAX - site.range.end));
    Ok(out)
}

struct Finder<'a> {
    text: &'a str,
    names: &'a Names,
    path: Vec<String>,
    /// Functions around, innermost last.
    function: Vec<usize>,
    /// Ordinals by function and kind.
    counts: BTreeMap<(String, &'static str), usize>,
    /// Expressions whose type is `()`.
    unit: HashSet<Range<usize>>,
    constant: usize,
    cfg: usize,
    debug: usize,
    out: Sites,
}

/// Closures of these methods are conditions.
const PREDICATES: &[&str] = &[
    "is_some_and",
    "is_none_or",
    "is_ok_and",
    "is_err_and",
    "filter",
    "any",
    "all",
    "find",
    "position",
    "take_while",
    "skip_while",
    "retain",
];

fn range(node: &impl Spanned) -> Range<usize> {
    node.span().byte_range()
}

fn has_let(e: &Expr) -> bool {
    match e {
        Expr::Let(_) => true,
        Expr::Binary(b) if matches!(b.op, BinOp::And(_)) => has_let(&b.left) || has_let(&b.right),
        _ => false,
    }
}

/// Returns whether an expression statement is evaluated for its effect.
fn is_effect(e: &Expr) -> bool {
    match e {
        Expr::MethodCall(_) | Expr::Call(_) | Expr::Assign(_) => true,
        Expr::Try(inner) => is_effect(&inner.expr),
        Expr::Binary(b) => is_assignment(&b.op),
        _ => false,
    }
}

fn is_assignment(op: &BinOp) -> bool {
    use BinOp::*;
    matches!(
        op,
        AddAssign(_)
            | SubAssign(_)
            | MulAssign(_)
            | DivAssign(_)
            | RemAssign(_)
            | BitXorAssign(_)
            | BitAndAssign(_)
            | BitOrAssign(_)
            | ShlAssign(_)
            | ShrAssign(_)
    )
}

/// Returns the comparison operator that is off by one.
fn shifted(op: &BinOp) -> Option<&'static str> {
    Some(match op {
        BinOp::Lt(_) => "<=",
        BinOp::Le(_) => "<",
        BinOp::Gt(_) => ">=",
        BinOp::Ge(_) => ">",
        BinOp::Eq(_) => "!=",
        BinOp::Ne(_) => "==",
        _ => return None,
    })
}

/// Shortens a text to one line.
fn brief(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut short: String = line.chars().take(60).collect();
    if short.len() < line.len() {
        short.push_str("...");
    }
    short
}

impl Finder<'_> {
    /// Records a site with its changes: for each the suffix of the key, a description and the
    /// forced value of a condition.
    fn site(
        &mut self,
        at: Range<usize>,
        form: Form,
        kind: &'static str,
        changes: &[(&str, String, bool)],
    ) {
        let function = self.path.join("::");
        let count = self.counts.entry((function.clone(), kind)).or_default();
        *count += 1;
        let left = &mut self.out.left_out;
        if self.constant + self.cfg + self.debug > 0 || self.function.is_empty() {
            let reason = match (self.cfg, self.debug) {
                (1.., _) => &mut left.cfg,
                (0, 1..) => &mut left.debug,
                (0, 0) => &mut left.constant,
            };
            *reason += changes.len();
            return;
        }
        let ordinal = *count;
        let changes = changes.iter().map(|(word, what, forced)| Change {
            key: format!("{function} {kind} {ordinal}{word}"),
            function: function.clone(),
            what: what.clone(),
            forced: *forced,
        });
        let site = Site {
            range: at,
            form,
            changes: changes.collect(),
            function: self.function.last().copied().unwrap_or_default(),
        };
        self.out.sites.push(site);
    }

    fn brief(&self, at: &Range<usize>) -> String {
        brief(self.text.get(at.clone()).unwrap_or_default())
    }

    /// Records a condition that may be forced true, false or both. An operand of `&&` is a separate
    /// mutant only if forced true, an operand of `||` only if forced false.
    fn condition(&mut self, e: &Expr, truth: bool, falsehood: bool) {
        match e {
            Expr::Paren(inner) => self.condition(&inner.expr, truth, falsehood),
            Expr::Unary(not) if matches!(not.op, UnOp::Not(_)) => {
                self.condition(&not.expr, falsehood, truth)
            }
            Expr::Let(inner) => {
                self.forced(e, Form::Let, false, falsehood);
                self.visit_expr(&inner.expr);
            }
            Expr::Binary(b) if matches!(b.op, BinOp::And(_) | BinOp::Or(_)) => {
                let and = matches!(b.op, BinOp::And(_));
                let form = if has_let(e) { Form::Let } else { Form::Condition };
                self.forced(e, form.clone(), truth && form == Form::Condition, falsehood);
                self.operands(e, and);
            }
            Expr::Lit(_) => {}
            _ => {
                self.forced(e, Form::Condition, truth, falsehood);
                self.visit_expr(e);
            }
        }
    }

    fn operands(&mut self, e: &Expr, and: bool) {
        match e {
            Expr::Binary(b)
                if and == matches!(b.op, BinOp::And(_))
                    && matches!(b.op, BinOp::And(_) | BinOp::Or(_)) =>
            {
                self.operands(&b.left, and);
                self.operands(&b.right, and);
            }
            _ => self.condition(e, and, !and),
        }
    }

    fn forced(&mut self, e: &Expr, form: Form, truth: bool, falsehood: bool) {
        let at = range(e);
        let text = self.brief(&at);
        let mut changes = Vec::new();
        if truth {
            changes.push((" true", format!("`{text}` forced true"), true));
        }
        if falsehood {
            changes.push((" false", format!("`{text}` forced false"), false));
        }
        if !changes.is_empty() {
            self.site(at, form, "condition", &changes);
        }
    }

    fn statement(&mut self, at: Range<usize>, form: Form) {
        let what = format!("`{}` dropped", self.brief(&at).trim_end_matches(';'));
        self.site(at, form, "statement", &[("", what, false)]);
    }

    /// Records that the value of a block, and so of its last expression, is `()`.
    fn unit_block(&mut self, block: &Block) {
        if let Some(Stmt::Expr(e, None)) = block.stmts.last() {
            self.unit_expr(e);
        }
    }

    fn unit_expr(&mut self, e: &Expr) {
        self.unit.insert(range(e));
        match e {
            Expr::If(inner) => {
                self.unit_block(&inner.then_branch);
                if let Some((_, other)) = &inner.else_branch {
                    self.unit_expr(other);
                }
            }
            Expr::Match(inner) => inner.arms.iter().for_each(|arm| self.unit_expr(&arm.body)),
            Expr::Block(inner) => self.unit_block(&inner.block),
            _ => {}
        }
    }

    /// Enters a function.
    fn enter(&mut self, whole: Range<usize>, signature: &syn::Signature, block: &Block) {
        let name = signature.ident.to_string();
        let kept = signature.constness.is_some() && self.names.constant.contains(&name);
        self.path.push(name);
        self.function.push(self.out.functions.len());
        self.out.functions.push(whole);
        self.constant += usize::from(kept);
        if let (Some(word), 0) = (&signature.constness, self.constant + self.cfg + self.debug) {
            let function = self.out.functions.len() - 1;
            self.out.sites.push(Site {
                range: range(word),
                form: Form::Const,
                changes: Vec::new(),
                function,
            });
        }
        if matches!(signature.output, syn::ReturnType::Default) {
            self.unit_block(block);
        }
        self.visit_block(block);
        self.constant -= usize::from(kept);
        self.function.pop();
        self.path.pop();
    }

    fn evaluated(&mut self, e: &Expr) {
        self.constant += 1;
        self.visit_expr(e);
        self.constant -= 1;
    }

    fn named(&mut self, name: Option<String>, cfg: bool, inside: impl FnOnce(&mut Self)) {
        let named = name.is_some();
        self.path.extend(name);
        self.cfg += usize::from(cfg);
        inside(self);
        self.cfg -= usize::from(cfg);
        if named {
            self.path.pop();
        }
    }
}

fn behind_cfg(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|a| a.path().is_ident("cfg") || a.path().is_ident("test"))
}

/// Returns the last name of a type's path.
pub(crate) fn type_name(ty: &syn::Type) -> String {
    match ty {
        syn::Type::Path(path) => {
            path.path.segments.last().map_or_else(String::new, |s| s.ident.to_string())
        }
        syn::Type::Reference(inner) => type_name(&inner.elem),
        _ => "_".into(),
    }
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_attribute(&mut self, _: &'ast syn::Attribute) {}
    fn visit_type(&mut self, _: &'ast syn::Type) {}
    fn visit_pat(&mut self, _: &'ast Pat) {}
    fn visit_generics(&mut self, _: &'ast syn::Generics) {}
    fn visit_generic_argument(&mut self, _: &'ast syn::GenericArgument) {}

    fn visit_macro(&mut self, _: &'ast syn::Macro) {
        self.out.left_out.macros += 1;
    }

    fn visit_item(&mut self, item: &'ast Item) {
        match item {
            Item::Fn(f) => {
                let cfg = behind_cfg(&f.attrs);
                self.named(None, cfg, |s| s.enter(range(f), &f.sig, &f.block));
            }
            Item::Impl(i) => {
                let debug = i.trait_.as_ref().is_some_and(|(_, path, _)| {
                    path.segments.last().is_some_and(|s| s.ident == "Debug")
                });
                self.debug += usize::from(debug);
                let name = type_name(&i.self_ty);
                self.named(Some(name), behind_cfg(&i.attrs), |s| visit::visit_item_impl(s, i));
                self.debug -= usize::from(debug);
            }
            Item::Trait(t) => {
                let name = t.ident.to_string();
                self.named(Some(name), behind_cfg(&t.attrs), |s| visit::visit_item_trait(s, t));
            }
            Item::Mod(m) => {
                let name = m.ident.to_string();
                self.named(Some(name), behind_cfg(&m.attrs), |s| visit::visit_item_mod(s, m));
            }
            Item::Const(c) => self.evaluated(&c.expr),
            Item::Static(s) => self.evaluated(&s.expr),
            _ => visit::visit_item(self, item),
        }
    }

    fn visit_variant(&mut self, variant: &'ast syn::Variant) {
        if let Some((_, e)) = &variant.discriminant {
            self.evaluated(e);
        }
    }

    fn visit_impl_item_const(&mut self, item: &'ast syn::ImplItemConst) {
        self.evaluated(&item.expr);
    }

    fn visit_trait_item_const(&mut self, item: &'ast syn::TraitItemConst) {
        if let Some((_, e)) = &item.default {
            self.evaluated(e);
        }
    }

    fn visit_impl_item_fn(&mut self, f: &'ast syn::ImplItemFn) {
        self.named(None, behind_cfg(&f.attrs), |s| s.enter(range(f), &f.sig, &f.block));
    }

    fn visit_trait_item_fn(&mut self, f: &'ast syn::TraitItemFn) {
        if let Some(block) = &f.default {
            self.named(None, behind_cfg(&f.attrs), |s| s.enter(range(f), &f.sig, block));
        }
    }

    fn visit_block(&mut self, block: &'ast Block) {
        for (i, stmt) in block.stmts.iter().enumerate() {
            let last = i + 1 == block.stmts.len();
            match stmt {
                Stmt::Expr(e, None) if !last => self.unit_expr(e),
                Stmt::Expr(e, Some(_)) if is_effect(e) => {
                    self.statement(range(stmt), Form::Statement)
                }
                Stmt::Expr(e, None) if is_effect(e) && self.unit.contains(&range(e)) => {
                    self.statement(range(stmt), Form::Statement);
                }
                Stmt::Local(local) => {
                    let init = local.init.as_ref();
                    let dropped = matches!(local.pat, Pat::Wild(_));
                    if dropped && init.is_some_and(|init| is_effect(&init.expr)) {
                        self.statement(range(stmt), Form::Statement);
                    }
                    if let Some((_, e)) = init.and_then(|init| init.diverge.as_ref()) {
                        let what = format!("`else` of `{}` taken", self.brief(&range(&local.pat)));
                        self.site(range(stmt), Form::Else(range(e)), "else", &[("", what, false)]);
                    }
                }
                Stmt::Expr(..) | Stmt::Item(_) | Stmt::Macro(_) => {}
            }
            self.visit_stmt(stmt);
        }
    }

    fn visit_arm(&mut self, arm: &'ast syn::Arm) {
        if let Some((_, guard)) = &arm.guard {
            self.condition(guard, true, true);
        }
        if is_effect(&arm.body) && self.unit.contains(&range(&arm.body)) {
            self.statement(range(&arm.body), Form::Arm);
        }
        self.visit_expr(&arm.body);
    }

    fn visit_expr_if(&mut self, e: &'ast syn::ExprIf) {
        if e.else_branch.is_none() {
            self.unit_block(&e.then_branch);
        }
        self.condition(&e.cond, true, true);
        self.visit_block(&e.then_branch);
        if let Some((_, other)) = &e.else_branch {
            self.visit_expr(other);
        }
    }

    fn visit_expr_while(&mut self, e: &'ast syn::ExprWhile) {
        self.unit_block(&e.body);
        self.condition(&e.cond, true, true);
        self.visit_block(&e.body);
    }

    fn visit_expr_for_loop(&mut self, e: &'ast syn::ExprForLoop) {
        self.unit_block(&e.body);
        visit::visit_expr_for_loop(self, e);
    }

    fn visit_expr_loop(&mut self, e: &'ast syn::ExprLoop) {
        self.unit_block(&e.body);
        visit::visit_expr_loop(self, e);
    }

    fn visit_expr_binary(&mut self, e: &'ast syn::ExprBinary) {
        if matches!(e.op, BinOp::And(_) | BinOp::Or(_)) {
            return self.condition(&Expr::Binary(e.clone()), true, true);
        }
        if let Some(to) = shifted(&e.op) {
            let at = range(e);
            let what = format!("`{}` with `{to}`", self.brief(&at));
            self.site(at, Form::Compare(range(&e.op), to), "comparison", &[("", what, false)]);
        }
        visit::visit_expr_binary(self, e);
    }

    fn visit_expr_method_call(&mut self, e: &'ast syn::ExprMethodCall) {
        let name = e.method.to_string();
        if name == "then" || name == "then_some" {
            self.condition(&e.receiver, true, true);
        } else {
            self.visit_expr(&e.receiver);
        }
        for argument in &e.args {
            match argument {
                Expr::Closure(closure)
                    if PREDICATES.contains(&name.as_str())
                        && matches!(closure.output, syn::ReturnType::Default) =>
                {
                    self.condition(&closure.body, true, true);
                }
                _ => self.visit_expr(argument),
            }
        }
    }

    fn visit_expr_repeat(&mut self, e: &'ast syn::ExprRepeat) {
        self.visit_expr(&e.expr);
        self.evaluated(&e.len);
    }

    fn visit_expr_const(&mut self, e: &'ast syn::ExprConst) {
        self.constant += 1;
        self.visit_block(&e.block);
        self.constant -= 1;
    }

    fn visit_expr_lit(&mut self, e: &'ast syn::ExprLit) {
        if let Lit::Int(number) = &e.lit {
            if let Ok(value) = number.base10_parse::<u128>() {
                let next = format!("{}{}", value.wrapping_add(1), number.suffix());
                let what = format!("`{}` with {next}", number.token());
                self.site(range(e), Form::Number(next), "number", &[("", what, false)]);
            }
        }
    }

    fn visit_expr_path(&mut self, e: &'ast syn::ExprPath) {
        let name = e.path.segments.last().map(|s| s.ident.to_string()).unwrap_or_default();
        if self.names.integers.contains(&name) {
            let what = format!("`{}` + 1", self.brief(&range(e)));
            self.site(range(e), Form::Constant, "constant", &[("", what, false)]);
        }
    }
}
