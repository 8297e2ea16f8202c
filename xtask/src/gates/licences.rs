//! The licence of every library that the project uses.
//!
//! The whole graph counts, with every platform, build scripts and tests, because a developer
//! downloads all of it. The graph of `tests/newcomer`, which is outside the workspace, counts too.
//! A licence is an SPDX expression (SPDX specification 2.3, Annex D). Some crates still have the
//! older form `MIT/Apache-2.0`, in which the slash means OR.

use super::newcomer;
use crate::gate::{Failure, Gate, Verdict, judge};
use crate::workspace::Workspace;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Every library can be used under a permissive licence.
pub const GATE: Gate =
    Gate { name: "licences", about: "every library can be used under a permissive licence", run };

/// Licences that ask for notices and no more, in lower case: SPDX identifiers are compared without
/// case.
const PERMISSIVE: [&str; 17] = [
    "0bsd",
    "apache-2.0",
    "apache-2.0 with llvm-exception",
    "blueoak-1.0.0",
    "bsd-1-clause",
    "bsd-2-clause",
    "bsd-3-clause",
    "bsl-1.0",
    "cc0-1.0",
    "isc",
    "mit",
    "mit-0",
    "ncsa",
    "unicode-3.0",
    "unicode-dfs-2016",
    "unlicense",
    "zlib",
];

fn run(workspace: &Workspace) -> Result<Verdict, Failure> {
    let graphs = [workspace.with_dependencies()?, workspace.dependencies_of(newcomer::CRATE)?];
    let packages: BTreeMap<_, _> = graphs
        .iter()
        .flat_map(|graph| &graph.packages)
        .map(|package| ((&package.name, &package.version), package))
        .collect();
    let mut findings = Vec::new();
    let mut expressions = BTreeSet::new();
    for package in packages.values() {
        let crate_is = format!("{} {}", package.name, package.version);
        let Some(licence) = package.license.as_deref() else {
            findings.push(format!("{crate_is}: no licence expression in its manifest"));
            continue;
        };
        expressions.insert(licence);
        match is_permissive(licence) {
            Ok(true) => {}
            Ok(false) => findings.push(format!("{crate_is}: `{licence}` has no permissive choice")),
            Err(error) => findings.push(format!("{crate_is}: `{licence}`: {error}")),
        }
    }
    let counts = (packages.len(), expressions.len());
    judge(&findings, format!("{} crates, {} different expressions", counts.0, counts.1))
}

/// Whether permissive licences alone satisfy `expression`.
///
/// # Errors
/// If it is not an SPDX expression.
fn is_permissive(expression: &str) -> Result<bool, NotSpdx> {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let mut words = Words { rest: spaced.split_whitespace().collect(), at: 0 };
    let permissive = words.alternatives()?;
    match words.next() {
        None => Ok(permissive),
        Some(word) => Err(NotSpdx::found(Some(word), "AND, OR or the end")),
    }
}

/// A word that a licence expression cannot have at its place.
#[derive(Debug, PartialEq, Eq)]
struct NotSpdx {
    found: String,
    expected: &'static str,
}

impl NotSpdx {
    fn found(word: Option<&str>, expected: &'static str) -> Self {
        let found = word.map_or("its end".to_owned(), |word| format!("`{word}`"));
        NotSpdx { found, expected }
    }
}

impl fmt::Display for NotSpdx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "found {}, expected {}", self.found, self.expected)
    }
}

impl std::error::Error for NotSpdx {}

/// The words of an expression, read by recursive descent. WITH binds strongest, then AND, then OR.
struct Words<'a> {
    rest: Vec<&'a str>,
    at: usize,
}

