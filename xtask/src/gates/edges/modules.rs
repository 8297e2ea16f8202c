//! The modules of one crate: which names each file defines, imports and uses.
//!
//! Parses each file with `syn` and follows the `mod` declarations from the root file.
//! `resolve.rs` turns the names into edges between files.
//!
//! Left out: test code (modules, functions and imports behind `#[cfg(test)]`, functions marked
//! `#[test]`), doc comments, and the paths inside `pub(in ...)`. Names in the arguments of macros
//! and of attributes count: they are read as tokens. Method calls name no path, so they count only
//! through the import of their trait. So the `impl` blocks of one type may call each other across
//! files.

use crate::gate::Failure;
use proc_macro2::{TokenStream, TokenTree};
use std::collections::{BTreeMap, BTreeSet};
use syn::visit::{self, Visit};
use syn::{Attribute, Expr, ExprLit, Ident, Item, Lit, Meta, UseTree, Visibility};

/// The index of a file in [`Modules::files`].
pub type File = usize;

/// Every module of one crate. Module 0 is the root.
#[derive(Debug, Default)]
pub struct Modules {
    /// Paths as the caller gave them.
    pub files: Vec<String>,
    /// Parents stand before their children.
    pub modules: Vec<Module>,
    /// The files that define the crate's macros, by name: a macro is in scope behind its
    /// definition, without an import.
    pub macros: BTreeMap<String, File>,
}

/// One module: a file, or a part of one.
#[derive(Debug)]
pub struct Module {
    /// None at the root.
    pub parent: Option<usize>,
    /// The file that holds its code.
    pub file: File,
    /// Child modules by name.
    pub children: BTreeMap<String, usize>,
    /// Defined items by name, with their file.
    pub items: BTreeMap<String, File>,
    /// What its `use` declarations bring in, those inside functions as well.
    pub imports: Vec<Import>,
    /// The paths its code names.
    pub references: Vec<Reference>,
}

/// One name of a `use` declaration.
#[derive(Debug)]
pub struct Import {
    /// The name it gets here; none for `*`.
    pub name: Option<String>,
    /// As written.
    pub path: Vec<String>,
    /// 1-based.
    pub line: usize,
    /// Whether other modules can name it through this one (`pub`, `pub(crate)`, ...).
    pub is_reexport: bool,
}

/// A path in code.
#[derive(Debug)]
pub struct Reference {
    /// As written, without generic arguments.
    pub path: Vec<String>,
    /// 1-based.
    pub line: usize,
}

/// Reads the crate whose root file is `root`. `read` gives the text of a file, or nothing if the
/// file does not exist.
///
/// # Errors
/// If a file does not parse, or a declared module has no file.
pub fn read_crate(root: &str, read: &dyn Fn(&str) -> Option<String>) -> Result<Modules, Failure> {
    let folder = folder_of(root).to_owned();
    let mut found = Modules::default();
    let mut waiting =
        vec![Declared { parent: None, name: "crate".into(), files: vec![root.into()], folder }];
    while let Some(declared) = waiting.pop() {
        let file = declared.files.iter().find_map(|path| Some((path, read(path)?)));
        let (path, text) =
            file.ok_or_else(|| Failure(format!("{root}: module `{}` has no file", declared.name)))?;
        let syntax = syn::parse_file(&text)
            .map_err(|error| Failure(format!("{path}:{}: {error}", error.span().start().line)))?;
        found.files.push(path.clone());
        let module = found.add(declared.parent, &declared.name, found.files.len() - 1);
        let mut collector = Collector {
            found: &mut found,
            module,
            folder: declared.folder,
            declared: Vec::new(),
            locals: Vec::new(),
        };
        collector.visit_file(&syntax);
        waiting.append(&mut collector.declared);
    }
    Ok(found)
}

/// A module whose file is still to be read.
struct Declared {
    parent: Option<usize>,
    name: String,
    /// Where its file may be.
    files: Vec<String>,
    /// Where the files of its children are.
    folder: String,
}

impl Modules {
    fn add(&mut self, parent: Option<usize>, name: &str, file: File) -> usize {
        let index = self.modules.len();
        self.modules.push(Module {
            parent,
            file,
            children: BTreeMap::new(),
            items: BTreeMap::new(),
            imports: Vec::new(),
            references: Vec::new(),
        });
        if let Some(parent) = parent {
            self.modules[parent].children.insert(name.to_owned(), index);
        }
        index
    }
}

/// Walks one file.
struct Collector<'a> {
    found: &'a mut Modules,
    /// The module the walk is in: that of the file, or one inside it.
    module: usize,
    folder: String,
    declared: Vec<Declared>,
    /// The variables of each enclosing function.
    locals: Vec<BTreeSet<String>>,
}

