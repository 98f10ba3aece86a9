//! Damage of the log's files: exactly what was hit is lost, and it is told.

use super::*;
use crate::testing::files;

/// A log of one part with `batches` batches of one session, one process each.
fn written(folder: &StateFolder, batches: u32) -> (PathBuf, Vec<u8>) {
    let (log, _) = open(folder);
    for number in 0..batches {
        commit(&log, vec![LogRecord::process(&starting(0, number))]);
    }
    drop(log);
    let part = parts_of(folder).pop().unwrap();
    let bytes = std::fs::read(&part).unwrap();
    (part, bytes)
}

/// Reads the log with `bytes` as its only part; the numbers that count, and the damages.
fn read_with(folder: &StateFolder, part: &PathBuf, bytes: &[u8]) -> (Vec<u64>, Vec<Damage>) {
    for other in parts_of(folder) {
        std::fs::remove_file(other).unwrap();
    }
    std::fs::write(part, bytes).unwrap();
    let replay = replay::read(folder).unwrap();
    (replay.records.iter().map(|held| held.seq).collect(), replay.damage)
}

use crate::damage::Damage;

fn lines(bytes: &[u8]) -> Vec<&[u8]> {
    bytes.split_inclusive(|&byte| byte == b'\n').collect()
}

#[test]
fn a_line_cut_anywhere_loses_its_batch_only() {
    let temp = Temp::new();
    let folder = temp.state();
    let (part, bytes) = written(&folder, 3);
    let lines = lines(&bytes);
    let line_len = lines[1].len();
    for keep in 0..line_len {
        let kept = &lines[1][..keep];
        // In the middle, with and without its line feed.
        for end in [&b""[..], b"\n"] {
            let cut = [lines[0], kept, end, lines[2]].concat();
            let (seqs, damage) = read_with(&folder, &part, &cut);
            let is_whole = keep == line_len - 1;
            let wanted = if is_whole { vec![1, 2, 3] } else { vec![1, 3] };
            assert_eq!(seqs, wanted, "{keep} bytes kept");
            let is_told = damage.len() == 1;
            assert!(is_told || is_whole || keep == 0, "{keep} bytes kept: {damage:?}");
        }
        // At the end: cut off.
        let (seqs, damage) = read_with(&folder, &part, &[lines[0], kept].concat());
        let is_whole = keep == line_len - 1;
        assert_eq!(seqs, if is_whole { vec![1, 2] } else { vec![1] });
        assert_eq!(damage.is_empty(), keep == 0 || is_whole);
        if !is_whole {
            assert_eq!(std::fs::read(&part).unwrap(), lines[0]);
        }
        let (again, damage) = read_with(&folder, &part, &std::fs::read(&part).unwrap());
        assert_eq!((again, damage), (seqs, vec![]));
    }
}

#[test]
fn a_flipped_bit_loses_its_batch_only() {
    let temp = Temp::new();
    let folder = temp.state();
    let (part, bytes) = written(&folder, 3);
    let lines = lines(&bytes);
    let (from, to) = (lines[0].len(), lines[0].len() + lines[1].len());
    for at in from..to {
        let mut bad = bytes.clone();
        bad[at] ^= 1 << (at % 8);
        let (seqs, damage) = read_with(&folder, &part, &bad);
        // A damaged line feed hits no batch.
        let wanted = if at == to - 1 { vec![1, 2, 3] } else { vec![1, 3] };
        assert_eq!(seqs, wanted, "byte {at}");
        assert_eq!(damage.is_empty(), at == to - 1, "byte {at}: {damage:?}");
        assert_eq!(std::fs::read(&part).unwrap(), bad, "only an end is cut off");
    }
    let copies = files(&folder.quarantine_path());
    assert!(copies.iter().any(|name| name.ends_with(".reason")), "{copies:?}");
}

#[test]
fn a_flipped_bit_in_the_last_line_is_cut_off_and_told() {
    let temp = Temp::new();
    let folder = temp.state();
    let (part, bytes) = written(&folder, 2);
    let first = lines(&bytes)[0].len();
    for at in (first..bytes.len() - 1).step_by(7) {
        let mut bad = bytes.clone();
        bad[at] ^= 0x04;
        let (seqs, damage) = read_with(&folder, &part, &bad);
        assert_eq!((seqs, damage.len()), (vec![1], 1), "byte {at}");
        assert_eq!(std::fs::metadata(&part).unwrap().len(), u64::try_from(first).unwrap());
    }
}

