//! Every command of OPERATIONS.md is run as it stands there.

use std::path::Path;

use procd_tests::{Setup, Tier, binaries, run};

/// The shell blocks of the page that are meant for any machine, in their order: the same shell runs
/// them all, so that what one starts the next one finds.
fn blocks() -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let page = std::fs::read_to_string(root.join("docs/OPERATIONS.md")).unwrap();
    let of_shell = |block: &str| block.split_once("\n```").map(|(text, _)| text.to_owned());
    page.split("```sh\n").skip(1).filter_map(of_shell).collect()
}

#[test]
fn every_command_of_the_page_works_as_it_is_written() {
    let daemon = Setup::new(Tier::Shim).prepare();
    let blocks = blocks();
    assert!(blocks.len() >= 8, "the page has its commands in blocks");
    let script = format!("set -eu\n{}\n", blocks.join("\n"));
    let mut command = binaries::command("bash");
    command.args(["-c", &script]).envs(daemon.places()).current_dir(daemon.cwd());
    command.env("PATH", format!("{}:/usr/bin:/bin", binaries::folder().display()));
    command.env("HOME", daemon.path());
    let finished = run::finish(command, b"", run::LONG);
    assert_eq!(
        finished.code,
        Some(0),
        "{}\n{}",
        finished.text(),
        String::from_utf8_lossy(&finished.stderr)
    );
    // The page names no command of procctl that there is not.
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let page = std::fs::read_to_string(root.join("docs/OPERATIONS.md")).unwrap();
    for verb in page.split("`procctl ").skip(1).filter_map(|rest| rest.split([' ', '`']).next()) {
        let help = run::ctl(&daemon, &[verb, "--help"]);
        assert_eq!(help.code, Some(0), "the page names `procctl {verb}`");
    }
}
