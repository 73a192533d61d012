//! The public API of the crates that programs build on, in `docs/generated/api.txt`.
//!
//! A line is an item, a field, a variant or a method under the path by which a program names it, as
//! the source writes it, so that a change of the API shows in review. Names that macros make stand
//! without a signature. Two types of one name share their methods.
#![expect(clippy::wildcard_enum_match_arm, reason = "syn's enums may grow")]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::Result;
use syn::{Attribute, Fields, ImplItem, Item, TraitItem, UseTree, Visibility};

use super::figures::of_crate;
use super::modules::{Syntax, attributes, folder_of, is_test, joined};

const FILE: &str = "docs/generated/api.txt";
const CRATES: [&str; 3] = ["dat-core", "hca-mlx5", "vfio-host"];
/// Longest chain of re-exports that is followed.
const LONGEST: usize = 8;
/// Attributes that are part of the API.
const MARKS: [&str; 3] = ["must_use", "non_exhaustive", "doc(hidden)"];

/// Writes the page with `bless`; otherwise says where it differs.
pub(super) fn faults(root: &Path, files: &Syntax, bless: bool) -> Result<Vec<String>> {
    let mut page = String::from("# Made by `cargo xtask tidy --bless`: what programs can name.\n");
    for name in CRATES {
        let lines = listing(&name.replace('-', "_"), &of_crate(files, name));
        let _ = writeln!(page, "\n## {name}, {} lines\n", lines.len());
        lines.iter().for_each(|line| page = std::mem::take(&mut page) + line + "\n");
    }
    if bless {
        fs::write(root.join(FILE), &page)?;
        return Ok(Vec::new());
    }
    let old = fs::read_to_string(root.join(FILE)).unwrap_or_default();
    if old == page {
        return Ok(Vec::new());
    }
    let (old, new): (BTreeSet<_>, BTreeSet<_>) = (old.lines().collect(), page.lines().collect());
    let mut faults = vec![format!("{FILE} is old: `cargo xtask tidy --bless` writes it")];
    faults.extend(old.difference(&new).map(|line| format!("  - {line}")));
    faults.extend(new.difference(&old).map(|line| format!("  + {line}")));
    Ok(faults)
}

/// The lines of a crate.
fn listing(name: &str, files: &Syntax) -> BTreeSet<String> {
    let mut modules = BTreeMap::new();
    if let Some(root) = files.get("lib.rs") {
        add(files, "", folder_of("lib.rs"), &root.items, &mut modules);
    }
    let mut seen = Seen { modules: &modules, lines: BTreeSet::new(), types: BTreeMap::new() };
    seen.module("", name);
    seen.methods();
    seen.lines
}

type Modules<'a> = BTreeMap<String, &'a [Item]>;

/// Adds a module and its children under their paths from the root, like `a/b`.
fn add<'a>(
    files: &'a Syntax,
    path: &str,
    folder: &str,
    items: &'a [Item],
    modules: &mut Modules<'a>,
) {
    modules.insert(path.to_owned(), items);
    for item in items.iter().filter(|item| !is_test(attributes(item))) {
        let Item::Mod(child) = item else { continue };
        let (path, folder) =
            (joined(path, &child.ident.to_string()), joined(folder, &child.ident.to_string()));
        if let Some((_, items)) = &child.content {
            add(files, &path, &folder, items, modules);
            continue;
        }
        let found = [format!("{folder}.rs"), format!("{folder}/mod.rs")];
        if let Some((file, syntax)) = found.iter().find_map(|file| files.get_key_value(file)) {
            add(files, &path, folder_of(file), &syntax.items, modules);
        }
    }
}

struct Seen<'a> {
    modules: &'a Modules<'a>,
    lines: BTreeSet<String>,
    /// Types and traits by their own names, with the paths that name them.
    types: BTreeMap<String, BTreeSet<String>>,
}

