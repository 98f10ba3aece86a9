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
    let mut counts = [0_u32; 256];
    for &byte in raw {
        if let Some(count) = counts.get_mut(usize::from(byte)) {
            *count = count.saturating_add(1);
        }
    }
    let [nul, ..] = counts;
    let many_nul = usize::try_from(nul).unwrap_or(usize::MAX).saturating_mul(NUL_SHARE) > raw.len();
    many_nul || (raw.len() >= ENTROPY_BYTES_MIN && entropy_bits(&counts) >= ENTROPY_BITS_MIN)
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
