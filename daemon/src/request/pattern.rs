//! Patterns on raw output, in linear time and fed byte by byte, each byte once: what is found does
//! not depend on how the bytes were cut, and a wait keeps a state, never the bytes it has seen.
//!
//! ```text
//! forward:  cursor ---------> end of the first match      (as bytes come)
//! backward: start  <--------- end                         (once, when it was found)
//! ```
//!
//! A match that ends where the output ends now counts only if no byte that may follow could undo
//! it. Source: spec, output, *Waiting*, *Tail and search*.

use regex_automata::hybrid::LazyStateID;
use regex_automata::hybrid::dfa::{Cache, Config, DFA};
use regex_automata::nfa::thompson::{self, NFA, WhichCaptures};
use regex_automata::util::start;
use regex_automata::{Anchored, MatchKind};
use regex_syntax::ParserBuilder;
use regex_syntax::hir::{Hir, HirKind, Look};

/// Bytes a compiled pattern may have.
const COMPILED_BYTES_MAX: usize = 1024 * 1024;
/// Bytes of states that one search remembers, beyond what its pattern needs at least.
const CACHE_BYTES: usize = 256 * 1024;

/// A compiled pattern. Clones share it.
#[derive(Debug, Clone)]
pub(super) struct Pattern {
    forward: DFA,
    /// The same, but it fails where it would have to forget states.
    forward_keeping: DFA,
    backward: DFA,
    /// Whether what follows a match decides if it is one.
    looks_ahead: bool,
}

/// A state of the engine could not be made: its settings exclude that.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stuck;

impl Pattern {
    /// Compiles a pattern.
    /// # Errors
    /// One sentence without the name of the field: no pattern, or too large a one.
    pub(super) fn new(text: &str) -> Result<Self, String> {
        let mut parser = ParserBuilder::new().utf8(false).multi_line(true).crlf(true).build();
        let hir = parser.parse(text).map_err(|error| syntax_sentence(&error))?;
        let hir = with_ascii_words(hir);
        let looks_ahead = hir.properties().look_set_suffix_any().iter().any(is_ahead);
        let forward = compile(&hir, false)?;
        let backward = compile(&hir, true)?;
        let config = DFA::config().cache_capacity(CACHE_BYTES).skip_cache_capacity_check(true);
        let keeping = config.clone().minimum_cache_clear_count(Some(0));
        let all = config.clone().match_kind(MatchKind::All);
        Ok(Self {
            forward: build(config, forward.clone())?,
            forward_keeping: build(keeping, forward)?,
            backward: build(all, backward)?,
            looks_ahead,
        })
    }
}

fn compile(hir: &Hir, reverse: bool) -> Result<NFA, String> {
    let config = thompson::Config::new()
        .utf8(false)
        .reverse(reverse)
        .which_captures(WhichCaptures::None)
        .nfa_size_limit(Some(COMPILED_BYTES_MAX));
    let compiled = thompson::Compiler::new().configure(config).build_from_hir(hir);
    compiled.map_err(|error| match error.size_limit() {
        Some(_) => "is larger than 1 MiB once compiled".to_owned(),
        None => format!("cannot be used: {error}"),
    })
}

fn build(config: Config, nfa: NFA) -> Result<DFA, String> {
    let built = DFA::builder().configure(config).build_from_nfa(nfa);
    built.map_err(|error| format!("cannot be used: {error}"))
}

/// The first line that says what is wrong; the pattern itself is the caller's own.
fn syntax_sentence(error: &regex_syntax::Error) -> String {
    let text = error.to_string();
    let reason = text.lines().rev().find_map(|line| line.trim().strip_prefix("error: "));
    format!("is no pattern: {}", reason.unwrap_or("it cannot be read"))
}