impl Seen<'_> {
    /// All that a program sees of a module that it names `shown`.
    fn module(&mut self, path: &str, shown: &str) {
        let modules = self.modules;
        for item in modules.get(path).copied().unwrap_or_default() {
            if is_test(attributes(item)) {
                continue;
            }
            match item {
                Item::Mod(child) if is_public(&child.vis) => {
                    let name = child.ident.to_string();
                    self.module(&joined(path, &name), &format!("{shown}::{name}"));
                }
                Item::Use(item) if is_public(&item.vis) => {
                    for (from, name) in leaves(&item.tree, path) {
                        self.used(&from, name.as_deref(), shown, 0);
                    }
                }
                item => self.item(item, shown, None),
            }
        }
    }

    /// A re-export of the item at `from` under `shown`, or with its last name a star.
    fn used(&mut self, from: &str, name: Option<&str>, shown: &str, depth: usize) {
        let Some(name) = name else { return self.module(from, shown) };
        if self.modules.contains_key(from) {
            return self.module(from, &format!("{shown}::{name}"));
        }
        let (module, own) = from.rsplit_once('/').unwrap_or(("", from));
        let modules = self.modules;
        for item in modules.get(module).copied().unwrap_or_default() {
            if let Item::Use(item) = item {
                if depth < LONGEST {
                    if let Some((from, _)) = leaves(&item.tree, module)
                        .into_iter()
                        .find(|(_, n)| n.as_deref() == Some(own))
                    {
                        return self.used(&from, Some(name), shown, depth + 1);
                    }
                }
            }
            if ident(item).is_some_and(|ident| ident == own) {
                return self.item(item, shown, Some(name));
            }
        }
        self.types.entry(own.to_owned()).or_default().insert(format!("{shown}::{name}"));
        self.lines.insert(format!("{shown}::{name}"));
    }

    fn item(&mut self, item: &Item, shown: &str, renamed: Option<&str>) {
        let Some(own) = ident(item) else { return };
        let path = format!("{shown}::{}", renamed.unwrap_or(&own));
        let marks = marks(attributes(item));
        let mut line = |text: String| {
            self.lines.insert(format!("{path}{text}"));
        };
        match item {
            Item::Fn(item) if is_public(&item.vis) => line(format!(": {marks}{}", text(&item.sig))),
            Item::Const(item) if is_public(&item.vis) => {
                line(format!(": const {}", text(&item.ty)))
            }
            Item::Static(item) if is_public(&item.vis) => {
                line(format!(": static {}", text(&item.ty)))
            }
            Item::Type(item) if is_public(&item.vis) => {
                line(format!("{}: type = {}", text(&item.generics), text(&item.ty)))
            }
            Item::Struct(item) if is_public(&item.vis) => {
                line(format!("{}: {marks}struct", text(&item.generics)));
                fields(&item.fields).for_each(|field| line(format!(".{field}")));
            }
            Item::Enum(item) if is_public(&item.vis) => {
                line(format!("{}: {marks}enum", text(&item.generics)));
                item.variants.iter().for_each(|variant| {
                    let fields = if variant.fields.is_empty() {
                        String::new()
                    } else {
                        text(&variant.fields)
                    };
                    line(format!("::{}{}", variant.ident, spaced(&fields)));
                });
            }
            Item::Trait(item) if is_public(&item.vis) => {
                let above: Vec<_> = item.supertraits.iter().map(text).collect();
                let above = if above.is_empty() {
                    String::new()
                } else {
                    format!(": {}", above.join(" + "))
                };
                line(format!("{}: {marks}trait{above}", text(&item.generics)));
                for item in &item.items {
                    match item {
                        TraitItem::Fn(item) => {
                            let kind = if item.default.is_some() { "provided " } else { "" };
                            line(format!("::{}: {kind}{}", item.sig.ident, text(&item.sig)));
                        }
                        TraitItem::Const(item) => {
                            line(format!("::{}: const {}", item.ident, text(&item.ty)))
                        }
                        TraitItem::Type(item) => line(format!("::{}: type", item.ident)),
                        _ => {}
                    }
                }
            }
            _ => return,
        }
        self.types.entry(own).or_default().insert(path);
    }

    /// Methods of the types seen, and the traits that they implement.
    fn methods(&mut self) {
        for item in self.modules.values().flat_map(|items| items.iter()) {
            let Item::Impl(item) = item else { continue };
            let syn::Type::Path(of) = &*item.self_ty else { continue };
            let Some(own) = of.path.segments.last().map(|last| last.ident.to_string()) else {
                continue;
            };
            if is_test(&item.attrs) {
                continue;
            }
            for path in self.types.get(&own).into_iter().flatten() {
                if let Some((_, of, _)) = &item.trait_ {
                    self.lines.insert(format!("{path}: impl {}", text(of)));
                    continue;
                }
                for item in &item.items {
                    let line = match item {
                        ImplItem::Fn(item) if is_public(&item.vis) && !is_test(&item.attrs) => {
                            format!(
                                "::{}: {}{}",
                                item.sig.ident,
                                marks(&item.attrs),
                                text(&item.sig)
                            )
                        }
                        ImplItem::Const(item) if is_public(&item.vis) => {
                            format!("::{}: const {}", item.ident, text(&item.ty))
                        }
                        _ => continue,
                    };
                    self.lines.insert(format!("{path}{line}"));
                }
            }
        }
    }
}

