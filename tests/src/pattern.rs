//! Output whose every byte tells its offset: lines of 16 bytes, each the number of its line.

/// Bytes of a line, its line end included.
pub const LINE_BYTES: u64 = 16;

/// The bytes of the pattern from offset `from` on.
/// # Panics
/// When a length does not fit memory.
#[must_use]
#[expect(clippy::expect_used, reason = "this is how a test fails")]
pub fn bytes(from: u64, count: u64) -> Vec<u8> {
    let start = usize::try_from(from % LINE_BYTES).expect("an offset in a line");
    let count = usize::try_from(count).expect("a count that fits");
    let mut line = format!("{:015}\n", from / LINE_BYTES).into_bytes();
    let mut text = Vec::with_capacity(start + count + line.len());
    while text.len() < start + count {
        text.extend_from_slice(&line);
        count_up(&mut line);
    }
    text.get(start..start + count).expect("enough lines").to_vec()
}

/// The next number, in place: a line costs little even in a build without optimisation.
fn count_up(line: &mut [u8]) {
    for digit in line.iter_mut().rev().filter(|digit| **digit != b'\n') {
        if *digit < b'9' {
            *digit += 1;
            return;
        }
        *digit = b'0';
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_cut_is_the_same_part_of_the_whole() {
        let whole = super::bytes(0, 2000);
        assert_eq!(&whole[1600..1616], b"000000000000100\n");
        for from in 0..2000_u16 {
            let part = super::bytes(from.into(), 2000 - u64::from(from));
            assert_eq!(part, whole[usize::from(from)..]);
        }
    }
}