/// The engine knows the ends of ASCII words only.
fn with_ascii_words(hir: Hir) -> Hir {
    match hir.into_kind() {
        HirKind::Empty => Hir::empty(),
        HirKind::Literal(literal) => Hir::literal(literal.0),
        HirKind::Class(class) => Hir::class(class),
        HirKind::Look(look) => Hir::look(ascii(look)),
        HirKind::Repetition(mut repetition) => {
            *repetition.sub = with_ascii_words(*repetition.sub);
            Hir::repetition(repetition)
        }
        HirKind::Capture(capture) => with_ascii_words(*capture.sub),
        HirKind::Concat(parts) => Hir::concat(parts.into_iter().map(with_ascii_words).collect()),
        HirKind::Alternation(parts) => {
            Hir::alternation(parts.into_iter().map(with_ascii_words).collect())
        }
    }
}

const fn ascii(look: Look) -> Look {
    match look {
        Look::WordUnicode => Look::WordAscii,
        Look::WordUnicodeNegate => Look::WordAsciiNegate,
        Look::WordStartUnicode => Look::WordStartAscii,
        Look::WordEndUnicode => Look::WordEndAscii,
        Look::WordStartHalfUnicode => Look::WordStartHalfAscii,
        Look::WordEndHalfUnicode => Look::WordEndHalfAscii,
        Look::Start
        | Look::End
        | Look::StartLF
        | Look::EndLF
        | Look::StartCRLF
        | Look::EndCRLF
        | Look::WordAscii
        | Look::WordAsciiNegate
        | Look::WordStartAscii
        | Look::WordEndAscii
        | Look::WordStartHalfAscii
        | Look::WordEndHalfAscii => look,
    }
}

/// Whether it depends on what follows.
const fn is_ahead(look: Look) -> bool {
    !matches!(look, Look::Start | Look::StartLF | Look::WordStartHalfAscii)
}

/// The search for the end of the first match, as the bytes come.
#[derive(Debug)]
pub(super) struct Scanner {
    pattern: Pattern,
    cache: Box<Cache>,
    state: LazyStateID,
    /// Bytes fed.
    fed: u64,
    /// Where the match known so far ends, counted in bytes fed.
    end: Option<u64>,
    /// No byte can change the match any more.
    is_done: bool,
}

impl Scanner {
    /// A search from a beginning on.
    /// # Errors
    /// [`Stuck`] is a bug.
    pub(super) fn new(pattern: Pattern) -> Result<Self, Stuck> {
        let mut cache = Box::new(pattern.forward.create_cache());
        let state = first_state(&pattern.forward, &mut cache, Anchored::No, None)?;
        Ok(Self { pattern, cache, state, fed: 0, end: None, is_done: false })
    }

    /// Begins anew, for instance with the next line.
    /// # Errors
    /// [`Stuck`] is a bug.
    pub(super) fn restart(&mut self) -> Result<(), Stuck> {
        self.state = first_state(&self.pattern.forward, &mut self.cache, Anchored::No, None)?;
        (self.fed, self.end, self.is_done) = (0, None, false);
        Ok(())
    }

    /// Takes the next bytes.
    /// # Errors
    /// [`Stuck`] is a bug.
    pub(super) fn feed(&mut self, bytes: &[u8]) -> Result<(), Stuck> {
        for &byte in bytes {
            if self.is_done {
                return Ok(());
            }
            let next = self.pattern.forward.next_state(&mut self.cache, self.state, byte);
            self.state = next.map_err(|_full| Stuck)?;
            if self.state.is_tagged() {
                if self.state.is_match() {
                    // The engine tells of a match one byte late.
                    self.end = Some(self.fed);
                } else {
                    self.is_done = true;
                }
            }
            self.fed += 1;
        }
        Ok(())
    }

    /// Whether a match was seen; more bytes may make it longer, never shorter.
    pub(super) const fn has_match(&self) -> bool {
        self.end.is_some()
    }

    /// Where the first match ends, as far as the bytes so far tell.
    /// - `is_end`: nothing follows, ever.
    pub(super) fn settle(&mut self, is_end: bool) -> Option<u64> {
        if self.is_done || (self.pattern.looks_ahead && !is_end) {
            return self.end;
        }
        if self.ends_here() { Some(self.fed) } else { self.end }
    }

