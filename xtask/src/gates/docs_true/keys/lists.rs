//! The names of all keys, flags and calls, read from the sources.
//!
//! | names | read from |
//! |---|---|
//! | `[[stream]] rate` | `const KEYS` of the files in `crates/cli/src/spec` |
//! | `upcall run --csv` | the structs of `clap` in `args.rs`, `args` and `daemon.rs` of `crates/cli/src` |
//! | `rts_create`, `rts_attr.period_ns` | the header of the C API |
//! | `Runtime::run`, `Config.trace` | public functions of the types that the facade exports, and the fields of its settings |
//!
//! A type is found by its name alone, in the crates `runtime` and `upcall`, and in `core` for the
//! settings. The arithmetic of `core` (time, admission, policies) has tests of its own beside it.

use crate::gate::Failure;
use crate::workspace::Workspace;
use std::collections::{BTreeMap, BTreeSet};
use syn::{Expr, Fields, ImplItem, Item, ItemEnum, ItemStruct, Lit, Type, UseTree, Visibility};

/// The files of the spec with their prefix.
const SPEC: [(&str, &str); 6] = [
    ("document", ""),
    ("stream", "[[stream]] "),
    ("task", "[[task]] "),
    ("group", "[[group]] "),
    ("background", "[[background]] "),
    ("sweep", "sweep "),
];
/// The structs of the C API whose members a program sets.
const C_SETTINGS: [&str; 2] = ["rts_attr", "rts_config"];
/// The structs whose public fields a program sets.
const SETTINGS: [&str; 5] = ["ActivityParams", "Attach", "Config", "ReceiverOptions", "Terms"];
/// The public modules of the runtime that have functions.
const MODULES: [&str; 8] =
    ["channel", "clock", "io_events", "load", "program", "status", "stream", "udp"];

/// All names.
///
/// # Errors
/// A file cannot be read or does not parse.
pub fn all(workspace: &Workspace) -> Result<BTreeSet<String>, Failure> {
    let mut names = BTreeSet::new();
    for (file, prefix) in SPEC {
        let items = parse(workspace, &format!("crates/cli/src/spec/{file}.rs"))?;
        names.extend(spec_keys(&items).into_iter().map(|key| format!("{prefix}{key}")));
    }
    names.extend(flags(workspace)?);
    names.extend(of_header(&workspace.read("crates/capi/include/upcall.h".to_owned())?.text));
    names.extend(calls(workspace)?);
    Ok(names)
}

fn parse(workspace: &Workspace, path: &str) -> Result<Vec<Item>, Failure> {
    let text = workspace.read(path.to_owned())?.text;
    let parsed = syn::parse_file(&text).map_err(|error| Failure(format!("{path}: {error}")))?;
    Ok(parsed.items)
}

/// The strings of `const KEYS`.
fn spec_keys(items: &[Item]) -> Vec<String> {
    let keys = items.iter().find_map(|item| match item {
        Item::Const(constant) if constant.ident == "KEYS" => Some(&*constant.expr),
        _ => None,
    });
    let Some(Expr::Reference(reference)) = keys else { return Vec::new() };
    let Expr::Array(array) = &*reference.expr else { return Vec::new() };
    let text = |expr: &Expr| match expr {
        Expr::Lit(literal) => match &literal.lit {
            Lit::Str(text) => Some(text.value()),
            _ => None,
        },
        _ => None,
    };
    array.elems.iter().filter_map(text).collect()
}

/// Commands and their flags. The commands with a name of their own are hidden.
fn flags(workspace: &Workspace) -> Result<Vec<String>, Failure> {
    let mut items = parse(workspace, "crates/cli/src/args.rs")?;
    for file in ["args/bench", "args/daemon_at", "args/programs"] {
        items.extend(parse(workspace, &format!("crates/cli/src/{file}.rs"))?);
    }
    items.extend(parse(workspace, "crates/cli/src/daemon.rs")?);
    let structs: BTreeMap<String, &ItemStruct> = items
        .iter()
        .filter_map(|item| match item {
            Item::Struct(found) => Some((found.ident.to_string(), found)),
            _ => None,
        })
        .collect();
    let enums: BTreeMap<String, &ItemEnum> = items
        .iter()
        .filter_map(|item| match item {
            Item::Enum(found) => Some((found.ident.to_string(), found)),
            _ => None,
        })
        .collect();
    let mut names = Vec::new();
    commands_of("upcall", "Command", (&enums, &structs), &mut names);
    Ok(names)
}

