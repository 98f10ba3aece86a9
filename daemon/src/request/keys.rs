//! Names of keys, and the bytes a terminal of the type xterm sends for them.

use procd_protocol::ErrorBody;

use super::invalid;

const NAMED: &[(&str, &[u8])] = &[
    ("enter", b"\r"),
    ("tab", b"\t"),
    ("shift-tab", b"\x1b[Z"),
    ("esc", b"\x1b"),
    ("space", b" "),
    ("backspace", b"\x7f"),
    ("up", b"\x1b[A"),
    ("down", b"\x1b[B"),
    ("right", b"\x1b[C"),
    ("left", b"\x1b[D"),
    ("home", b"\x1b[H"),
    ("end", b"\x1b[F"),
    ("insert", b"\x1b[2~"),
    ("delete", b"\x1b[3~"),
    ("page-up", b"\x1b[5~"),
    ("page-down", b"\x1b[6~"),
    ("f1", b"\x1bOP"),
    ("f2", b"\x1bOQ"),
    ("f3", b"\x1bOR"),
    ("f4", b"\x1bOS"),
    ("f5", b"\x1b[15~"),
    ("f6", b"\x1b[17~"),
    ("f7", b"\x1b[18~"),
    ("f8", b"\x1b[19~"),
    ("f9", b"\x1b[20~"),
    ("f10", b"\x1b[21~"),
    ("f11", b"\x1b[23~"),
    ("f12", b"\x1b[24~"),
    ("ctrl-space", b"\0"),
];

/// What each key types.
/// # Errors
/// `invalid_arguments` naming the first that is no key.
pub(super) fn all(names: &[String]) -> Result<Vec<Vec<u8>>, ErrorBody> {
    let one = |(index, name): (usize, &String)| {
        bytes(name).ok_or_else(|| {
            let why = "is no key; keys are such as `enter`, `up`, `f5`, `ctrl-c`, `alt-x`";
            invalid(&format!("keys[{index}]"), why)
        })
    };
    names.iter().enumerate().map(one).collect()
}

fn bytes(name: &str) -> Option<Vec<u8>> {
    if let Some((_, bytes)) = NAMED.iter().find(|(known, _)| *known == name) {
        return Some(bytes.to_vec());
    }
    if let Some(rest) = name.strip_prefix("ctrl-") {
        return control(rest).map(|byte| vec![byte]);
    }
    let rest = name.strip_prefix("alt-")?;
    let mut after = if rest.chars().count() == 1 { rest.as_bytes().to_vec() } else { bytes(rest)? };
    after.insert(0, 0x1b);
    Some(after)
}

/// The control character of a letter or one of `@ [ \ ] ^ _ ?`.
fn control(name: &str) -> Option<u8> {
    let [byte] = name.as_bytes() else { return None };
    match byte.to_ascii_uppercase() {
        b'?' => Some(0x7f),
        upper @ b'@'..=b'_' => Some(upper & 0x1f),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_what_a_terminal_sends() {
        for (name, wanted) in [
            ("enter", b"\r".as_slice()),
            ("ctrl-c", &[3]),
            ("ctrl-\\", &[28]),
            ("ctrl-z", &[26]),
            ("ctrl-Z", &[26]),
            ("ctrl-?", &[127]),
            ("alt-x", b"\x1bx"),
            ("alt-up", b"\x1b\x1b[A"),
            ("f5", b"\x1b[15~"),
        ] {
            assert_eq!(bytes(name).as_deref(), Some(wanted), "{name}");
        }
        for name in ["", "Enter", "ctrl-", "ctrl-up", "ctrl-1", "f13", "c", "alt-"] {
            assert_eq!(bytes(name), None, "{name}");
        }
    }
}