impl<'a> Words<'a> {
    fn next(&mut self) -> Option<&'a str> {
        let word = self.rest.get(self.at).copied();
        self.at += 1;
        word
    }

    /// Takes the next word if it is `operator`.
    fn take(&mut self, operator: &str) -> bool {
        let is_next =
            self.rest.get(self.at).is_some_and(|word| word.eq_ignore_ascii_case(operator));
        self.at += usize::from(is_next);
        is_next
    }

    fn alternatives(&mut self) -> Result<bool, NotSpdx> {
        let mut any = self.conjunction()?;
        while self.take("OR") {
            any |= self.conjunction()?;
        }
        Ok(any)
    }

    fn conjunction(&mut self) -> Result<bool, NotSpdx> {
        let mut all = self.licence()?;
        while self.take("AND") {
            all &= self.licence()?;
        }
        Ok(all)
    }

    fn licence(&mut self) -> Result<bool, NotSpdx> {
        if self.take("(") {
            let inner = self.alternatives()?;
            let behind = self.next();
            return if behind == Some(")") {
                Ok(inner)
            } else {
                Err(NotSpdx::found(behind, "`)`"))
            };
        }
        let mut name = self.identifier("a licence")?.to_ascii_lowercase();
        if self.take("WITH") {
            name = format!("{name} with {}", self.identifier("an exception")?.to_ascii_lowercase());
        }
        Ok(PERMISSIVE.contains(&name.as_str()))
    }

    fn identifier(&mut self, expected: &'static str) -> Result<&'a str, NotSpdx> {
        let word = self.next();
        let is_identifier = |word: &&str| {
            let operator = ["and", "or", "with"].contains(&word.to_ascii_lowercase().as_str());
            !operator && word.chars().all(|c| c.is_ascii_alphanumeric() || "-.+:".contains(c))
        };
        word.filter(is_identifier).ok_or_else(|| NotSpdx::found(word, expected))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_expressions_found_on_crates_io_are_permissive() {
        for expression in [
            "MIT",
            "MIT OR Apache-2.0",
            "MIT/Apache-2.0",
            "Apache-2.0 / MIT",
            "0BSD OR Apache-2.0",
            "(MIT OR Apache-2.0) AND Unicode-3.0",
            "Apache-2.0 WITH LLVM-exception OR Apache-2.0 OR MIT",
            "MIT OR Apache-2.0 OR LGPL-2.1-or-later",
        ] {
            assert_eq!(is_permissive(expression), Ok(true), "{expression}");
        }
    }

    #[test]
    fn one_licence_that_is_not_permissive_spoils_a_conjunction_only() {
        for (expression, permissive) in [
            ("GPL-3.0-only", false),
            ("MIT AND GPL-3.0-only", false),
            ("MIT OR GPL-3.0-only", true),
            ("MPL-2.0", false),
            ("GPL-2.0-only WITH Classpath-exception-2.0", false),
            ("MIT WITH Classpath-exception-2.0", false),
            ("Apache-2.0+", false),
        ] {
            assert_eq!(is_permissive(expression), Ok(permissive), "{expression}");
        }
    }

    #[test]
    fn and_binds_stronger_than_or() {
        assert_eq!(is_permissive("MIT OR GPL-3.0-only AND ISC"), Ok(true));
        assert_eq!(is_permissive("GPL-3.0-only AND ISC OR GPL-2.0-only"), Ok(false));
        assert_eq!(is_permissive("(MIT OR GPL-3.0-only) AND (GPL-3.0-only OR ISC)"), Ok(true));
        assert_eq!(is_permissive("(MIT OR ISC) AND GPL-3.0-only"), Ok(false));
    }

    #[test]
    fn a_text_that_is_no_expression_is_refused() {
        for text in
            ["", "OR MIT", "MIT OR", "MIT Apache-2.0", "(MIT", "MIT)", "MIT WITH", "see LICENSE!"]
        {
            assert!(is_permissive(text).is_err(), "{text}");
        }
        let message = is_permissive("MIT OR").unwrap_err().to_string();
        assert_eq!(message, "found its end, expected a licence");
    }
}