#[test]
fn numbers_are_not_given_again_after_damage() {
    let temp = Temp::new();
    let folder = temp.state();
    let (part, bytes) = written(&folder, 3);
    std::fs::write(&part, &bytes[..bytes.len() - 5]).unwrap();
    let (log, replay) = open(&folder);
    assert_eq!((replay.records.len(), replay.damage.len()), (2, 1));
    assert!(log.last_seq(session_id(0)) > 3);
    drop(log);
    let (log, replay) = open(&folder);
    assert!(replay.damage.is_empty());
    assert_eq!(log.last_seq(session_id(0)), 2);
}

#[test]
fn a_whole_line_of_a_newer_version_stays_and_the_rest_counts() {
    let temp = Temp::new();
    let folder = temp.state();
    let (part, bytes) = written(&folder, 2);
    let mut newer = b"{\"v\":2,\"records\":[{\"more\":true}]".to_vec();
    crate::closed::close(&mut newer);
    let all = [&bytes[..], &newer].concat();
    std::fs::write(&part, &all).unwrap();
    let (log, replay) = open(&folder);
    assert_eq!((replay.records.len(), replay.damage.len()), (2, 1));
    assert!(replay.damage[0].reason.contains("newer"));
    let (done, wait) = answer();
    log.start_part(vec![], done);
    wait().unwrap();
    assert_eq!(std::fs::read(&part).unwrap(), all, "no snapshot drops it");
}

#[test]
fn a_line_with_a_good_crc_and_wrong_content_is_damage() {
    let temp = Temp::new();
    let folder = temp.state();
    let (part, bytes) = written(&folder, 1);
    let text = String::from_utf8(bytes.clone()).unwrap();
    let body = &text[..text.rfind(",\"crc\"").unwrap()];
    for (from, to) in [
        ("\"seq\":1", "\"seq\":0"),
        ("\"kind\":\"process\"", "\"kind\":\"event\""),
        ("\"kind\":\"process\"", "\"kind\":\"other\""),
        ("\"payload\":{", "\"payload\":{\"smuggled\":1,"),
        ("\"seq\":1", "\"seq\":1,\"smuggled\":1"),
        ("\"total_bytes\":0", "\"total_bytes\":-1"),
        ("\"retained_from\":0", "\"retained_from\":1"),
        ("{\"v\":1", "{\"v\":0"),
    ] {
        assert!(body.contains(from), "{from}");
        let mut bad = body.replacen(from, to, 1).into_bytes();
        crate::closed::close(&mut bad);
        let (seqs, damage) = read_with(&folder, &part, &[&bad[..], &bytes].concat());
        assert_eq!((seqs, damage.len()), (vec![1], 1), "{to}");
    }
}

#[test]
fn a_folder_a_link_and_foreign_files_in_place_of_parts_are_set_aside() {
    let temp = Temp::new();
    let folder = temp.state();
    let (part, _) = written(&folder, 2);
    let commit_path = folder.commit_path();
    std::fs::create_dir(commit_path.join(parts::name(8))).unwrap();
    std::os::unix::fs::symlink(&part, commit_path.join(parts::name(9))).unwrap();
    std::fs::write(commit_path.join("notes.txt"), b"hello").unwrap();
    std::fs::write(commit_path.join(".new-x"), b"left").unwrap();
    let (log, replay) = open(&folder);
    assert_eq!((replay.records.len(), replay.damage.len()), (2, 3));
    assert_eq!(parts_of(&folder), vec![part.clone()]);
    commit(&log, vec![LogRecord::process(&starting(0, 9))]);
    drop(log);
    assert!(open(&folder).1.damage.is_empty());
    // Empty: as if it were not there.
    std::fs::write(&part, b"").unwrap();
    let replay = open(&folder).1;
    assert_eq!((replay.records.len(), replay.damage.len()), (1, 0));
}
