//! Output whose every byte tells its offset: lines of 16 bytes, each the number of its line.

/// Bytes of a line, its line end included.
pub const LINE_BYTES: u64 = 16;

/// The bytes of the pattern from offset `from` on.
/// # Panics
/// When a length does not fit memory.
#[must_use]
#[expect(clippy::expect_used, reason = "this is how a test fails")]
pub fn bytes(from: u64, count: u64) -> Vec<u8> {
    let (first, end) = (from / LINE_BYTES, from + count);
    let lines = first..end.div_ceil(LINE_BYTES);
    let text: Vec<u8> = lines.flat_map(|line| format!("{line:015}\n").into_bytes()).collect();
    let start = usize::try_from(from % LINE_BYTES).expect("an offset in a line");
    let count = usize::try_from(count).expect("a count that fits");
    text.get(start..start + count).expect("enough lines").to_vec()
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_cut_is_the_same_part_of_the_whole() {
        let whole = super::bytes(0, 100);
        for from in 0..100_u8 {
            let part = super::bytes(from.into(), 100 - u64::from(from));
            assert_eq!(part, whole[usize::from(from)..]);
        }
    }
}
