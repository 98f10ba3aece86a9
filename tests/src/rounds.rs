//! How often a test repeats what it repeats: a sample by itself, as often as wanted by `cargo
//! xtask`.

/// The variable that says how often.
const VARIABLE: &str = "PROCD_TEST_ROUNDS";

/// `sample`, or what the one who started the tests asks for.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "told by xtask")]
pub fn or(sample: usize) -> usize {
    std::env::var(VARIABLE).ok().and_then(|text| text.parse().ok()).unwrap_or(sample)
}
