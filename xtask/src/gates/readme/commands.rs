//! Finds the commands in a document and in the head of an example.
//!
//! In a document the info string of a fence says what its block holds:
//!
//! - `sh`: commands that the gate runs.
//! - `console`: commands that change the machine. The gate reports them and does not run them.
//! - `text` and others: output, usage lines, code.
//!
//! A fence without an info string is refused. So is the name of another shell, such as `bash`,
//! because the gate would silently leave its commands out.
//!
//! The head of an example is its first comment. In a `.rs` file the head follows the rules of a
//! document, and a line that holds only `` `cargo ...` `` is a command too. In other files a
//! command is a line that is indented by three spaces or more after the mark of the comment.
//!
//! A comment after a command says how the command ends: `# 2 min` or `# until Ctrl-C` (the gate
//! interrupts it), or `# exits with 4`. A command without such a comment ends soon, with 0. A block
//! below a paragraph that says `another shell` or `other shells` runs beside the block above that
//! paragraph. So do the blocks that follow it without another paragraph between.

#[cfg(test)]
mod tests;

/// Info strings that mean commands to a reader and that the gate refuses.
const OTHER_SHELLS: [&str; 6] = ["bash", "shell", "zsh", "fish", "ksh", "shell-session"];

/// Commands that a reader pastes into a shell in one go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// File and line, `README.md:50`.
    pub place: String,
    /// The lines, word for word.
    pub script: String,
    /// How the script ends.
    pub ending: Ending,
    /// Whether the script runs beside the block before it, in a shell of its own.
    pub beside: bool,
}

/// How a block ends, as the document says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// By itself, with this exit status.
    Itself(i32),
    /// By an interrupt from the keyboard, or after minutes.
    Interrupted,
    /// It does not run: its fence is marked `console`.
    NotRun,
}

/// The `sh` blocks of the Markdown `text` of the file `path`.
///
/// # Errors
/// A line for each fence without an info string or without an end.
pub fn of_document(path: &str, text: &str) -> Result<Vec<Block>, Vec<String>> {
    let lines = text.lines().enumerate().map(|(index, line)| (index + 1, line));
    fenced(path, lines)
}

/// The commands in the head of the example `path` with the source `text`.
///
/// # Errors
/// As [`of_document`], and if the head holds no command.
pub fn of_example(path: &str, text: &str) -> Result<Vec<Block>, Vec<String>> {
    let found = if path.ends_with(".rs") {
        let marked = text.lines().enumerate().map_while(|(index, line)| {
            line.strip_prefix("//!").map(|rest| (index + 1, rest.strip_prefix(' ').unwrap_or(rest)))
        });
        fenced(path, marked)?
    } else {
        indented(path, text)
    };
    if found.is_empty() {
        return Err(vec![format!("{path}: the head has no command that runs this example")]);
    }
    Ok(found)
}

/// The blocks of `lines`. Each line comes with its number.
fn fenced<'a>(
    path: &str,
    lines: impl Iterator<Item = (usize, &'a str)>,
) -> Result<Vec<Block>, Vec<String>> {
    let (mut found, mut findings) = (Vec::new(), Vec::new());
    let mut prose = Prose::default();
    // Number, fence, info string and lines of the block that is open.
    let mut open: Option<(usize, &str, &str, Vec<&str>)> = None;
    for (number, line) in lines {
        let trimmed = line.trim();
        let ticks = trimmed.len() - trimmed.trim_start_matches('`').len();
        match &mut open {
            Some((at, fence, info, script)) => {
                if trimmed.starts_with(*fence) && ticks == trimmed.len() {
                    match *info {
                        "sh" => found.push(block(path, *at, script, &mut prose)),
                        "console" => found.push(Block {
                            ending: Ending::NotRun,
                            beside: false,
                            ..block(path, *at, script, &mut prose)
                        }),
                        _ => {}
                    }
                    open = None;
                } else {
                    script.push(line);
                }
            }
            None if ticks >= 3 => {
                let info = trimmed[ticks..].trim();
                findings.extend(wrong_info(info).map(|wrong| format!("{path}:{number}: {wrong}")));
                open = Some((number, &trimmed[..ticks], info, Vec::new()));
            }
            None => match only_command(trimmed) {
                Some(command) if path.ends_with(".rs") => {
                    found.push(block(path, number, &[command], &mut prose));
                }
                _ => prose.add(trimmed),
            },
        }
    }
    if let Some((at, ..)) = open {
        findings.push(format!("{path}:{at}: the fence has no end"));
    }
    if findings.is_empty() { Ok(found) } else { Err(findings) }
}

