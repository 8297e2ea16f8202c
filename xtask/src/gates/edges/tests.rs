use super::*;

/// The crate made of `files`, the root first, and its edges.
pub fn fixture(files: &[(&str, &str)]) -> (Modules, Edges) {
    let read = |path: &str| {
        files.iter().find(|(name, _)| *name == path).map(|(_, text)| (*text).to_owned())
    };
    let modules = read_crate(files[0].0, &read).unwrap();
    let edges = edges(&modules);
    (modules, edges)
}

/// The edges between `files` as `a.rs -> b.rs`.
fn edges_of(files: &[(&str, &str)]) -> BTreeSet<String> {
    let (modules, edges) = fixture(files);
    let name = |file: &File| modules.files[*file].as_str();
    edges.keys().map(|(from, to)| format!("{} -> {}", name(from), name(to))).collect()
}

/// The circles among `files`, each as the names of its files.
fn circles_of(files: &[(&str, &str)]) -> Vec<BTreeSet<String>> {
    let (modules, edges) = fixture(files);
    let circles = circles(modules.files.len(), &edges);
    let name = |file: &File| modules.files[*file].clone();
    circles.iter().map(|members| members.iter().map(name).collect()).collect()
}

fn names<const N: usize>(files: [&str; N]) -> BTreeSet<String> {
    files.map(str::to_owned).into()
}

#[test]
fn a_circle_of_three_files_is_found_and_a_chain_is_none() {
    let found = circles_of(&[
        ("lib.rs", "mod a; mod b; mod c; mod d;"),
        ("a.rs", "use crate::b::B; pub struct A;"),
        ("b.rs", "pub struct B(super::c::C);"),
        ("c.rs", "pub struct C; fn f() { let _ = crate::a::A; }"),
        ("d.rs", "use crate::a::A;"),
    ]);
    assert_eq!(found, [names(["a.rs", "b.rs", "c.rs"])]);
}

#[test]
fn a_re_export_leads_to_the_file_that_defines_the_item() {
    let found = edges_of(&[
        ("lib.rs", "mod a; mod c; pub use a::*; pub use a::Item as Renamed;"),
        ("a.rs", "mod b; pub use b::Item; pub mod deep { pub use super::b::Item as Other; }"),
        ("a/b.rs", "pub struct Item;"),
        ("c.rs", "use crate::a::Item; fn f(_: crate::Renamed, _: crate::a::deep::Other) {}"),
    ]);
    assert_eq!(found, names(["c.rs -> a/b.rs"]));
}

#[test]
fn a_parent_that_only_declares_and_re_exports_uses_no_child() {
    let files = [
        ("lib.rs", "mod a;"),
        ("a.rs", "mod b; pub use b::Item; pub struct Base;"),
        ("a/b.rs", "use super::Base; pub struct Item(Base);"),
    ];
    assert_eq!(edges_of(&files), names(["a/b.rs -> a.rs"]));
    assert!(circles_of(&files).is_empty());
}

#[test]
fn a_parent_and_a_child_that_use_each_other_are_a_circle() {
    let found = circles_of(&[
        ("lib.rs", "mod a;"),
        ("a.rs", "mod b; pub use b::Item; pub struct Base; fn f() -> Item { Item }"),
        ("a/b.rs", "use super::Base; pub struct Item; impl Item { fn g(_: Base) {} }"),
    ]);
    assert_eq!(found, [names(["a.rs", "a/b.rs"])]);
}

#[test]
fn an_import_of_a_module_is_no_edge_but_a_path_through_it_is() {
    let module = ("b.rs", "pub struct B;");
    let root = ("lib.rs", "mod a; mod b;");
    assert!(edges_of(&[root, ("a.rs", "use crate::b;"), module]).is_empty());
    let found = edges_of(&[root, ("a.rs", "use crate::b; type A = b::B;"), module]);
    assert_eq!(found, names(["a.rs -> b.rs"]));
}