    /// Whether a match ends behind the last byte. Does not move on: its state stays good.
    fn ends_here(&mut self) -> bool {
        let keeping = &self.pattern.forward_keeping;
        let state = match keeping.next_eoi_state(&mut self.cache, self.state) {
            Ok(state) => Ok(state),
            // With a full cache the engine would forget the state: a copy of it may.
            Err(_full) => {
                let mut copy = self.cache.clone();
                self.pattern.forward.next_eoi_state(&mut copy, self.state)
            }
        };
        state.is_ok_and(|state| state.is_match())
    }
}

/// The search for the beginning of a match whose end is known.
#[derive(Debug)]
pub(super) struct Backwards {
    dfa: DFA,
    cache: Box<Cache>,
    state: LazyStateID,
    fed: u64,
    start: Option<u64>,
    is_done: bool,
}

impl Backwards {
    /// - `next`: the byte behind the match, if there is one.
    /// # Errors
    /// [`Stuck`] is a bug.
    pub(super) fn new(pattern: &Pattern, next: Option<u8>) -> Result<Self, Stuck> {
        let dfa = pattern.backward.clone();
        let mut cache = Box::new(dfa.create_cache());
        let state = first_state(&dfa, &mut cache, Anchored::Yes, next)?;
        Ok(Self { dfa, cache, state, fed: 0, start: None, is_done: false })
    }

    /// Takes the bytes directly before those it was given. True: it needs no more.
    /// # Errors
    /// [`Stuck`] is a bug.
    pub(super) fn feed(&mut self, bytes: &[u8]) -> Result<bool, Stuck> {
        for &byte in bytes.iter().rev() {
            if self.is_done {
                break;
            }
            let next = self.dfa.next_state(&mut self.cache, self.state, byte);
            self.state = next.map_err(|_full| Stuck)?;
            if self.state.is_tagged() {
                if self.state.is_match() {
                    self.start = Some(self.fed);
                } else {
                    self.is_done = true;
                }
            }
            self.fed += 1;
        }
        Ok(self.is_done)
    }

    /// How many bytes before its end the match begins, when nothing lies before what was fed.
    pub(super) fn finish(mut self) -> u64 {
        let state = self.dfa.next_eoi_state(&mut self.cache, self.state);
        let reaches = !self.is_done && state.is_ok_and(|state| state.is_match());
        if reaches { self.fed } else { self.start.unwrap_or(0) }
    }
}

