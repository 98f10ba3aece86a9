use proptest::prelude::*;

use crate::{LOOK_AHEAD_BYTES, Page, Raw, is_binary, model::Model, render, split_limit, tail};

fn whole(bytes: &[u8]) -> Page {
    render(&Raw { bytes, at_end: true, ..Raw::default() }, usize::MAX)
}

fn text_of(bytes: &[u8]) -> String {
    let page = whole(bytes);
    assert_eq!(page.consumed, bytes.len());
    page.text
}

/// The context a reader at `cursor` has.
fn context(bytes: &[u8], cursor: usize) -> &[u8] {
    &bytes[cursor.saturating_sub(4096)..cursor]
}

/// Pages through `bytes` as they would be read while growing: at most `step` raw bytes beyond the look-ahead at once.
fn paged(bytes: &[u8], gap: bool, from: usize, limit: usize, step: usize) -> String {
    let (mut cursor, mut text, mut there) = (from, String::new(), from);
    while cursor < bytes.len() {
        there = (there + step).clamp(cursor, bytes.len());
        let raw = Raw {
            context: context(bytes, cursor),
            gap_before: gap && cursor <= 4096,
            bytes: &bytes[cursor..there],
            at_end: there == bytes.len(),
        };
        let page = render(&raw, limit);
        assert!(page.text.len() <= limit.max(1) + 3, "limit {limit}, text {}", page.text.len());
        assert!(page.consumed + page.held_bytes <= raw.bytes.len());
        assert!(page.held_bytes < LOOK_AHEAD_BYTES, "held {}", page.held_bytes);
        cursor += page.consumed;
        text.push_str(&page.text);
    }
    text
}

#[test]
fn keeps_printable_characters_space_tab_and_line_ends() {
    let text = "a b\tc\r\nd \u{e9}\u{20ac}\u{1f600}\u{200e}\u{feff}~";
    assert_eq!(text_of(text.as_bytes()), text);
    assert!(!whole(text.as_bytes()).normalized);
}

#[test]
fn removes_other_controls() {
    for byte in (0..0x20).chain([0x7f]).filter(|byte| !b"\t\n\r\x1b".contains(byte)) {
        assert_eq!(text_of(&[b'a', byte, b'b']), "ab", "{byte:#x}");
        assert!(whole(&[byte]).normalized);
    }
}

#[test]
fn removes_every_kind_of_sequence_in_both_forms() {
    let eight_bit = |kind: u8| vec![0xc2, kind + 0x40];
    for (kind, body, ends) in [
        (b'[', &b"1;31 "[..], &["m", "@", "~"][..]),
        (b']', b"0;a title \xe2\x82\xac\n", &["\x07", "\x1b\\", "\u{9c}"]),
        (b'P', b"q#0\x07;2", &["\x1b\\", "\u{9c}"]),
        (b'X', b"start of string", &["\x1b\\", "\u{9c}"]),
        (b'^', b"private", &["\x1b\\", "\u{9c}"]),
        (b'_', b"Gi=1;\x07", &["\x1b\\", "\u{9c}"]),
    ] {
        for end in ends {
            for form in [vec![0x1b, kind], eight_bit(kind)] {
                let bytes = [b"<", &form[..], body, end.as_bytes(), b">"].concat();
                assert_eq!(text_of(&bytes), "<>", "{:?}", String::from_utf8_lossy(&bytes));
            }
        }
    }
    for charset in ["\x1b(B", "\x1b)0", "\x1b%G", "\x1b#8", "\x1b $ A"] {
        assert_eq!(text_of(format!("<{charset}>").as_bytes()), "<>", "{charset:?}");
    }
}

#[test]
fn removes_two_byte_sequences_and_c1_characters() {
    for byte in (0x30..=0x7e).filter(|byte| !b"[]PX^_".contains(byte)) {
        assert_eq!(text_of(&[b'<', 0x1b, byte, b'>']), "<>", "ESC {byte:#x}");
    }
    for c1 in 0x80..=0x9f {
        if !b"[]PX^_".contains(&(c1 - 0x40)) {
            assert_eq!(text_of(&[b'<', 0xc2, c1, b'>']), "<>", "U+00{c1:x}");
        }
    }
}

#[test]
fn malformed_sequences_lose_their_introducer_alone() {
    assert_eq!(text_of(b"a\x1b[31\nb"), "a31\nb");
    assert_eq!(text_of(b"a\x1b[3\xffm"), "a3\u{fffd}m");
    assert_eq!(text_of("a\x1b\u{e9}b".as_bytes()), "a\u{e9}b");
    assert_eq!(text_of(b"a\x1b\nb"), "a\nb");
    assert_eq!(text_of("a\x1b( \u{20ac}".as_bytes()), "a \u{20ac}");
}

#[test]
fn an_introducer_ends_what_was_open_and_takes_its_bytes() {
    assert_eq!(text_of(b"a\x1b]0;never closed\x1b[1mb"), "ab");
    assert_eq!(text_of("a\x1b[31\u{9b}1mb".as_bytes()), "ab");
    assert_eq!(text_of(b"a\x1b\x1b\x1b[0mb"), "ab");
    assert_eq!(text_of("a\x1b]0;t\u{85}b".as_bytes()), "ab");
}

