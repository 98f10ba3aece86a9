//! Names of processes on the command line: whole handles and short unique prefixes.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

/// Characters of a whole handle.
pub(crate) const HANDLE_CHARS: usize = 22;
/// The shortest prefix that tables show.
const SHOWN_CHARS_MIN: usize = 6;
/// Marks a handle that begins with `-` until the arguments are parsed. No argument a person types
/// begins with this character.
const MARK: char = '\u{1}';
/// The commands that take handles. One handle in 64 begins with `-`.
const TAKE_HANDLES: [&str; 11] =
    ["logs", "input", "wait", "stop", "inspect", "kill", "attach", "export", "rm", "pin", "unpin"];

/// Whether `text` has the form of a whole handle: 22 characters of the URL-safe alphabet.
pub(crate) fn is_handle(text: &str) -> bool {
    text.len() == HANDLE_CHARS && text.bytes().all(is_handle_byte)
}

const fn is_handle_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_'
}

/// What a prefix stands for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Match<'list> {
    /// Exactly one handle begins with it.
    One(&'list str),
    /// None does.
    None,
    /// Several do.
    Several(Vec<&'list str>),
}

/// Finds what begins with `prefix` among `handles`. A handle named twice counts once.
pub(crate) fn resolve<'list>(
    prefix: &str,
    handles: impl IntoIterator<Item = &'list str>,
) -> Match<'list> {
    let mut found: Vec<&str> =
        handles.into_iter().filter(|handle| handle.starts_with(prefix)).collect();
    found.sort_unstable();
    found.dedup();
    match found.as_slice() {
        [] => Match::None,
        [one] => Match::One(one),
        [_, _, ..] => Match::Several(found),
    }
}

/// How many characters tell these handles apart, for a table: at least 6.
pub(crate) fn shown_chars(handles: &[&str]) -> usize {
    let mut sorted = handles.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    let shared = sorted.windows(2).map(|pair| match pair {
        [left, right] => left.bytes().zip(right.bytes()).take_while(|(a, b)| a == b).count(),
        _ => 0,
    });
    shared.max().map_or(0, |count| count + 1).clamp(SHOWN_CHARS_MIN, HANDLE_CHARS)
}

/// The first `chars` characters of a handle.
pub(crate) fn shortened(handle: &str, chars: usize) -> &str {
    handle.get(..chars).unwrap_or(handle)
}

/// Marks each argument that is a whole handle beginning with `-`, so that the parser does not
/// take it for an option. Only for commands that take handles, and only before a `--`.
pub(crate) fn mark_arguments(arguments: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut marked = Vec::new();
    let mut arguments = arguments.into_iter();
    marked.extend(arguments.next());
    let mut takes_handles = None;
    for argument in arguments.by_ref() {
        if argument == "--" {
            marked.push(argument);
            break;
        }
        if takes_handles.is_none() && !is_option_or_value(&argument) {
            takes_handles = Some(TAKE_HANDLES.iter().any(|command| argument == **command));
        }
        marked.push(if takes_handles == Some(true) { mark(argument) } else { argument });
    }
    marked.extend(arguments);
    marked
}

/// Whether this word, seen before the command's name, belongs to a global option.
fn is_option_or_value(argument: &OsString) -> bool {
    let values = ["table", "json", "jsonl"];
    argument.as_bytes().starts_with(b"-") || values.iter().any(|value| argument == *value)
}

fn mark(argument: OsString) -> OsString {
    match argument.to_str() {
        Some(text) if text.starts_with('-') && is_handle(text) => format!("{MARK}{text}").into(),
        Some(_) | None => argument,
    }
}

/// Takes the mark off again.
pub(crate) fn unmark(text: &str) -> &str {
    text.strip_prefix(MARK).filter(|rest| is_handle(rest)).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DASHED: &str = "-aBcDeFgHiJkLmNoPqRsTA";
    const PLAIN: &str = "Q7h2xKfW9aZ_0-LmNopqrw";

    fn marked(arguments: &[&str]) -> Vec<String> {
        mark_arguments(arguments.iter().map(OsString::from))
            .into_iter()
            .map(|argument| argument.into_string().unwrap())
            .collect()
    }

    #[test]
    fn a_handle_has_22_characters_of_the_alphabet() {
        assert!(is_handle(DASHED) && is_handle(PLAIN));
        for other in ["", "Q7h2xK", "Q7h2xKfW9aZ_0-LmNopqr=", "Q7h2xKfW9aZ_0-LmNopqrwA"] {
            assert!(!is_handle(other), "{other}");
        }
    }

    #[test]
    fn a_prefix_names_what_alone_begins_with_it() {
        let handles = ["abcd", "abce", "b"];
        assert_eq!(resolve("b", handles), Match::One("b"));
        assert_eq!(resolve("abcd", handles), Match::One("abcd"));
        assert_eq!(resolve("x", handles), Match::None);
        assert_eq!(resolve("ab", handles), Match::Several(vec!["abcd", "abce"]));
        assert_eq!(resolve("b", ["b", "b"]), Match::One("b"));
    }

    #[test]
    fn a_table_shows_as_many_characters_as_tell_the_handles_apart() {
        assert_eq!(shown_chars(&[]), 6);
        assert_eq!(shown_chars(&[PLAIN]), 6);
        assert_eq!(shown_chars(&["aaaaaaaab", "aaaaaaaac", "b"]), 9);
        assert_eq!(shown_chars(&[PLAIN, PLAIN]), 6);
        assert_eq!(shortened(PLAIN, 6), "Q7h2xK");
    }

    #[test]
    fn a_dashed_handle_is_marked_where_handles_are_taken() {
        let args = marked(&["procctl", "--format", "json", "stop", "-t", "3", DASHED]);
        assert_eq!(args.last().map(|last| unmark(last)), Some(DASHED));
        assert_ne!(args.last().map(String::as_str), Some(DASHED));
        assert_eq!(args[..6], ["procctl", "--format", "json", "stop", "-t", "3"]);
    }

    #[test]
    fn nothing_is_marked_after_the_end_of_options_or_in_a_command_to_run() {
        for line in [&["procctl", "logs", "--", DASHED], &["procctl", "run", "echo", DASHED]] {
            assert_eq!(marked(line), *line);
        }
    }

    #[test]
    fn only_a_mark_before_a_handle_is_taken_off() {
        assert_eq!(unmark("\u{1}text"), "\u{1}text");
        assert_eq!(unmark(PLAIN), PLAIN);
    }
}
