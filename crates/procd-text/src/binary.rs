//! Whether output is of any use as text.

/// Fewer bytes than this say nothing by their distribution.
const ENTROPY_BYTES_MIN: usize = 256;
/// Bits per byte from which on bytes are taken for compressed, encrypted or random ones.
const ENTROPY_BITS_MIN: f64 = 7.5;
/// One NUL in this many bytes is still text.
const NUL_SHARE: usize = 100;

/// Whether `raw` looks binary: over 1 % NUL, or at least 256 bytes with at least 7.5 bits of entropy per byte.
#[must_use]
pub fn is_binary(raw: &[u8]) -> bool {
    let many_nul = nuls(raw).saturating_mul(NUL_SHARE) > raw.len();
    // 128 different bytes have at most 7 bits of entropy each: ASCII needs no count of its own.
    let may_be_dense = raw.len() >= ENTROPY_BYTES_MIN && !raw.is_ascii();
    many_nul || (may_be_dense && entropy_bits(&histogram(raw)) >= ENTROPY_BITS_MIN)
}

/// NULs in `raw`: counted in bytes over stretches short enough for one, which compiles to vectors.
fn nuls(raw: &[u8]) -> usize {
    let in_stretch = |part: &[u8]| part.iter().fold(0_u8, |sum, &byte| sum + u8::from(byte == 0));
    raw.chunks(usize::from(u8::MAX)).map(|part| usize::from(in_stretch(part))).sum()
}

/// How often each byte is there. Four counts by turns: one alone would wait for its own last
/// store wherever a byte is repeated.
fn histogram(raw: &[u8]) -> [u32; 256] {
    let mut lanes = [[0_u32; 256]; 4];
    for four in raw.chunks(4) {
        for (lane, &byte) in lanes.iter_mut().zip(four) {
            if let Some(count) = lane.get_mut(usize::from(byte)) {
                *count = count.saturating_add(1);
            }
        }
    }
    let [mut counts, others @ ..] = lanes;
    for lane in others {
        counts.iter_mut().zip(lane).for_each(|(count, more)| *count = count.saturating_add(more));
    }
    counts
}

/// Shannon entropy in bits per byte.
fn entropy_bits(counts: &[u32; 256]) -> f64 {
    let total: f64 = counts.iter().map(|&count| f64::from(count)).sum();
    let term = |&count: &u32| {
        let share = f64::from(count) / total;
        -share * share.log2()
    };
    counts.iter().filter(|&&count| count > 0).map(term).sum()
}
