//! The closing of everything that is written as JSON: `...,"crc":"xxxxxxxx"}`. The CRC32C, in 8
//! hex digits, is that of the bytes before `,"crc":`.

use serde::Serialize;

use crate::error::StoreError;

/// Between the body and the digits.
const OPENING: &[u8] = b",\"crc\":\"";
/// After the digits.
const ENDING: &[u8] = b"\"}";
/// Hex digits of a CRC32C.
const DIGITS: usize = 8;
/// Bytes of the whole closing.
const CLOSING_BYTES: usize = OPENING.len() + DIGITS + ENDING.len();

/// Closes a JSON object that was written without its last brace, and ends the line.
pub(crate) fn close(body: &mut Vec<u8>) {
    let crc = crc32c::crc32c(body);
    body.extend_from_slice(OPENING);
    body.extend_from_slice(format!("{crc:08x}").as_bytes());
    body.extend_from_slice(ENDING);
    body.push(b'\n');
}

/// A struct with one member at least, as a closed line.
pub(crate) fn encode(what: &'static str, object: &impl Serialize) -> Result<Vec<u8>, StoreError> {
    let mut body =
        serde_json::to_vec(object).map_err(|source| StoreError::Encode { what, source })?;
    body.pop();
    close(&mut body);
    Ok(body)
}

/// Whether `line` (without its line feed) closes with the CRC of what is before it.
pub(crate) fn check(line: &[u8]) -> Result<(), &'static str> {
    let at = line.len().checked_sub(CLOSING_BYTES).ok_or("it is too short")?;
    let (body, closing) = line.split_at(at);
    let digits = closing
        .strip_prefix(OPENING)
        .and_then(|rest| rest.strip_suffix(ENDING))
        .ok_or("it does not close with a crc")?;
    // Compared as text, so that each line has one form only.
    if format!("{:08x}", crc32c::crc32c(body)).as_bytes() == digits {
        Ok(())
    } else {
        Err("its crc does not fit")
    }
}

/// The one line of a file that holds one object.
pub(crate) fn only_line(bytes: &[u8]) -> Result<&[u8], &'static str> {
    if bytes.is_empty() {
        return Err("it is empty");
    }
    let line = bytes.strip_suffix(b"\n").ok_or("it does not end with a line feed")?;
    check(line)?;
    Ok(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_object_is_json_and_no_flipped_bit_is_taken() {
        let mut line = b"{\"v\":1".to_vec();
        close(&mut line);
        assert_eq!(serde_json::from_slice::<serde_json::Value>(&line).unwrap()["v"], 1);
        assert!(only_line(&line).is_ok());
        for at in 0..line.len() {
            for bit in 0..8 {
                let mut bad = line.clone();
                bad[at] ^= 1 << bit;
                assert!(only_line(&bad).is_err(), "byte {at} bit {bit}");
            }
            assert!(only_line(&line[..at]).is_err());
        }
    }
}