#[test]
fn invalid_bytes_become_one_replacement_each() {
    for (bytes, count) in [
        (&b"\x80"[..], 1),
        (b"\x9b31m", 1),
        (b"\xc0\x80", 2),
        (b"\xe2\x82", 2),
        (b"\xed\xa0\x80", 3),
        (b"\xf4\x90\x80\x80", 4),
        (b"\xf0\x9f\x98", 3),
        (b"\xff\xfe", 2),
    ] {
        let text = text_of(bytes);
        assert_eq!(text.chars().filter(|c| *c == '\u{fffd}').count(), count, "{bytes:x?}");
    }
}

#[test]
fn characters_that_turn_the_order_are_replaced() {
    for c in ('\u{202a}'..='\u{202e}').chain('\u{2066}'..='\u{2069}') {
        assert_eq!(text_of(format!("a{c}b").as_bytes()), "a\u{fffd}b", "{c:?}");
    }
    for c in ['\u{2029}', '\u{202f}', '\u{2065}', '\u{206a}'] {
        assert_eq!(text_of(c.to_string().as_bytes()), c.to_string());
    }
}

#[test]
fn a_sequence_counts_when_its_terminator_begins_within_4_kib() {
    for (intro, end) in [
        ("\x1b]", "\x07"),
        ("\x1b]", "\x1b\\"),
        ("\u{9d}", "\u{9c}"),
        ("\x1b[", "m"),
        ("\x1b(", "B"),
    ] {
        let body = if intro == "\x1b[" {
            "1"
        } else if intro == "\x1b(" {
            "("
        } else {
            "x"
        };
        let fits = 4096 - 1 - intro.len();
        let within = format!("{intro}{}{end}>", body.repeat(fits));
        assert_eq!(text_of(within.as_bytes()), ">", "{intro:?} {end:?}");
        let beyond = format!("{intro}{}{end}>", body.repeat(fits + 1));
        let visible = if end.starts_with(char::is_control) { "" } else { end };
        assert_eq!(
            text_of(beyond.as_bytes()),
            format!("{}{visible}>", body.repeat(fits + 1)),
            "{intro:?} {end:?}"
        );
    }
}

#[test]
fn an_open_sequence_is_held_until_it_is_too_long() {
    let bytes = [b"\x1b]".to_vec(), vec![b'x'; 4094]].concat();
    for there in 1..bytes.len() {
        let page = render(&Raw { bytes: &bytes[..there], ..Raw::default() }, 100);
        assert_eq!((page.text.as_str(), page.consumed, page.held_bytes), ("", 0, there));
    }
    let page = render(&Raw { bytes: &bytes, ..Raw::default() }, usize::MAX);
    assert_eq!((page.text.len(), page.consumed, page.held_bytes), (4094, 4096, 0));
}

#[test]
fn a_cut_character_is_held_at_every_place() {
    for c in ["\u{e9}", "\u{20ac}", "\u{1f600}", "\u{85}"] {
        for cut in 1..c.len() {
            let bytes = &c.as_bytes()[..cut];
            let page = render(&Raw { bytes, ..Raw::default() }, 100);
            assert_eq!((page.text.as_str(), page.consumed, page.held_bytes), ("", 0, cut));
            assert_eq!(whole(bytes).text, "\u{fffd}".repeat(cut));
        }
    }
}

#[test]
fn continuation_bytes_after_a_gap_go_with_their_character() {
    for cut in 1..4 {
        let bytes = &"\u{1f600}b\u{e9}".as_bytes()[cut..];
        let page = render(&Raw { bytes, gap_before: true, at_end: true, context: &[] }, 100);
        assert_eq!((page.text.as_str(), page.consumed), ("b\u{e9}", bytes.len()));
        assert!(page.normalized);
        let kept = whole(bytes);
        assert_eq!(kept.text, format!("{}b\u{e9}", "\u{fffd}".repeat(4 - cut)));
    }
}

#[test]
fn a_page_holds_one_character_though_it_exceeds_the_limit() {
    let bytes = "\u{1f600}\u{1f600}".as_bytes();
    let page = render(&Raw { bytes, at_end: true, ..Raw::default() }, 1);
    assert_eq!((page.text.as_str(), page.consumed, page.held_bytes), ("\u{1f600}", 4, 0));
}

#[test]
fn a_stretch_without_text_moves_on_empty() {
    let bytes = [0; 100_000];
    let page = render(&Raw { bytes: &bytes, ..Raw::default() }, 1);
    assert_eq!((page.text.as_str(), page.consumed, page.normalized), ("", 100_000, true));
}

#[test]
fn binary_is_told_by_nul_and_by_entropy() {
    let flat: Vec<u8> = (0..=255).collect();
    assert!(is_binary(&flat));
    assert!(!is_binary(&flat[32..]), "224 different bytes are too few to tell");
    assert!(is_binary(&[b"a".repeat(98), vec![0; 2]].concat()));
    assert!(!is_binary(&[b"a".repeat(99), vec![0; 1]].concat()), "exactly 1 % is not over it");
    assert!(!is_binary(b""));
    assert!(!is_binary("Stra\u{df}e \u{20ac} 10\n".repeat(100).as_bytes()));
    assert!(is_binary(&[0]));
}