impl Collector<'_> {
    fn here(&mut self) -> &mut Module {
        &mut self.found.modules[self.module]
    }

    /// Notes that code names `path`. A variable of the function hides an item of its name.
    fn refer(&mut self, path: Vec<String>, line: usize) {
        if let [name] = &*path
            && self.locals.iter().any(|names| names.contains(name))
        {
            return;
        }
        self.here().references.push(Reference { path, line });
    }

    fn define(&mut self, item: &Item) {
        let name = match item {
            Item::Const(item) => &item.ident,
            Item::Enum(item) => &item.ident,
            Item::Fn(item) => &item.sig.ident,
            Item::Static(item) => &item.ident,
            Item::Struct(item) => &item.ident,
            Item::Trait(item) => &item.ident,
            Item::Type(item) => &item.ident,
            Item::Union(item) => &item.ident,
            Item::Macro(item) => {
                let Some(name) = &item.ident else { return };
                let file = self.here().file;
                self.found.macros.insert(plain(name), file);
                if item.attrs.iter().any(|attribute| attribute.path().is_ident("macro_export")) {
                    self.found.modules[0].items.insert(plain(name), file);
                }
                name
            }
            _ => return,
        };
        let file = self.here().file;
        self.here().items.insert(plain(name), file);
    }

    /// Notes the paths in the arguments of a macro or an attribute.
    fn scan(&mut self, tokens: TokenStream) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let is_sign = |at: usize, sign: char| match tokens.get(at) {
            Some(TokenTree::Punct(found)) => found.as_char() == sign,
            _ => false,
        };
        let mut at = 0;
        while at < tokens.len() {
            let begun = at;
            at += 1;
            let first = match &tokens[begun] {
                TokenTree::Group(group) => {
                    self.scan(group.stream());
                    continue;
                }
                TokenTree::Ident(first) => first,
                _ => continue,
            };
            let mut path = vec![plain(first)];
            while is_sign(at, ':')
                && is_sign(at + 1, ':')
                && let Some(TokenTree::Ident(next)) = tokens.get(at + 2)
            {
                path.push(plain(next));
                at += 3;
            }
            // `.name` is a field or a method, `..name` is not; `name:` and `name =` are labels.
            let before = |back: usize, sign| begun >= back && is_sign(begun - back, sign);
            let is_member = before(1, '.') && !before(2, '.');
            let is_label = path.len() == 1
                && (is_sign(at, ':') && !is_sign(at + 1, ':')
                    || is_sign(at, '=') && !is_sign(at + 1, '=') && !is_sign(at + 1, '>'));
            if !is_member && !is_label {
                self.refer(path, first.span().start().line);
            }
        }
    }

    fn import(&mut self, tree: &UseTree, path: &mut Vec<String>, is_reexport: bool) {
        let (name, last, span) = match tree {
            UseTree::Path(inner) => {
                path.push(plain(&inner.ident));
                self.import(&inner.tree, path, is_reexport);
                path.pop();
                return;
            }
            UseTree::Group(group) => {
                for tree in &group.items {
                    self.import(tree, path, is_reexport);
                }
                return;
            }
            UseTree::Name(leaf) => {
                (Some(plain(&leaf.ident)), Some(plain(&leaf.ident)), leaf.ident.span())
            }
            UseTree::Rename(leaf) => {
                (Some(plain(&leaf.rename)), Some(plain(&leaf.ident)), leaf.ident.span())
            }
            UseTree::Glob(star) => (None, None, star.star_token.spans[0]),
        };
        // `a::{self}` imports `a`.
        let itself = last.as_deref() == Some("self");
        let name = if itself && name == last { path.last().cloned() } else { name };
        let mut whole = path.clone();
        whole.extend(last.filter(|_| !itself));
        let line = span.start().line;
        self.here().imports.push(Import { name, path: whole, line, is_reexport });
    }

    /// Walks into a function, whose variables hide items.
    fn within<T>(&mut self, function: &T, find: fn(&mut Variables, &T), walk: fn(&mut Self, &T)) {
        let mut variables = Variables(BTreeSet::new());
        find(&mut variables, function);
        self.locals.push(variables.0);
        walk(self, function);
        self.locals.pop();
    }
}