/// The variants of the enum `name` are commands after the words `before`. A variant with a field
/// that is such an enum is a group of commands.
fn commands_of(
    before: &str,
    name: &str,
    (enums, structs): (&BTreeMap<String, &ItemEnum>, &BTreeMap<String, &ItemStruct>),
    names: &mut Vec<String>,
) {
    for variant in enums.get(name).into_iter().flat_map(|found| &found.variants) {
        let words = attribute(&variant.attrs, "command");
        if words.contains("hide = true") {
            continue;
        }
        let name = variant.ident.to_string().to_lowercase();
        let command =
            if name == "daemon" { "upcalld".to_owned() } else { format!("{before} {name}") };
        for field in &variant.fields {
            if words.contains("subcommand") {
                commands_of(&command, &last_name(&field.ty), (enums, structs), names);
                continue;
            }
            match structs.get(&last_name(&field.ty)) {
                Some(found) => flags_of(&command, &found.fields, structs, names),
                None => names.extend(flag(&command, field)),
            }
        }
        names.push(command);
    }
}

fn flags_of(
    command: &str,
    fields: &Fields,
    structs: &BTreeMap<String, &ItemStruct>,
    names: &mut Vec<String>,
) {
    for field in fields {
        let inner = structs.get(&last_name(&field.ty));
        match inner.filter(|_| attribute(&field.attrs, "command").contains("flatten")) {
            Some(inner) => flags_of(command, &inner.fields, structs, names),
            None => names.extend(flag(command, field)),
        }
    }
}

/// The flag of a field; `None` for an argument without a flag.
fn flag(command: &str, field: &syn::Field) -> Option<String> {
    let words = attribute(&field.attrs, "arg");
    let name = field.ident.as_ref()?.to_string();
    let is = |word: &str| words.split(',').any(|part| part.trim() == word);
    // A keyword of Rust has its name in the attribute: `long = "virtual"`.
    let named = words.split(',').find_map(|part| part.trim().strip_prefix("long = "));
    if let Some(name) = named {
        return Some(format!("{command} --{}", name.trim_matches('"')));
    }
    match (is("short"), is("long")) {
        (true, _) => Some(format!("{command} -{}", name.chars().next()?)),
        (false, true) => Some(format!("{command} --{}", name.replace('_', "-"))),
        (false, false) => None,
    }
}

/// The text inside an attribute, all of them joined.
fn attribute(attributes: &[syn::Attribute], name: &str) -> String {
    let lists = attributes.iter().filter(|attribute| attribute.path().is_ident(name));
    let texts = lists.filter_map(|attribute| attribute.meta.require_list().ok());
    texts.map(|list| list.tokens.to_string()).collect::<Vec<_>>().join(",")
}

/// The last name of a type's path.
fn last_name(of: &Type) -> String {
    match of {
        Type::Path(path) => path.path.segments.last().map(|s| s.ident.to_string()),
        _ => None,
    }
    .unwrap_or_default()
}

/// Functions, settings and their constants.
fn of_header(text: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut within = None;
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("struct ").and_then(|rest| rest.strip_suffix(" {")) {
            within = C_SETTINGS.contains(&name).then_some(name);
        } else if line == "};" {
            within = None;
        } else if let Some(name) = within {
            let member = line.split(';').next().filter(|_| line.contains(';'));
            let member = member.and_then(|declared| declared.rsplit([' ', '*']).next());
            let member = member.map(|member| member.split('[').next().unwrap_or(member));
            // `size` and `reserved` are the form of the struct.
            let is_set = |member: &&str| !["size", "reserved"].contains(member);
            names.extend(member.filter(is_set).map(|member| format!("{name}.{member}")));
        } else if let Some(rest) = line.strip_prefix("#define RTS_") {
            let (name, value) = rest.split_once(' ').unwrap_or((rest, ""));
            let is_value = value.starts_with("UINT32_C");
            names.extend(is_value.then(|| format!("RTS_{name}")));
        } else if !line.starts_with([' ', '/', '#'])
            && let Some((before, _)) = line.split_once('(')
        {
            let name = before.rsplit([' ', '*']).next().unwrap_or(before);
            names.extend(name.starts_with("rts_").then(|| name.to_owned()));
        }
    }
    names
}