fn first_state(
    dfa: &DFA,
    cache: &mut Cache,
    anchored: Anchored,
    neighbour: Option<u8>,
) -> Result<LazyStateID, Stuck> {
    let config = start::Config::new().anchored(anchored).look_behind(neighbour);
    dfa.start_state(cache, &config).map_err(|_full| Stuck)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Where the first match is, fed in pieces of `piece` bytes.
    fn find(pattern: &str, bytes: &[u8], piece: usize, is_end: bool) -> Option<(u64, u64)> {
        let pattern = Pattern::new(pattern).unwrap();
        let mut scanner = Scanner::new(pattern.clone()).unwrap();
        for part in bytes.chunks(piece) {
            scanner.feed(part).unwrap();
            let _ = scanner.settle(false);
        }
        let end = scanner.settle(is_end)?;
        let at = usize::try_from(end).unwrap();
        let mut search = Backwards::new(&pattern, bytes.get(at).copied()).unwrap();
        for part in bytes[..at].rchunks(piece) {
            if search.feed(part).unwrap() {
                break;
            }
        }
        Some((end - search.finish(), end))
    }

    #[test]
    fn a_match_is_found_however_the_bytes_are_cut() {
        for piece in [1, 2, 3, 7, 100] {
            let found = |pattern, text: &str| find(pattern, text.as_bytes(), piece, false);
            assert_eq!(found("lis+tening", "now lissstening on"), Some((4, 15)));
            assert_eq!(found("port=([0-9]+)", "port=8080"), Some((0, 9)), "as much as is there");
            assert_eq!(found("^b", "ab\nb"), Some((3, 4)));
            assert_eq!(found("^b", "ab\rb"), Some((3, 4)));
            assert_eq!(found("a$", "ab\na\r\n"), Some((3, 4)));
            assert_eq!(found(r"\bPassword: ", "Your Password: "), Some((5, 15)));
            assert_eq!(found(r"\x00.", "a\0b"), Some((1, 3)));
            assert_eq!(found("(?i)\u{e9}t\u{e9}", "l'\u{c9}T\u{c9}"), Some((2, 7)));
            assert_eq!(found("", "abc"), Some((0, 0)));
            assert_eq!(found("x", "abc"), None);
        }
    }

    #[test]
    fn what_may_still_be_undone_is_no_match_yet() {
        for pattern in ["ready$", r"ready\b"] {
            assert_eq!(find(pattern, b"ready", 2, false), None, "{pattern}");
            assert_eq!(find(pattern, b"ready", 2, true), Some((0, 5)), "{pattern}");
            assert_eq!(find(pattern, b"ready\n", 2, false), Some((0, 5)), "{pattern}");
            assert_eq!(find(pattern, b"readyness", 2, true), None, "{pattern}");
        }
    }

    #[test]
    fn bytes_that_are_no_text_are_matched_as_they_are() {
        assert_eq!(find(r"(?-u)\xff.\xfe", b"a\xff\xfd\xfe", 1, false), Some((1, 4)));
    }

    #[test]
    fn a_pattern_that_is_none_or_too_large_is_refused_in_one_line() {
        for (pattern, reason) in [
            ("a(", "is no pattern: unclosed group"),
            ("a{3,1}", "is no pattern: invalid repetition count range"),
            (r"(\w{100}){100}", "is larger than 1 MiB once compiled"),
            (r"(a)\1", "is no pattern: backreferences are not supported"),
        ] {
            let told = Pattern::new(pattern).unwrap_err();
            assert!(told.starts_with(reason) && !told.contains('\n'), "{pattern}: {told}");
        }
    }

    /// Nested repetitions, which make other engines take for ever.
    #[test]
    fn a_pattern_takes_time_in_proportion_to_the_bytes_only() {
        let text = "a".repeat(100_000);
        assert_eq!(find("(a+)+(a*)*$x|b", text.as_bytes(), 1000, true), None);
    }

    #[test]
    fn a_state_survives_what_its_engine_forgets() {
        // More states than the cache holds, one for each set of open places.
        let pattern = "[ab]*a[ab]{14}c";
        let mut seed = 7_u32;
        let mut text: Vec<u8> = (0..60_000)
            .map(|_| {
                seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                if seed >> 31 == 0 { b'a' } else { b'b' }
            })
            .collect();
        text.extend(b"aaaaaaaaaaaaaaac");
        let end = u64::try_from(text.len()).unwrap();
        assert_eq!(find(pattern, &text, 13, false), Some((0, end)));
    }

    proptest! {
        #[test]
        fn any_cut_finds_what_the_whole_has(
            pattern in prop::sample::select(vec!["a+b", "(ab|ba)+", "b.*a", "^a", "a$", r"\bab", "[^a]b{2,3}", "a|ab|abc"]),
            text in "[ab \r\n]{0,40}",
            piece in 1_usize..8,
        ) {
            let whole = find(pattern, text.as_bytes(), usize::MAX, true);
            let cut = find(pattern, text.as_bytes(), piece, true);
            // A wait ends at the first match that is sure: it may be shorter, never another one.
            prop_assert_eq!(whole.is_some(), cut.is_some());
            prop_assert_eq!(whole.map(|(start, _)| start), cut.map(|(start, _)| start));
        }
    }
}
