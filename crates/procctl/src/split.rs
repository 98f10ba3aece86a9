//! Splits pages of combined output into the two streams they came from. Pure: knows no socket.
//!
//! A page is a run of bytes with tagged cursor ranges. What no tag covers is `mixed`: it came from
//! a merged stream, or its tag was dropped by the bound of the tag index. Such bytes belong to
//! stdout here, so that none is ever lost.

/// The two streams of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stream {
    /// Descriptor 1, and what has no tag.
    Stdout,
    /// Descriptor 2.
    Stderr,
}

/// Bytes `start..end` of the combined output came from `stream`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tag {
    /// Cursor of the first byte.
    pub(crate) start: u64,
    /// Cursor after the last byte.
    pub(crate) end: u64,
    /// Where they came from.
    pub(crate) stream: Stream,
}

/// The page `bytes`, which begins at cursor `from`, as pieces in their order: joined they are the
/// page. Tags may reach over either edge of the page; neighbours of one stream become one piece.
/// - `tags`: in rising order; one that overlaps the one before it counts from that one's end on.
pub(crate) fn split<'page>(
    from: u64,
    bytes: &'page [u8],
    tags: &[Tag],
) -> Vec<(Stream, &'page [u8])> {
    let mut pieces = Pieces { bytes, done: 0, open: None, list: Vec::new() };
    for tag in tags {
        let start = offset(from, tag.start, bytes.len());
        let end = offset(from, tag.end, bytes.len());
        pieces.reach(start, Stream::Stdout);
        pieces.reach(end, tag.stream);
    }
    pieces.reach(bytes.len(), Stream::Stdout);
    pieces.close();
    pieces.list
}

/// Where `cursor` lies in a page of `len` bytes that begins at `from`, kept inside it.
fn offset(from: u64, cursor: u64, len: usize) -> usize {
    usize::try_from(cursor.saturating_sub(from)).map_or(len, |offset| offset.min(len))
}

struct Pieces<'page> {
    bytes: &'page [u8],
    /// Bytes in closed pieces and the open one.
    done: usize,
    /// Stream and start of the piece that grows.
    open: Option<(Stream, usize)>,
    list: Vec<(Stream, &'page [u8])>,
}

impl Pieces<'_> {
    /// Gives what lies between the last piece and `end` to `stream`.
    fn reach(&mut self, end: usize, stream: Stream) {
        if end <= self.done {
            return;
        }
        if self.open.is_none_or(|(open, _)| open != stream) {
            self.close();
            self.open = Some((stream, self.done));
        }
        self.done = end;
    }

    fn close(&mut self) {
        if let Some((stream, start)) = self.open.take()
            && let Some(piece) = self.bytes.get(start..self.done)
        {
            self.list.push((stream, piece));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn tag(start: u64, end: u64, stream: Stream) -> Tag {
        Tag { start, end, stream }
    }

    #[test]
    fn untagged_bytes_go_to_stdout() {
        assert_eq!(split(7, b"abc", &[]), [(Stream::Stdout, b"abc".as_slice())]);
        assert!(split(7, b"", &[tag(7, 9, Stream::Stderr)]).is_empty());
    }

    #[test]
    fn tags_that_reach_over_the_page_are_cut_to_it() {
        let tags = [tag(0, 12, Stream::Stderr), tag(12, 100, Stream::Stdout)];
        let expected = [(Stream::Stderr, b"ab".as_slice()), (Stream::Stdout, b"cd".as_slice())];
        assert_eq!(split(10, b"abcd", &tags), expected);
    }

    #[test]
    fn a_tag_outside_the_page_or_turned_around_changes_nothing() {
        let tags = [tag(0, 3, Stream::Stderr), tag(13, 11, Stream::Stderr)];
        let joined: Vec<u8> =
            split(10, b"abcd", &tags).iter().flat_map(|(_, piece)| piece.to_vec()).collect();
        assert_eq!(joined, b"abcd");
    }

    /// Chunks as a drain would tag them: lengths and sources.
    fn chunks() -> impl Strategy<Value = Vec<(Vec<u8>, bool)>> {
        prop::collection::vec((prop::collection::vec(any::<u8>(), 1..40), any::<bool>()), 0..30)
    }

    proptest! {
        #[test]
        fn any_page_split_gives_the_same_two_streams(
            chunks in chunks(),
            cuts in prop::collection::vec(1_usize..50, 1..60),
            origin in 0_u64..1_000_000,
        ) {
            let (mut all, mut tags, mut expected) = (Vec::new(), Vec::new(), [Vec::new(), Vec::new()]);
            let mut at = origin;
            for (bytes, is_stderr) in &chunks {
                let end = at + bytes.len() as u64;
                let stream = if *is_stderr { Stream::Stderr } else { Stream::Stdout };
                tags.push(tag(at, end, stream));
                expected[usize::from(*is_stderr)].extend_from_slice(bytes);
                all.extend_from_slice(bytes);
                at = end;
            }
            let (mut got, mut done) = ([Vec::new(), Vec::new()], 0);
            for cut in cuts.iter().cycle() {
                if done == all.len() {
                    break;
                }
                let end = (done + cut).min(all.len());
                let from = origin + done as u64;
                // A page carries the tags that touch it, cut to it or not.
                let touching: Vec<Tag> = tags
                    .iter()
                    .filter(|tag| tag.end > from && tag.start < origin + end as u64)
                    .copied()
                    .collect();
                for (stream, piece) in split(from, &all[done..end], &touching) {
                    got[usize::from(stream == Stream::Stderr)].extend_from_slice(piece);
                }
                done = end;
            }
            prop_assert_eq!(got, expected);
        }
    }
}