#[test]
fn limit_is_shared_without_loss() {
    for limit in 0..100 {
        let (head, tail) = split_limit(limit);
        assert!(head >= tail && head + tail == limit);
    }
}

#[test]
fn tail_is_the_longest_end_that_fits() {
    let raw = |bytes| Raw { bytes, at_end: true, ..Raw::default() };
    assert_eq!(tail(&raw(b"one\ntwo\n"), 4).text, "two\n");
    assert_eq!(tail(&raw(b"one\ntwo\n"), 100).start, 0);
    let euro = tail(&raw("\u{20ac}\u{20ac}".as_bytes()), 5);
    assert_eq!((euro.text.as_str(), euro.start), ("\u{20ac}", 3));
    assert_eq!(tail(&raw("\u{20ac}".as_bytes()), 0).text, "");
}

/// Pieces that meet each other in every way.
fn piece() -> impl Strategy<Value = Vec<u8>> {
    let fixed: Vec<&'static [u8]> = vec![
        b"\x1b",
        b"\x1b[",
        b"\x1b[31;1m",
        b"\x1b]",
        b"\x1b]0;t\x07",
        b"\x1bP",
        b"\x1bX",
        b"\x1b^",
        b"\x1b_",
        b"\x1b\\",
        b"\x1b(",
        b"\x1b(B",
        b"\xc2",
        b"\xc2\x9b",
        b"\xc2\x9d",
        b"\xc2\x90",
        b"\xc2\x98",
        b"\xc2\x9e",
        b"\xc2\x9f",
        b"\xc2\x9c",
        b"\xc2\x85",
        b"\xc2\xa0",
        b"\x07",
        b"\r\n",
        b"\x00",
        b"\x7f",
        b"m",
        b" ",
        b"/",
        b"0",
        b"text",
        b"\x9b",
        b"\xe2",
        b"\xe2\x80",
        b"\xe2\x80\xae",
        b"\xe2\x81\xa6",
        b"\xf0\x9f\x98\x80",
        b"\xf0\x9f",
        b"\xc3\xa9",
        b"\xff",
        b"\x80",
        b"\xbf\xbf\xbf\xbf",
        b"\xed\xa0\x80",
    ];
    prop_oneof![
        8 => prop::sample::select(fixed).prop_map(<[u8]>::to_vec),
        1 => prop::collection::vec(any::<u8>(), 0..8),
        1 => (prop::sample::select(vec![b'x', b'1', b'(', 0xbf]), prop::sample::select(vec![1_usize, 40, 2000, 4085, 4090, 4093, 4094, 4095, 4096, 4100]))
            .prop_map(|(byte, count)| vec![byte; count]),
    ]
}

fn output() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(piece(), 0..24).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn agrees_with_the_slow_model(bytes in output()) {
        let model = Model::of(&bytes, false).from(0);
        prop_assert_eq!(text_of(&bytes), model.clone());
        prop_assert_eq!(whole(&bytes).normalized, model.as_bytes() != bytes);
    }

    #[test]
    fn pages_join_to_the_whole_wherever_they_fall(bytes in output(), limit in 1..200_usize, step in 1..9000_usize, gap: bool) {
        prop_assert_eq!(paged(&bytes, gap, 0, limit, step), Model::of(&bytes, gap).from(0));
    }

    #[test]
    fn growing_byte_by_byte_changes_nothing(bytes in prop::collection::vec(piece(), 0..8).prop_map(|pieces| pieces.concat())) {
        prop_assert_eq!(paged(&bytes, false, 0, 7, 1), Model::of(&bytes, false).from(0));
    }

    #[test]
    fn any_cursor_gives_the_rest_of_the_whole(bytes in output(), at in any::<prop::sample::Index>(), gap: bool, step in 1..9000_usize) {
        let cursor = at.index(bytes.len() + 1);
        prop_assert_eq!(paged(&bytes, gap, cursor, 50, step), Model::of(&bytes, gap).from(cursor));
    }

    #[test]
    fn text_never_holds_what_acts_on_a_terminal(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
        let text = text_of(&bytes);
        prop_assert!(text.chars().all(|c| !c.is_control() || "\t\r\n".contains(c)));
    }

    #[test]
    fn tail_is_an_end_of_the_whole_and_fits(bytes in output(), limit in 0..5000_usize, at in any::<prop::sample::Index>()) {
        let from = at.index(bytes.len() + 1);
        let found = tail(&Raw { context: context(&bytes, from), gap_before: false, bytes: &bytes[from..], at_end: true }, limit);
        prop_assert!(found.text.len() <= limit);
        prop_assert_eq!(&found.text, &Model::of(&bytes, false).from(from + found.start));
        let rest = Model::of(&bytes, false).from(from);
        prop_assert!(found.start == 0 || rest.len() <= limit || found.text.len() + 4 > limit, "{} of {limit}", found.text.len());
    }
}