/// Public functions of the facade, and the fields of its settings.
fn calls(workspace: &Workspace) -> Result<BTreeSet<String>, Failure> {
    let mut names = BTreeSet::new();
    let exported = exported(workspace, &mut names)?;
    let in_scope = |path: &String| {
        let inside = ["crates/runtime/src/", "crates/upcall/src/", "crates/core/src/activity.rs"];
        inside.iter().any(|folder| path.starts_with(folder))
            && path.ends_with(".rs")
            && !path.contains("tests")
    };
    for path in workspace.files()?.into_iter().filter(in_scope) {
        for item in parse(workspace, &path)? {
            match item {
                Item::Impl(block) if block.trait_.is_none() => {
                    let of = last_name(&block.self_ty);
                    if exported.contains(&of) && !path.starts_with("crates/core") {
                        names.extend(public_functions(&block.items).map(|f| format!("{of}::{f}")));
                    }
                }
                Item::Struct(found) if SETTINGS.contains(&found.ident.to_string().as_str()) => {
                    let public = found.fields.iter().filter(|field| is_public(&field.vis));
                    let fields = public.filter_map(|field| field.ident.as_ref());
                    names.extend(fields.map(|field| format!("{}.{field}", found.ident)));
                }
                _ => {}
            }
        }
    }
    Ok(names)
}

/// The names of the types that the facade exports. Enters its free functions into `names`.
fn exported(
    workspace: &Workspace,
    names: &mut BTreeSet<String>,
) -> Result<BTreeSet<String>, Failure> {
    let mut exported = BTreeSet::new();
    let mut roots = vec![("crates/upcall/src/lib.rs".to_owned(), "upcall::".to_owned())];
    roots.push(("crates/upcall/src/work.rs".to_owned(), "work::".to_owned()));
    let module = |name: &&str| (format!("crates/runtime/src/{name}.rs"), format!("{name}::"));
    roots.extend(MODULES.iter().map(module));
    for (path, prefix) in roots {
        for item in parse(workspace, &path)? {
            match item {
                Item::Use(used) if is_public(&used.vis) => {
                    let mut leaves = Vec::new();
                    leaf_names(&used.tree, &mut leaves);
                    let is_function = |name: &&String| name.starts_with(char::is_lowercase);
                    let functions = leaves.iter().filter(is_function);
                    let free = functions.filter(|name| !is_module(name));
                    names.extend(free.map(|name| format!("{prefix}{name}")));
                    exported.extend(leaves);
                }
                Item::Struct(found) if is_public(&found.vis) => {
                    exported.insert(found.ident.to_string());
                }
                Item::Enum(found) if is_public(&found.vis) => {
                    exported.insert(found.ident.to_string());
                }
                Item::Fn(found) if is_public(&found.vis) => {
                    names.insert(format!("{prefix}{}", found.sig.ident));
                }
                _ => {}
            }
        }
    }
    Ok(exported)
}

/// Whether the facade exports a module of this name.
fn is_module(name: &str) -> bool {
    const OF_CORE: [&str; 9] = [
        "activity",
        "admission",
        "cost",
        "discipline",
        "policy",
        "qos",
        "record",
        "scheduler",
        "time",
    ];
    MODULES.contains(&name) || OF_CORE.contains(&name)
}

fn leaf_names(tree: &UseTree, names: &mut Vec<String>) {
    match tree {
        UseTree::Path(path) => leaf_names(&path.tree, names),
        UseTree::Name(name) => names.push(name.ident.to_string()),
        UseTree::Rename(name) => names.push(name.rename.to_string()),
        UseTree::Group(group) => group.items.iter().for_each(|tree| leaf_names(tree, names)),
        UseTree::Glob(_) => {}
    }
}

fn public_functions(items: &[ImplItem]) -> impl Iterator<Item = String> {
    items.iter().filter_map(|item| match item {
        ImplItem::Fn(found) if is_public(&found.vis) => Some(found.sig.ident.to_string()),
        _ => None,
    })
}

fn is_public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}
