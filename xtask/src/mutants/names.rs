//! Collects names from all files before one of them is mutated: constants, and functions that have
//! to stay `const`.

use std::collections::BTreeSet;

use anyhow::Result;
use syn::visit::{self, Visit};
use syn::{Block, Expr};

use super::sites::type_name;

/// Number of changes that cannot be switched, by reason.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LeftOut {
    /// Changes in constant expressions.
    pub(crate) constant: usize,
    /// Uses of macros.
    pub(crate) macros: usize,
    /// Changes behind `#[cfg]`.
    pub(crate) cfg: usize,
    /// Changes in `Debug`.
    pub(crate) debug: usize,
}

impl LeftOut {
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            constant: self.constant + other.constant,
            macros: self.macros + other.macros,
            cfg: self.cfg + other.cfg,
            debug: self.debug + other.debug,
        }
    }
}

/// Names of all crates.
#[derive(Debug, Default, Clone)]
pub(crate) struct Names {
    /// Functions that stay `const`, by name.
    pub(crate) constant: BTreeSet<String>,
    /// Constants of integer types, by name.
    pub(crate) integers: BTreeSet<String>,
}

/// Collects constants of integer types, and functions that constants call, of all files.
pub(crate) fn names(texts: &[&str]) -> Result<Names> {
    let mut found = Called::default();
    for text in texts {
        found.visit_file(&syn::parse_file(text)?);
    }
    let mut names = Names { constant: found.roots, integers: found.integers };
    loop {
        let more: Vec<String> = found
            .bodies
            .iter()
            .filter(|(name, _)| names.constant.contains(name))
            .flat_map(|(_, calls)| {
                calls.iter().filter(|call| !names.constant.contains(*call)).cloned()
            })
            .collect();
        if more.is_empty() {
            return Ok(names);
        }
        names.constant.extend(more);
    }
}

#[derive(Default)]
struct Called {
    integers: BTreeSet<String>,
    /// Functions called in constant expressions.
    roots: BTreeSet<String>,
    /// `const` functions and what they call.
    bodies: Vec<(String, BTreeSet<String>)>,
    constant: usize,
    /// Calls of the function being read.
    inside: Vec<BTreeSet<String>>,
}

impl Called {
    fn call(&mut self, name: String) {
        if self.constant > 0 {
            self.roots.insert(name);
        } else if let Some(calls) = self.inside.last_mut() {
            calls.insert(name);
        }
    }

    fn evaluated(&mut self, e: &Expr) {
        self.constant += 1;
        self.visit_expr(e);
        self.constant -= 1;
    }

    fn constant(&mut self, name: &syn::Ident, ty: &syn::Type, e: &Expr) {
        let ty = type_name(ty);
        if ty.starts_with(['u', 'i'])
            && (ty.ends_with("size") || ty.ends_with(|c: char| c.is_ascii_digit()))
        {
            self.integers.insert(name.to_string());
        }
        self.evaluated(e);
    }

    fn function(&mut self, signature: &syn::Signature, block: &Block) {
        self.inside.push(BTreeSet::new());
        let outer = std::mem::take(&mut self.constant);
        self.visit_block(block);
        self.constant = outer;
        let calls = self.inside.pop().unwrap_or_default();
        if signature.constness.is_some() {
            self.bodies.push((signature.ident.to_string(), calls));
        }
    }
}

impl<'ast> Visit<'ast> for Called {
    fn visit_item_const(&mut self, c: &'ast syn::ItemConst) {
        self.constant(&c.ident, &c.ty, &c.expr);
    }
    fn visit_item_static(&mut self, s: &'ast syn::ItemStatic) {
        self.evaluated(&s.expr);
    }
    fn visit_impl_item_const(&mut self, c: &'ast syn::ImplItemConst) {
        self.constant(&c.ident, &c.ty, &c.expr);
    }
    fn visit_trait_item_const(&mut self, c: &'ast syn::TraitItemConst) {
        if let Some((_, e)) = &c.default {
            self.constant(&c.ident, &c.ty, e);
        }
    }
    fn visit_variant(&mut self, v: &'ast syn::Variant) {
        if let Some((_, e)) = &v.discriminant {
            self.evaluated(e);
        }
    }
    fn visit_type_array(&mut self, t: &'ast syn::TypeArray) {
        self.evaluated(&t.len);
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
    fn visit_item_fn(&mut self, f: &'ast syn::ItemFn) {
        self.function(&f.sig, &f.block);
    }
    fn visit_impl_item_fn(&mut self, f: &'ast syn::ImplItemFn) {
        self.function(&f.sig, &f.block);
    }
    fn visit_expr_call(&mut self, e: &'ast syn::ExprCall) {
        if let Expr::Path(path) = &*e.func {
            if let Some(last) = path.path.segments.last() {
                self.call(last.ident.to_string());
            }
        }
        visit::visit_expr_call(self, e);
    }
    fn visit_expr_method_call(&mut self, e: &'ast syn::ExprMethodCall) {
        self.call(e.method.to_string());
        visit::visit_expr_method_call(self, e);
    }
}