impl<'ast> Visit<'ast> for Collector<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        if !is_test(attributes(item)) {
            self.define(item);
            visit::visit_item(self, item);
        }
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        let name = plain(&item.ident);
        let inside = join(&self.folder, &name);
        let file = self.here().file;
        let Some((_, items)) = &item.content else {
            let (files, folder) = match path_attribute(&item.attrs) {
                // The children of such a file are beside it.
                Some(path) => {
                    let path = join(folder_of(&self.found.files[file]), &path);
                    let folder = folder_of(&path).to_owned();
                    (vec![path], folder)
                }
                None => (vec![format!("{inside}.rs"), format!("{inside}/mod.rs")], inside),
            };
            self.declared.push(Declared { parent: Some(self.module), name, files, folder });
            return;
        };
        let child = self.found.add(Some(self.module), &name, file);
        let outer = std::mem::replace(&mut self.module, child);
        let folder = std::mem::replace(&mut self.folder, inside);
        for item in items {
            self.visit_item(item);
        }
        (self.module, self.folder) = (outer, folder);
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        // `use ::name` leads to another crate.
        if item.leading_colon.is_none() {
            let is_reexport = !matches!(item.vis, Visibility::Inherited);
            self.import(&item.tree, &mut Vec::new(), is_reexport);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.leading_colon.is_none()
            && let Some(first) = path.segments.first()
        {
            let segments = path.segments.iter().map(|segment| plain(&segment.ident)).collect();
            self.refer(segments, first.ident.span().start().line);
        }
        visit::visit_path(self, path);
    }

    fn visit_pat_ident(&mut self, pattern: &'ast syn::PatIdent) {
        // A pattern of one name is a constant if it begins with a capital, else a variable.
        if is_capital(&pattern.ident) {
            self.refer(vec![plain(&pattern.ident)], pattern.ident.span().start().line);
        }
        visit::visit_pat_ident(self, pattern);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        self.visit_path(&call.path);
        self.scan(call.tokens.clone());
    }

    fn visit_attribute(&mut self, attribute: &'ast Attribute) {
        const OF_THE_COMPILER: [&str; 6] = ["allow", "cfg", "cfg_attr", "derive", "doc", "expect"];
        if let Meta::List(list) = &attribute.meta
            && !OF_THE_COMPILER.iter().any(|name| list.path.is_ident(name))
        {
            self.scan(list.tokens.clone());
        }
    }

    fn visit_visibility(&mut self, _: &'ast Visibility) {}

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.within(
            item,
            |names, item| names.visit_item_fn(item),
            |walk, item| visit::visit_item_fn(walk, item),
        );
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if !is_test(&item.attrs) {
            self.within(
                item,
                |names, item| names.visit_impl_item_fn(item),
                |walk, item| visit::visit_impl_item_fn(walk, item),
            );
        }
    }

    fn visit_field(&mut self, field: &'ast syn::Field) {
        if !is_test(&field.attrs) {
            visit::visit_field(self, field);
        }
    }

    fn visit_local(&mut self, local: &'ast syn::Local) {
        if !is_test(&local.attrs) {
            visit::visit_local(self, local);
        }
    }
}

/// Finds the variables that the patterns of a function make.
struct Variables(BTreeSet<String>);

impl<'ast> Visit<'ast> for Variables {
    fn visit_pat_ident(&mut self, pattern: &'ast syn::PatIdent) {
        if !is_capital(&pattern.ident) {
            self.0.insert(plain(&pattern.ident));
        }
        visit::visit_pat_ident(self, pattern);
    }
}

/// Whether one of `attributes` keeps an item for tests: `#[test]`, `#[cfg(test)]`, or
/// `#[cfg(all(...))]` with `test` among its conditions.
fn is_test(attributes: &[Attribute]) -> bool {
    fn demands_test(tokens: TokenStream) -> bool {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        (0..tokens.len()).any(|at| match (at.checked_sub(1).map(|at| &tokens[at]), &tokens[at]) {
            (_, TokenTree::Ident(word)) => word == "test",
            (Some(TokenTree::Ident(word)), TokenTree::Group(group)) => {
                word == "all" && demands_test(group.stream())
            }
            _ => false,
        })
    }
    attributes.iter().any(|attribute| match &attribute.meta {
        Meta::Path(path) => path.is_ident("test"),
        Meta::List(list) => list.path.is_ident("cfg") && demands_test(list.tokens.clone()),
        Meta::NameValue(_) => false,
    })
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::ForeignMod(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Union(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// The name without the mark of a raw identifier.
fn plain(name: &Ident) -> String {
    name.to_string().trim_start_matches("r#").to_owned()
}

fn is_capital(name: &Ident) -> bool {
    plain(name).starts_with(|first: char| first.is_uppercase())
}

/// The text of `#[path = "..."]`.
fn path_attribute(attributes: &[Attribute]) -> Option<String> {
    attributes.iter().find_map(|attribute| match &attribute.meta {
        Meta::NameValue(pair) if pair.path.is_ident("path") => match &pair.value {
            Expr::Lit(ExprLit { lit: Lit::Str(path), .. }) => Some(path.value()),
            _ => None,
        },
        _ => None,
    })
}

/// The folder of the file at `path`, or nothing at the top.
pub fn folder_of(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(folder, _)| folder)
}

fn join(folder: &str, name: &str) -> String {
    if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") }
}
