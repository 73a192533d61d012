//! The modules of a crate, the paths in their code, and the file in which each name is defined.
//!
//! Re-exports and globs are followed to the definition. Method calls name no path, so they are not
//! seen. Test code is left out.
#![expect(clippy::wildcard_enum_match_arm, reason = "syn's enums may grow")]

use std::collections::{BTreeMap, BTreeSet, HashMap};

use proc_macro2::{Spacing, TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Attribute, ImplItem, Item, ItemMod, Meta, UseTree, Visibility};

/// The parsed files of a crate by their path in its `src`.
pub(super) type Syntax = BTreeMap<String, syn::File>;

/// Longest chain of re-exports that is followed.
const LONGEST: usize = 16;

/// The meaning of a name in a module.
enum Binding {
    Item,
    Macro,
    Module(usize),
    Use(Vec<String>),
}

#[derive(Default)]
struct Module {
    file: String,
    /// Folder of its child modules.
    folder: String,
    parent: Option<usize>,
    names: HashMap<String, Vec<Binding>>,
    globs: Vec<Vec<String>>,
    /// An item macro may define names that the syntax does not show.
    has_item_macro: bool,
}

/// A path in the code of a module.
struct Mention {
    module: usize,
    path: Vec<String>,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Path,
    /// All names of the module at the path are imported.
    Glob,
    /// A re-export: only uses of the name count.
    ReExport,
}

/// The target of a path.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Target {
    Module(usize),
    /// An item defined in the file of that module.
    Item(usize),
}

/// A crate without its test code.
#[derive(Default)]
pub(super) struct Crate {
    modules: Vec<Module>,
    mentions: Vec<Mention>,
}

impl Crate {
    /// Reads all modules that `lib.rs` leads to.
    pub(super) fn read(files: &Syntax) -> Self {
        let mut reader = Reader { krate: Self::default(), files, module: 0, in_body: false };
        reader.file("lib.rs", "", None);
        reader.krate
    }

    /// The files that are not test code.
    pub(super) fn files(&self) -> BTreeSet<&str> {
        self.modules.iter().map(|module| module.file.as_str()).collect()
    }

    /// The files whose code names the type `ident`. A variant of that name, which follows the name
    /// of a type, does not count.
    pub(super) fn files_naming(&self, ident: &str) -> BTreeSet<&str> {
        let is_type = |path: &[String]| {
            let mut before = "";
            path.iter().any(|segment| {
                let follows_type = before.starts_with(char::is_uppercase);
                before = segment;
                segment == ident && !follows_type
            })
        };
        let named = self.mentions.iter().filter(|mention| is_type(&mention.path));
        named.map(|mention| self.modules[mention.module].file.as_str()).collect()
    }

    /// Each use of a name that another file defines: file, defining file, name.
    pub(super) fn uses(&self) -> BTreeSet<(&str, &str, &str)> {
        let mut uses = BTreeSet::new();
        let counted = self.mentions.iter().filter(|mention| mention.kind != Kind::ReExport);
        for Mention { module, path, kind } in counted {
            let (target, length) = match self.resolve(*module, path, 0) {
                Some((Target::Module(target), length))
                    if *kind == Kind::Glob && self.modules[target].has_item_macro =>
                {
                    (target, length)
                }
                Some((Target::Item(target), length)) => (target, length),
                Some((Target::Module(_), _)) | None => continue,
            };
            let (from, to) = (&self.modules[*module].file, &self.modules[target].file);
            if from != to {
                uses.insert((from.as_str(), to.as_str(), path[length - 1].as_str()));
            }
        }
        uses
    }

    /// Where `path` leads from `module`, and how many of its names lead there; `None` for a name of
    /// another crate or of a function.
    fn resolve(&self, module: usize, path: &[String], depth: usize) -> Option<(Target, usize)> {
        let mut at = Target::Module(module);
        for (index, name) in path.iter().enumerate() {
            let Target::Module(current) = at else {
                return Some((at, index));
            };
            let goes_on = index + 1 < path.len();
            at = match name.as_str() {
                "crate" => Target::Module(0),
                "self" => at,
                "super" => Target::Module(self.modules[current].parent?),
                _ => match self.find(current, name, goes_on, depth) {
                    Some(found) => found,
                    None if index == 0 => return None,
                    // Made by an item macro.
                    None => Target::Item(current),
                },
            };
        }
        Some((at, path.len()))
    }

    /// What `name` is in `module`; modules come first where a path goes on behind the name.
    fn find(&self, module: usize, name: &str, goes_on: bool, depth: usize) -> Option<Target> {
        if depth > LONGEST {
            return None;
        }
        let mut found: Vec<Target> = Vec::new();
        for binding in self.modules[module].names.get(name).into_iter().flatten() {
            found.extend(match binding {
                Binding::Item | Binding::Macro => Some(Target::Item(module)),
                Binding::Module(child) => Some(Target::Module(*child)),
                Binding::Use(path) => {
                    self.resolve(module, path, depth + 1).map(|(target, _)| target)
                }
            });
        }
        let wanted = found.iter().find(|t| matches!(t, Target::Module(_)) == goes_on);
        if let Some(target) = wanted.or(found.first()) {
            return Some(*target);
        }
        self.modules[module].globs.iter().find_map(|glob| {
            let Some((Target::Module(from), _)) = self.resolve(module, glob, depth + 1) else {
                return None;
            };
            (from != module).then(|| self.find(from, name, goes_on, depth + 1))?
        })
    }
}