#[test]
fn test_code_may_go_in_a_circle() {
    let found = circles_of(&[
        ("lib.rs", "mod a; mod b;"),
        (
            "a.rs",
            "pub struct A;
             #[cfg(test)] use crate::b::B;
             #[cfg(test)] mod tests { use crate::b::B; }
             #[cfg(all(test, not(loom)))] mod models { use crate::b::B; }
             #[cfg(loom)] #[cfg(test)] mod loom_tests;
             impl A { #[cfg(test)] fn f(_: crate::b::B) {} }
             #[test] fn g() { crate::b::B; }",
        ),
        ("b.rs", "use crate::a::A; pub struct B;"),
    ]);
    assert!(found.is_empty(), "{found:?}");
}

#[test]
fn code_that_is_left_out_of_tests_counts() {
    let found = edges_of(&[
        ("lib.rs", "mod a; mod b;"),
        ("a.rs", "#[cfg(not(test))] use crate::b::B;"),
        ("b.rs", "pub struct B;"),
    ]);
    assert_eq!(found, names(["a.rs -> b.rs"]));
}

#[test]
fn names_in_macros_and_attributes_count() {
    let files = [
        ("lib.rs", "mod a; mod b; mod c; mod d; mod m;"),
        ("a.rs", "fn f() { assert!(matches!(x.d, crate::b::B { .. }), \"{}\", 1) }"),
        ("b.rs", "pub struct B;"),
        ("c.rs", "struct C { #[arg(value_parser = crate::d::parse)] x: u8 } crate::made!(C);"),
        ("d.rs", "pub fn parse() {}"),
        ("m.rs", "#[macro_export] macro_rules! made { ($x:ty) => {} }"),
    ];
    assert_eq!(edges_of(&files), names(["a.rs -> b.rs", "c.rs -> d.rs", "c.rs -> m.rs"]));
}

#[test]
fn a_variable_hides_a_re_exported_function_of_its_name() {
    let found = edges_of(&[
        ("lib.rs", "mod a; pub use a::status; fn f(status: u8) -> u8 { status }"),
        ("a.rs", "pub fn status() {}"),
    ]);
    assert!(found.is_empty(), "{found:?}");
}

#[test]
fn items_of_other_crates_are_no_edges() {
    let found = edges_of(&[
        ("lib.rs", "mod a; mod b;"),
        ("a.rs", "pub use upcall_core::time; pub use std::io::*;"),
        ("b.rs", "use crate::a::{Read, time::Span}; fn f() { std::a::b(); ::a::b() }"),
    ]);
    assert!(found.is_empty(), "{found:?}");
}

#[test]
fn an_item_that_a_macro_makes_belongs_to_the_file_of_its_module() {
    let found = edges_of(&[
        ("lib.rs", "mod a; mod b;"),
        ("a.rs", "numbered!(Made);"),
        ("b.rs", "use crate::a::Made;"),
    ]);
    assert_eq!(found, names(["b.rs -> a.rs"]));
}

#[test]
fn a_module_may_have_a_file_at_another_path() {
    let found = edges_of(&[
        ("src/lib.rs", "#[path = \"other/x.rs\"] mod a; mod b;"),
        ("src/other/x.rs", "mod c; pub use c::C;"),
        ("src/other/c.rs", "pub struct C;"),
        ("src/b.rs", "use crate::a::C;"),
    ]);
    assert_eq!(found, names(["src/b.rs -> src/other/c.rs"]));
}

#[test]
fn a_circle_is_reported_with_a_line_and_an_item_for_each_edge() {
    let (modules, edges) = fixture(&[
        ("lib.rs", "mod a; mod b;"),
        ("a.rs", "\nuse crate::b::{B, C};\npub struct A;"),
        ("b.rs", "pub struct B(crate::a::A);\npub struct C;"),
    ]);
    let inside = Inside { name: "made-up".to_owned(), modules, edges };
    assert_eq!(
        inside.findings(),
        ["made-up: circle of 2 files\n  \
          b.rs:1 -> a.rs: crate::a::A\n  \
          a.rs:2 -> b.rs: crate::b::B (and crate::b::C)"]
    );
}

#[test]
fn every_crate_of_this_workspace_can_be_read() {
    let workspace = Workspace::load().unwrap();
    let insides = insides(&workspace, None).unwrap();
    let edges: usize = insides.iter().map(|inside| inside.edges.len()).sum();
    assert!(insides.len() > 9 && edges > 500, "{} targets, {edges} edges", insides.len());
    assert!(super::insides(&workspace, Some("gone")).is_err());
}
