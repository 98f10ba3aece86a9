//! The guard of a session: a courtesy against accidents. It reads the words of a command as they
//! stand, and says which one would run something out of a protected folder or point git at
//! another one. It is easily evaded; the boundary is the enforced access.
//! Source: spec, containment, *Working directory and workspace*.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::environment::redirects_git;
use crate::supervisor::runner::Program;

/// Folders whose content is not for running.
const PROTECTED: &[&[u8]] = &[b".git", b".procd"];
/// Shells whose `-c` text is read too.
const SHELLS: &[&[u8]] = &[b"sh", b"bash", b"dash", b"zsh", b"ksh"];
/// Programs that run the program named after them.
const RUNNERS: &[&[u8]] = &[
    b"env", b"exec", b"command", b"nohup", b"setsid", b"time", b"nice", b"sudo", b"xargs", b"eval",
    b"source", b".", b"builtin", b"busybox", b"timeout",
];
/// Words after which a shell's next word is a program.
const KEYWORDS: &[&[u8]] =
    &[b"if", b"then", b"else", b"elif", b"do", b"while", b"until", b"!", b"{", b"("];
/// Options that point git elsewhere; each also with `=` and a value.
const REDIRECTIONS: &[&[u8]] = &[b"--git-dir", b"--work-tree", b"--separate-git-dir"];

/// What the guard found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hit {
    ProtectedPath,
    GitRedirection,
}

impl Hit {
    /// The word of the protocol.
    pub(super) const fn cause(self) -> &'static str {
        match self {
            Self::ProtectedPath => "guard_protected_path",
            Self::GitRedirection => "guard_git_redirection",
        }
    }
}

/// Looks at a program. Returns the hit and the index of its word: of the argument, or in the text
/// for a shell of its word there.
pub(super) fn check(program: &Program, state_folder: &Path) -> Option<(Hit, usize)> {
    let state = state_folder.as_os_str().as_bytes();
    match program {
        Program::Argv(argv) => {
            let words: Vec<&[u8]> = argv.iter().map(|word| word.as_bytes()).collect();
            check_argv(&words, state)
        }
        Program::Line(text) => check_text(text.as_bytes(), state),
    }
}

fn check_argv(words: &[&[u8]], state: &[u8]) -> Option<(Hit, usize)> {
    // The text is one word of the arguments.
    let inside = shell_text(words)
        .and_then(|(index, text)| check_text(text, state).map(|(hit, _)| (hit, index)));
    let found = [check_command(words, state), inside];
    found.into_iter().flatten().min_by_key(|&(_, index)| index)
}

/// One simple command: what it runs, and what it tells git.
fn check_command(words: &[&[u8]], state: &[u8]) -> Option<(Hit, usize)> {
    let mut runs = true;
    for (index, &word) in words.iter().enumerate() {
        if is_redirection(word, words.get(index.wrapping_sub(1)).copied()) {
            return Some((Hit::GitRedirection, index));
        }
        let is_option = word.starts_with(b"-");
        if runs && !is_option && is_protected(word, state) {
            return Some((Hit::ProtectedPath, index));
        }
        // After a program that runs another one, options and assignments are passed over.
        let is_passed = is_option || is_assignment(word) || word.iter().all(u8::is_ascii_digit);
        if runs && !is_passed {
            runs = is_runner(word);
        }
    }
    None
}

/// A shell runs its first argument as a script.
fn is_runner(word: &[u8]) -> bool {
    let name = base_name(word);
    RUNNERS.contains(&name) || SHELLS.contains(&name)
}

fn base_name(word: &[u8]) -> &[u8] {
    word.rsplit(|&byte| byte == b'/').next().unwrap_or(word)
}

fn is_assignment(word: &[u8]) -> bool {
    let Some(at) = word.iter().position(|&byte| byte == b'=') else { return false };
    let name = word.get(..at).unwrap_or_default();
    !name.is_empty() && name.iter().all(|&byte| byte == b'_' || byte.is_ascii_alphanumeric())
}