/// What a `use` in the module at `path` names: the item's path, and the name that it gets; no name
/// for a star.
fn leaves(tree: &UseTree, path: &str) -> Vec<(String, Option<String>)> {
    match tree {
        UseTree::Path(at) => match at.ident.to_string().as_str() {
            "crate" => leaves(&at.tree, ""),
            "self" => leaves(&at.tree, path),
            "super" => leaves(&at.tree, path.rsplit_once('/').map_or("", |(above, _)| above)),
            name => leaves(&at.tree, &joined(path, name)),
        },
        UseTree::Name(at) => {
            let name = at.ident.to_string();
            if name == "self" {
                let last = path.rsplit('/').next().unwrap_or_default().to_owned();
                return vec![(path.to_owned(), Some(last))];
            }
            vec![(joined(path, &name), Some(name))]
        }
        UseTree::Rename(at) => {
            vec![(joined(path, &at.ident.to_string()), Some(at.rename.to_string()))]
        }
        UseTree::Glob(_) => vec![(path.to_owned(), None)],
        UseTree::Group(group) => group.items.iter().flat_map(|tree| leaves(tree, path)).collect(),
    }
}

fn fields(fields: &Fields) -> impl Iterator<Item = String> {
    let public = fields.iter().enumerate().filter(|(_, field)| is_public(&field.vis));
    public.map(|(index, field)| {
        let name = field.ident.as_ref().map_or(index.to_string(), ToString::to_string);
        format!("{name}: {}", text(&field.ty))
    })
}

fn ident(item: &Item) -> Option<String> {
    Some(match item {
        Item::Const(item) => item.ident.to_string(),
        Item::Enum(item) => item.ident.to_string(),
        Item::Fn(item) => item.sig.ident.to_string(),
        Item::Static(item) => item.ident.to_string(),
        Item::Struct(item) => item.ident.to_string(),
        Item::Trait(item) => item.ident.to_string(),
        Item::Type(item) => item.ident.to_string(),
        _ => return None,
    })
}

const fn is_public(vis: &Visibility) -> bool {
    matches!(vis, Visibility::Public(_))
}

fn marks(attributes: &[Attribute]) -> String {
    let texts = attributes.iter().map(|attribute| text(&attribute.meta));
    let marks = texts.filter_map(|text| MARKS.into_iter().find(|mark| text.starts_with(mark)));
    marks.map(|mark| format!("#[{mark}] ")).collect()
}

/// The source text in one line, without comments.
fn text(node: &impl syn::spanned::Spanned) -> String {
    let text = node.span().source_text().unwrap_or_default();
    let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    let line = code.flat_map(str::split_whitespace).collect::<Vec<_>>().join(" ");
    line.replace("( ", "(").replace(", )", ")").replace("< ", "<").replace(", >", ">")
}

fn spaced(fields: &str) -> String {
    if fields.starts_with('{') { format!(" {fields}") } else { fields.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_program_can_name_is_listed_under_the_name_it_has() {
        let root = "mod a; pub mod b { pub const C: u8 = 1; } pub use a::inner::{Kind as Sort, f};";
        let inner = "#[non_exhaustive]\npub enum Kind { One, Two(u8) }\n
            impl Kind { pub fn new(\n    of: u8,\n) -> Self { todo!() } fn own() {} }
            impl Copy for Kind {}
            #[must_use] pub fn f() -> u8 { 1 }\npub struct Unseen;";
        let files: Syntax =
            [("lib.rs", root), ("a.rs", "pub(crate) mod inner;"), ("a/inner.rs", inner)]
                .map(|(file, text)| (file.to_owned(), syn::parse_file(text).unwrap()))
                .into();
        let lines: Vec<_> = listing("k", &files).into_iter().collect();
        assert_eq!(
            lines,
            [
                "k::Sort: #[non_exhaustive] enum",
                "k::Sort: impl Copy",
                "k::Sort::One",
                "k::Sort::Two(u8)",
                "k::Sort::new: fn new(of: u8) -> Self",
                "k::b::C: const u8",
                "k::f: #[must_use] fn f() -> u8",
            ]
        );
    }
}
