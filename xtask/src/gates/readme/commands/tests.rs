use super::*;

fn scripts(blocks: &[Block]) -> Vec<&str> {
    blocks.iter().map(|block| block.script.as_str()).collect()
}

#[test]
fn only_sh_blocks_of_a_document_are_commands() {
    let text = "Run:\n\n```sh\ncargo run\n  cargo xtask ci\n```\n\n```text\nno\n```\n\
        - in a list:\n  ```sh\n  ls\n  ```\n````rust\n```sh\nno\n```\n````\n`cargo doc`\n";
    let blocks = of_document("README.md", text).unwrap();
    assert_eq!(scripts(&blocks), ["cargo run\n  cargo xtask ci", "  ls"]);
    assert_eq!(blocks[0].place, "README.md:3");
    assert_eq!((blocks[0].ending, blocks[0].beside), (Ending::Itself(0), false));
}

#[test]
fn a_fence_without_info_string_or_end_is_refused() {
    let findings = of_document("a.md", "```\nls\n```\n").unwrap_err();
    assert!(findings[0].starts_with("a.md:1: the fence has no info string"), "{findings:?}");
    assert_eq!(of_document("a.md", "```sh\nls\n").unwrap_err(), ["a.md:1: the fence has no end"]);
    let other = "```bash\nls\n```\n";
    assert_eq!(of_document("a.md", other).unwrap_err(), ["a.md:1: found `bash`, expected `sh`"]);
}

#[test]
fn the_head_of_a_rust_example_holds_fences_and_lines_of_one_command() {
    let text = "//! An example.\n//!\n//! `cargo run --example a`\n//!\n//! ```sh\n\
        //! cargo run --example a -- 8   # handlers\n//! ```\n\n//! ```sh\n//! no\n//! ```\n";
    let blocks = of_example("crates/x/examples/a.rs", text).unwrap();
    let expected = ["cargo run --example a", "cargo run --example a -- 8   # handlers"];
    assert_eq!(scripts(&blocks), expected);
    assert_eq!(blocks[1].place, "crates/x/examples/a.rs:5");
}

#[test]
fn the_head_of_another_example_holds_indented_commands() {
    let spec = "# A spec:\n#\n#   upcall run a.toml \\\n#       --compare\n#\n\
        # and in other shells\n#\n#   ls\n#\n#   pwd\n#\n# Then\n#\n#   id\n\n#   no\n";
    let blocks = of_example("examples/a.toml", spec).unwrap();
    assert_eq!(scripts(&blocks), ["upcall run a.toml \\\n--compare", "ls", "pwd", "id"]);
    assert_eq!(blocks[0].place, "examples/a.toml:3");
    let beside: Vec<bool> = blocks.iter().map(|block| block.beside).collect();
    assert_eq!(beside, [false, true, true, false]);

    let program = "/* In C.\n *\n *     cc a.c\n *     ./a.out\n */\nint main;\n";
    assert_eq!(scripts(&of_example("a.c", program).unwrap()), ["cc a.c\n./a.out"]);
}

#[test]
fn an_example_without_a_command_is_refused() {
    for (path, text) in
        [("a.toml", "policy = \"rm\"\n"), ("a.rs", "//! It runs.\n"), ("a.c", "/* In C. */\n")]
    {
        let findings = of_example(path, text).unwrap_err();
        assert!(findings[0].contains("has no command"), "{path}: {findings:?}");
    }
}

#[test]
fn a_comment_after_a_command_says_how_it_ends() {
    for (line, expected) in [
        ("cargo run", None),
        ("cargo run # half a minute", None),
        ("cargo run -- 50   # messages of each stream", None),
        ("cargo run   # 2 min", Some(Ending::Interrupted)),
        ("cargo run   # about 12 minutes, alone", Some(Ending::Interrupted)),
        ("upcalld   # until Ctrl-C", Some(Ending::Interrupted)),
        ("cargo run   # exits with 4: a promise is broken", Some(Ending::Itself(4))),
    ] {
        assert_eq!(ending(line), expected, "{line}");
    }
}