fn is_redirection(word: &[u8], before: Option<&[u8]>) -> bool {
    let is_named = REDIRECTIONS.iter().any(|option| {
        word.strip_prefix(*option).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"="))
    });
    let name = |word: &'_ [u8]| word.split(|&byte| byte == b'=').next().unwrap_or(b"").to_owned();
    let is_variable = is_assignment(word) && redirects_git(&name(word));
    let setting = word.strip_prefix(b"-c").unwrap_or(word);
    // git's own names of settings do not care for case; to look at one changes nothing.
    let is_setting = name(setting).eq_ignore_ascii_case(b"core.worktree")
        && (setting.contains(&b'=') || before != Some(b"--get"));
    is_named || is_variable || is_setting
}

/// Whether a word is a path with a protected folder in it, or into the state folder.
fn is_protected(word: &[u8], state: &[u8]) -> bool {
    let has = word.split(|&byte| byte == b'/').any(|part| PROTECTED.contains(&part));
    let into = !state.is_empty()
        && word.strip_prefix(state).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"));
    has || into
}

/// The text of `sh -c`, and its index: any short group of options that ends in `c`.
fn shell_text<'a>(words: &[&'a [u8]]) -> Option<(usize, &'a [u8])> {
    let is_shell = |word: &&[u8]| SHELLS.contains(&base_name(word));
    let shell = words.iter().position(is_shell)?;
    let is_group = |word: &[u8]| {
        word.len() > 1
            && word.starts_with(b"-")
            && !word.starts_with(b"--")
            && word.ends_with(b"c")
            && word.get(1..).is_some_and(|rest| rest.iter().all(u8::is_ascii_alphabetic))
    };
    let flag = words.iter().skip(shell).position(|word| is_group(word))? + shell;
    words.get(flag + 1).map(|&text| (flag + 1, text))
}

fn check_text(text: &[u8], state: &[u8]) -> Option<(Hit, usize)> {
    let mut command: Vec<Vec<u8>> = Vec::new();
    let mut first = 0;
    let mut count = 0;
    let look = |command: &mut Vec<Vec<u8>>, first: usize| {
        let words: Vec<&[u8]> = command.iter().map(Vec::as_slice).collect();
        let found = check_argv(&words, state);
        command.clear();
        found.map(|(hit, index)| (hit, first + index))
    };
    for token in Tokens::new(text) {
        match token {
            Token::Word(word) => {
                if command.is_empty() && KEYWORDS.contains(&word.as_slice()) {
                    count += 1;
                    first = count;
                    continue;
                }
                if command.is_empty() {
                    first = count;
                }
                command.push(word);
                count += 1;
            }
            Token::Break => {
                if let Some(found) = look(&mut command, first) {
                    return Some(found);
                }
                first = count;
            }
        }
    }
    look(&mut command, first)
}

enum Token {
    Word(Vec<u8>),
    /// Behind it a new command begins.
    Break,
}

/// Splits a shell's text: quotes and backslashes taken off, nothing expanded.
struct Tokens<'a> {
    rest: &'a [u8],
}

impl<'a> Tokens<'a> {
    const fn new(text: &'a [u8]) -> Self {
        Self { rest: text }
    }

    fn take(&mut self) -> Option<u8> {
        let (&first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(first)
    }
}

fn breaks(byte: u8) -> bool {
    matches!(byte, b';' | b'&' | b'|' | b'(' | b')' | b'`' | b'\n')
}

impl Iterator for Tokens<'_> {
    type Item = Token;