/// Whether a `cfg` leaves the item out of a build without tests.
pub(super) fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        Meta::Path(path) => path.is_ident("test"),
        Meta::List(list) => {
            let words = list.tokens.to_string();
            let has = |word: &str| words.split(|c: char| !c.is_alphanumeric()).any(|w| w == word);
            list.path.is_ident("cfg") && has("test") && !has("not")
        }
        Meta::NameValue(_) => false,
    })
}

/// The attributes of an item.
pub(super) fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::ExternCrate(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::ForeignMod(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::TraitAlias(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Union(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// The folder of the modules that a file declares.
pub(super) fn folder_of(file: &str) -> &str {
    let stem = file.trim_end_matches(".rs");
    match stem.rsplit_once('/') {
        Some((folder, "mod")) => folder,
        None if matches!(stem, "lib" | "main") => "",
        _ => stem,
    }
}

/// Whether a file is that module or inside of it.
pub(super) fn is_module(file: &str, module: &str) -> bool {
    file.strip_prefix(module).is_some_and(|rest| rest.starts_with('/') || rest == ".rs")
}

pub(super) fn joined(folder: &str, name: &str) -> String {
    if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") }
}

struct Reader<'f> {
    krate: Crate,
    files: &'f Syntax,
    module: usize,
    /// Inside a function, whose items are no names of the module.
    in_body: bool,
}

impl Reader<'_> {
    fn file(&mut self, file: &str, folder: &str, parent: Option<usize>) -> Option<usize> {
        let syntax = self.files.get(file)?;
        Some(self.open(file, folder, parent, &syntax.items))
    }

    fn open(&mut self, file: &str, folder: &str, parent: Option<usize>, items: &[Item]) -> usize {
        let number = self.krate.modules.len();
        let (file, folder) = (file.to_owned(), folder.to_owned());
        self.krate.modules.push(Module { file, folder, parent, ..Module::default() });
        let outer = std::mem::replace(&mut self.module, number);
        items.iter().for_each(|item| self.visit_item(item));
        self.module = outer;
        number
    }

    fn child(&mut self, item: &ItemMod) {
        let name = item.ident.to_string();
        let this = &self.krate.modules[self.module];
        let (file, folder) = (this.file.clone(), joined(&this.folder, &name));
        let parent = Some(self.module);
        let opened = match &item.content {
            Some((_, items)) => Some(self.open(&file, &folder, parent, items)),
            None => self
                .file(&format!("{folder}.rs"), &folder, parent)
                .or_else(|| self.file(&format!("{folder}/mod.rs"), &folder, parent)),
        };
        if let Some(opened) = opened {
            self.bind(self.module, &name, Binding::Module(opened));
        }
    }

    fn bind(&mut self, module: usize, name: &str, binding: Binding) {
        self.krate.modules[module].names.entry(name.to_owned()).or_default().push(binding);
    }

    fn mention(&mut self, path: Vec<String>, kind: Kind) {
        self.krate.mentions.push(Mention { module: self.module, path, kind });
    }

    fn use_tree(&mut self, tree: &UseTree, path: &[String], kind: Kind) {
        let with = |name: String| [path, &[name]].concat();
        match tree {
            UseTree::Path(tree) => self.use_tree(&tree.tree, &with(tree.ident.to_string()), kind),
            UseTree::Group(group) => {
                group.items.iter().for_each(|tree| self.use_tree(tree, path, kind))
            }
            UseTree::Glob(_) => {
                self.krate.modules[self.module].globs.push(path.to_vec());
                self.mention(path.to_vec(), if kind == Kind::Path { Kind::Glob } else { kind });
            }
            UseTree::Name(name) => self.import(with(name.ident.to_string()), None, kind),
            UseTree::Rename(tree) => {
                self.import(with(tree.ident.to_string()), Some(tree.rename.to_string()), kind);
            }
        }
    }

    fn import(&mut self, mut path: Vec<String>, rename: Option<String>, kind: Kind) {
        if path.len() > 1 && path.last().is_some_and(|name| name == "self") {
            path.pop();
        }
        let Some(name) = rename.or_else(|| path.last().cloned()) else {
            return;
        };
        self.mention(path.clone(), kind);
        self.bind(self.module, &name, Binding::Use(path));
    }

    fn tokens(&mut self, tokens: TokenStream) {
        let mut path: Vec<String> = Vec::new();
        // Punctuation since the last identifier.
        let mut between = String::new();
        for token in tokens {
            match token {
                TokenTree::Ident(ident) => {
                    let ident = ident.to_string();
                    if between != "::" || path.is_empty() {
                        self.end(&mut path);
                    }
                    let is_path = !between.ends_with(['.', '$', ':'])
                        || (between.ends_with('$') && ident == "crate")
                        || (between == "::" && !path.is_empty());
                    if is_path {
                        path.push(ident);
                    }
                    between.clear();
                }
                TokenTree::Punct(punct) => {
                    between.push(punct.as_char());
                    // `a: B` is a type of a binding.
                    if between == ":" && punct.spacing() == Spacing::Alone {
                        self.end(&mut path);
                        between.clear();
                    }
                }
                TokenTree::Group(group) => {
                    self.end(&mut path);
                    between.clear();
                    self.tokens(group.stream());
                }
                TokenTree::Literal(_) => {
                    self.end(&mut path);
                    between.clear();
                }
            }
        }
        self.end(&mut path);
    }

    fn end(&mut self, path: &mut Vec<String>) {
        if !path.is_empty() {
            self.mention(std::mem::take(path), Kind::Path);
        }
    }
}

impl<'ast> Visit<'ast> for Reader<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        if is_test(attributes(item)) {
            return;
        }
        let name = match item {
            Item::Mod(item) => return self.child(item),
            Item::Use(item) => {
                if item.leading_colon.is_none() {
                    let is_private = matches!(item.vis, Visibility::Inherited);
                    let kind = if is_private { Kind::Path } else { Kind::ReExport };
                    self.use_tree(&item.tree, &[], kind);
                }
                return;
            }
            Item::Macro(item) => {
                if let Some(name) = &item.ident {
                    let name = name.to_string();
                    self.bind(self.module, &name, Binding::Macro);
                    if item.attrs.iter().any(|a| a.path().is_ident("macro_export")) {
                        self.bind(0, &name, Binding::Use(self.path_to(&name)));
                    }
                    return self.tokens(item.mac.tokens.clone());
                }
                self.krate.modules[self.module].has_item_macro = true;
                None
            }
            Item::Const(item) => Some(&item.ident),
            Item::Enum(item) => Some(&item.ident),
            Item::Fn(item) => Some(&item.sig.ident),
            Item::Static(item) => Some(&item.ident),
            Item::Struct(item) => Some(&item.ident),
            Item::Trait(item) => Some(&item.ident),
            Item::Type(item) => Some(&item.ident),
            Item::Union(item) => Some(&item.ident),
            _ => None,
        };
        if let Some(name) = name.filter(|_| !self.in_body) {
            self.bind(self.module, &name.to_string(), Binding::Item);
        }
        visit::visit_item(self, item);
    }

    fn visit_impl_item(&mut self, item: &'ast ImplItem) {
        let attributes = match item {
            ImplItem::Const(item) => &item.attrs,
            ImplItem::Fn(item) => &item.attrs,
            ImplItem::Type(item) => &item.attrs,
            ImplItem::Macro(item) => &item.attrs,
            _ => return,
        };
        if !is_test(attributes) {
            visit::visit_impl_item(self, item);
        }
    }

    fn visit_block(&mut self, block: &'ast syn::Block) {
        let outer = std::mem::replace(&mut self.in_body, true);
        visit::visit_block(self, block);
        self.in_body = outer;
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.leading_colon.is_none() {
            let names = path.segments.iter().map(|segment| segment.ident.to_string());
            self.mention(names.collect(), Kind::Path);
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, invoked: &'ast syn::Macro) {
        // A macro is also in scope behind the declaration of its module's ancestors.
        let name = invoked.path.get_ident().map(ToString::to_string);
        let defined = name.and_then(|name| {
            self.ancestor_with_macro(&name).map(|path| [path, vec![name]].concat())
        });
        match defined {
            Some(path) => self.mention(path, Kind::Path),
            None => self.visit_path(&invoked.path),
        }
        self.tokens(invoked.tokens.clone());
    }

    fn visit_attribute(&mut self, _: &'ast Attribute) {}

    fn visit_visibility(&mut self, _: &'ast Visibility) {}
}

impl Reader<'_> {
    /// The path of supers from the current module to an ancestor that defines the macro `name`.
    fn ancestor_with_macro(&self, name: &str) -> Option<Vec<String>> {
        let mut supers = Vec::new();
        let mut module = self.module;
        loop {
            let this = &self.krate.modules[module];
            let bindings = this.names.get(name).into_iter().flatten();
            if bindings.into_iter().any(|binding| matches!(binding, Binding::Macro)) {
                return Some(supers);
            }
            module = this.parent?;
            supers.push("super".to_owned());
        }
    }

    /// The path of `name` in the current module from the root.
    fn path_to(&self, name: &str) -> Vec<String> {
        let folder = &self.krate.modules[self.module].folder;
        let modules = folder.split('/').filter(|part| !part.is_empty());
        let path = std::iter::once("crate").chain(modules).chain([name]);
        path.map(str::to_owned).collect()
    }
}
