//! Frames: a 4-byte big-endian length, then that many bytes. Works on buffers only; who reads and
//! writes sockets wraps it.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::limits::{FRAME_BYTES_MAX, FRAME_HEADER_BYTES};

/// Room made ahead for a frame that is not there yet, bytes.
const READ_AHEAD_BYTES: usize = 64 * 1024;

/// A frame that breaks the rules. The stream cannot be read any further.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// A length of zero.
    #[error("a frame of zero bytes")]
    Empty,
    /// A length beyond [`FRAME_BYTES_MAX`].
    #[error("a frame of {length} bytes, over the {FRAME_BYTES_MAX} allowed")]
    TooLarge {
        /// The length that was announced or asked for, bytes.
        length: u64,
    },
}

/// Takes the next whole frame off the front of `buffer`; `None` when it is not there yet.
///
/// The length is judged before room for it is made, so a hostile length costs nothing.
/// # Errors
/// [`FrameError`]; the buffer is then left as it is.
pub fn decode(buffer: &mut BytesMut) -> Result<Option<Bytes>, FrameError> {
    let Some(header) = buffer.first_chunk::<FRAME_HEADER_BYTES>() else {
        return Ok(None);
    };
    let length = checked(u64::from(u32::from_be_bytes(*header)))?;
    let whole = FRAME_HEADER_BYTES + length;
    if buffer.len() < whole {
        // Room grows with what really comes, not with what a peer announces.
        buffer.reserve((whole - buffer.len()).min(READ_AHEAD_BYTES));
        return Ok(None);
    }
    buffer.advance(FRAME_HEADER_BYTES);
    Ok(Some(buffer.split_to(length).freeze()))
}

/// Appends `payload` as one frame.
/// # Errors
/// [`FrameError`]; nothing is appended then.
pub fn encode(payload: &[u8], buffer: &mut BytesMut) -> Result<(), FrameError> {
    let length = checked(u64::try_from(payload.len()).unwrap_or(u64::MAX))?;
    buffer.reserve(FRAME_HEADER_BYTES + length);
    buffer.put_slice(&header(length));
    buffer.put_slice(payload);
    Ok(())
}

/// Appends what `write` writes as one frame, without a copy: the length is filled in afterwards.
/// # Errors
/// [`EncodeError`]; nothing is appended then.
pub fn encode_with<E>(
    buffer: &mut BytesMut,
    write: impl FnOnce(&mut bytes::buf::Writer<&mut BytesMut>) -> Result<(), E>,
) -> Result<(), EncodeError<E>> {
    let start = buffer.len();
    buffer.put_slice(&[0; FRAME_HEADER_BYTES]);
    let mut writer = (&mut *buffer).writer();
    let written = write(&mut writer).map_err(EncodeError::Payload);
    let length = buffer.len() - start - FRAME_HEADER_BYTES;
    let length = written.and_then(|()| {
        checked(u64::try_from(length).unwrap_or(u64::MAX)).map_err(EncodeError::Frame)
    });
    match length {
        Ok(length) => {
            buffer[start..start + FRAME_HEADER_BYTES].copy_from_slice(&header(length));
            Ok(())
        }
        Err(error) => {
            buffer.truncate(start);
            Err(error)
        }
    }
}

/// Why a frame was not encoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError<E> {
    /// The payload could not be written.
    #[error("the payload could not be serialised")]
    Payload(#[source] E),
    /// The payload does not fit a frame.
    #[error(transparent)]
    Frame(FrameError),
}

fn checked(length: u64) -> Result<usize, FrameError> {
    match usize::try_from(length) {
        Ok(0) => Err(FrameError::Empty),
        Ok(fitting) if length <= FRAME_BYTES_MAX => Ok(fitting),
        Ok(_) | Err(_) => Err(FrameError::TooLarge { length }),
    }
}

/// The header of a length that was checked: it fits 32 bits.
fn header(length: usize) -> [u8; FRAME_HEADER_BYTES] {
    u32::try_from(length).unwrap_or(0).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_zero_length_and_one_over_the_cap_are_refused_before_room_is_made() {
        let mut buffer = BytesMut::from(&[0, 0, 0, 0][..]);
        assert_eq!(decode(&mut buffer), Err(FrameError::Empty));
        let over = u32::try_from(FRAME_BYTES_MAX).unwrap() + 1;
        for length in [over, u32::MAX] {
            let mut buffer = BytesMut::from(&length.to_be_bytes()[..]);
            let capacity = buffer.capacity();
            let error = FrameError::TooLarge { length: u64::from(length) };
            assert_eq!(decode(&mut buffer), Err(error));
            assert_eq!(buffer.capacity(), capacity);
        }
        let mut buffer = BytesMut::from(&(over - 1).to_be_bytes()[..]);
        assert_eq!(decode(&mut buffer), Ok(None));
    }

    #[test]
    fn a_payload_over_the_cap_or_empty_is_not_encoded() {
        let mut buffer = BytesMut::new();
        assert_eq!(encode(&[], &mut buffer), Err(FrameError::Empty));
        let big = vec![b' '; usize::try_from(FRAME_BYTES_MAX).unwrap() + 1];
        assert!(matches!(encode(&big, &mut buffer), Err(FrameError::TooLarge { .. })));
        let refused = encode_with(&mut buffer, |to| std::io::Write::write_all(to, &big));
        assert!(matches!(refused, Err(EncodeError::Frame(FrameError::TooLarge { .. }))));
        assert!(buffer.is_empty());
        encode(&big[1..], &mut buffer).unwrap();
        assert_eq!(decode(&mut buffer).unwrap().unwrap().len(), big.len() - 1);
    }

    proptest! {
        #[test]
        fn frames_come_back_however_the_stream_is_cut(
            payloads in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..300), 0..8),
            cut in 1usize..50,
        ) {
            let mut wire = BytesMut::new();
            for (index, payload) in payloads.iter().enumerate() {
                if index % 2 == 0 {
                    encode(payload, &mut wire).unwrap();
                } else {
                    encode_with(&mut wire, |to| std::io::Write::write_all(to, payload)).unwrap();
                }
            }
            let mut buffer = BytesMut::new();
            let mut seen = Vec::new();
            for chunk in wire.chunks(cut) {
                buffer.put_slice(chunk);
                while let Some(frame) = decode(&mut buffer).unwrap() {
                    seen.push(frame.to_vec());
                }
            }
            prop_assert!(buffer.is_empty());
            prop_assert_eq!(seen, payloads);
        }

        #[test]
        fn random_bytes_never_panic_and_never_grow_past_one_frame(
            bytes in prop::collection::vec(any::<u8>(), 0..200)
        ) {
            let mut buffer = BytesMut::from(&bytes[..]);
            while let Ok(Some(frame)) = decode(&mut buffer) {
                prop_assert!(!frame.is_empty() && frame.len() <= bytes.len());
            }
        }
    }
}