    fn next(&mut self) -> Option<Token> {
        while self.rest.first().is_some_and(|byte| matches!(byte, b' ' | b'\t')) {
            self.take();
        }
        let first = *self.rest.first()?;
        if breaks(first) {
            self.take();
            return Some(Token::Break);
        }
        let mut word = Vec::new();
        let mut quote = None;
        while let Some(&byte) = self.rest.first() {
            match (quote, byte) {
                (None, b' ' | b'\t') => break,
                (None, byte) if breaks(byte) => break,
                (None, b'\'' | b'"') => quote = Some(byte),
                (Some(open), byte) if open == byte => quote = None,
                (Some(b'\''), byte) => word.push(byte),
                (_, b'\\') => {
                    self.take();
                    word.extend(self.rest.first());
                }
                (_, byte) => word.push(byte),
            }
            self.take();
        }
        Some(Token::Word(word))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATE: &str = "/home/a/.local/state/procd";

    fn argv(words: &[&str]) -> Option<(Hit, usize)> {
        let argv = words.iter().map(|&word| word.into()).collect();
        check(&Program::Argv(argv), Path::new(STATE))
    }

    fn text(text: &str) -> Option<(Hit, usize)> {
        check(&Program::Line(text.into()), Path::new(STATE))
    }

    #[test]
    fn a_program_out_of_a_protected_folder_is_found() {
        let path = |index| Some((Hit::ProtectedPath, index));
        assert_eq!(argv(&[".git/hooks/pre-commit"]), path(0));
        assert_eq!(argv(&["/src/.git/hooks/x", "y"]), path(0));
        assert_eq!(argv(&["sh", ".git/hooks/x"]), path(1));
        assert_eq!(argv(&["env", "A=b", "nohup", "./.procd/x"]), path(3));
        assert_eq!(argv(&[&format!("{STATE}/x")]), path(0));
        assert_eq!(argv(&["sh", "-c", "cd x && .git/hooks/y"]), path(2));
        assert_eq!(argv(&["busybox", "sh", "-c", ".git/y"]), path(3));
        for shell in ["sh", "bash", "/bin/dash", "zsh", "ksh"] {
            for flag in ["-c", "-lc", "-exc"] {
                assert_eq!(argv(&[shell, flag, "\".git/a b\""]), path(2), "{shell} {flag}");
            }
        }
        assert_eq!(text("make; if true; then .git/hooks/x; fi"), path(4));
        assert_eq!(text("echo $(.git/hooks/x)"), path(2));
        assert_eq!(text("bash -c 'exec .git/x'"), path(2));
    }

    #[test]
    fn git_pointed_elsewhere_is_found() {
        let git = |index| Some((Hit::GitRedirection, index));
        assert_eq!(argv(&["git", "--git-dir=/x", "status"]), git(1));
        assert_eq!(argv(&["git", "--work-tree", "/x", "status"]), git(1));
        assert_eq!(argv(&["git", "init", "--separate-git-dir=/x"]), git(2));
        assert_eq!(argv(&["git", "-c", "core.worktree=/x", "status"]), git(2));
        assert_eq!(argv(&["git", "-ccore.workTree=/x", "status"]), git(1));
        assert_eq!(argv(&["git", "config", "core.worktree", "/x"]), git(2));
        assert_eq!(argv(&["env", "GIT_DIR=/x", "git", "log"]), git(1));
        assert_eq!(text("cd y; GIT_INDEX_FILE=/x git add ."), git(2));
        assert_eq!(argv(&["sh", "-c", "GIT_WORK_TREE=/x git clean"]), git(2));
    }

    #[test]
    fn everyday_words_pass() {
        let words: &[&[&str]] = &[
            &["git", "status"],
            &["ls", ".git"],
            &["grep", "-r", "x", "--exclude-dir=.git"],
            &["cat", ".gitignore"],
            &["./.github/run"],
            &["git", "log", "--pretty=core"],
            &["sh", "build.sh"],
        ];
        for argv_words in words {
            assert_eq!(argv(argv_words), None, "{argv_words:?}");
        }
        for line in [
            "GIT_PAGER=cat git log",
            "find . -path ./.git -prune -o -print | head",
            "echo 'a;b' \"it's\" \\; done",
            "rm -rf target && cargo build 2>&1 | tail -5",
            "",
            "'",
        ] {
            assert_eq!(text(line), None, "{line}");
        }
    }
}