/// The mistake in the info string of a fence, if it has one.
fn wrong_info(info: &str) -> Option<String> {
    if info.is_empty() {
        let kinds = "`sh` for commands that the gate `readme` runs, `console` or `text` for others";
        return Some(format!("the fence has no info string, expected {kinds}"));
    }
    OTHER_SHELLS.contains(&info).then(|| format!("found `{info}`, expected `sh`"))
}

/// The command in `line`, if the whole line is one code span that calls cargo.
fn only_command(line: &str) -> Option<&str> {
    let command = line.strip_prefix('`')?.strip_suffix('`')?;
    (command.starts_with("cargo ") && !command.contains('`')).then_some(command)
}

/// The indented commands in the first comment of `text`, whose marks are `#` or `/* * */`.
fn indented(path: &str, text: &str) -> Vec<Block> {
    let mut found = Vec::new();
    let mut prose = Prose::default();
    let mut script: Vec<&str> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let marked = ["#", "/*", " *"].into_iter().find_map(|mark| line.strip_prefix(mark));
        let command = marked.and_then(|rest| rest.strip_prefix("   ")).map(str::trim);
        match command {
            Some(command) => script.push(command),
            None => {
                if !script.is_empty() {
                    found.push(block(path, index + 1 - script.len(), &script, &mut prose));
                    script.clear();
                }
                match marked {
                    Some(rest) => prose.add(rest.trim()),
                    None => break,
                }
            }
        }
    }
    found
}

/// The block of `lines` at line `number`, below `prose`. Clears the text of `prose`.
fn block(path: &str, number: usize, lines: &[&str], prose: &mut Prose) -> Block {
    if !prose.text.trim().is_empty() {
        let names = |words| prose.text.contains(words);
        prose.beside = names("another shell") || names("other shells");
    }
    prose.text.clear();
    Block {
        place: format!("{path}:{number}"),
        script: lines.join("\n"),
        ending: lines.iter().find_map(|line| ending(line)).unwrap_or(Ending::Itself(0)),
        beside: prose.beside,
    }
}

/// How the command of `line` ends, if its comment says so.
fn ending(line: &str) -> Option<Ending> {
    let (_, comment) = line.split_once(" # ")?;
    let words: Vec<&str> = comment.split_whitespace().collect();
    let is_minutes = |pair: &[&str]| {
        pair[0].parse::<u32>().is_ok() && pair[1].trim_end_matches([',', ';']).starts_with("min")
    };
    if let Some((_, code)) = comment.split_once("exits with ") {
        let digits: String = code.chars().take_while(char::is_ascii_digit).collect();
        return digits.parse().ok().map(Ending::Itself);
    }
    let lasts = comment.contains("until Ctrl-C") || words.windows(2).any(is_minutes);
    lasts.then_some(Ending::Interrupted)
}

/// The text above the next block.
#[derive(Default)]
struct Prose {
    /// The text since the last block, in one line.
    text: String,
    /// Whether the last text names another shell. Holds for all blocks up to the next text.
    beside: bool,
}

impl Prose {
    fn add(&mut self, line: &str) {
        self.text += line;
        self.text.push(' ');
    }
}
