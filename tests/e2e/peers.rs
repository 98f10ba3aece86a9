//! Who may connect: not what is supervised, however it detaches, unless its start allowed it; not another user; nobody of whom
//! it cannot be told. Source: spec, protocol, *Who may connect*; law 11.

use std::{
    fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::Path,
    time::Duration,
};

use procd_tests::{Daemon, Setup, Tier, Wire, binaries, wait};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

const LIMIT: Duration = Duration::from_secs(60);
/// A user that nobody is.
const UID: u32 = 61_235;

/// What a probe that connected was told.
fn answers(file: &Path) -> String {
    wait::until("the probe's answers", LIMIT, || fs::read_to_string(file).ok())
}

both_tiers! {
    /// The child itself, one deeper, and a grandchild that forked twice, has a session of its own and nobody's streams, and whose
    /// parent is gone.
    fn what_is_supervised_is_refused_however_it_detaches(tier) {
        let daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        let socket = daemon.socket().to_string_lossy().into_owned();
        let probe = binaries::probe();
        let file = |name: &str| daemon.path().join(name).to_string_lossy().into_owned();
        let (child, deeper, detached) = (file("child"), file("deeper"), file("detached"));
        let line = format!("{probe} client {socket} {deeper}; :");
        let cases: [(&str, &[&str]); 3] = [
            (&child, &[&probe, "client", &socket, &child]),
            (&deeper, &["sh", "-c", &line]),
            (&detached, &[&probe, "client-detached", &socket, &detached]),
        ];
        for (told, argv) in cases {
            owner.start(argv, json!({"background": true, "on_leader_exit": "keep_tree"}));
            assert_eq!(answers(told.as_ref()), "permission_denied", "{told}");
        }
        // Nobody else is any worse off.
        drop(daemon.operator());
    }

    fn a_start_may_allow_it_as_an_owner_and_no_more(tier) {
        let daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        let socket = daemon.socket().to_string_lossy().into_owned();
        let probe = binaries::probe();
        for verb in ["client", "client-detached"] {
            let file = daemon.path().join(verb);
            let argv = [&*probe, verb, &socket, &file.to_string_lossy()].map(str::to_owned);
            let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
            let more = json!({"background": true, "on_leader_exit": "keep_tree", "allow_client": true});
            owner.start(&argv, more);
            assert_eq!(answers(&file), "ok permission_denied ok", "{verb}");
        }
        // What it allows is its own: another tree beside it is refused as before.
        let file = daemon.path().join("other");
        let keeps = json!({"background": true, "allow_client": true});
        owner.start(&[&probe, "sleep", "600"], keeps);
        owner.start(&[&probe, "client", &socket, &file.to_string_lossy()], json!({"background": true}));
        assert_eq!(answers(&file), "permission_denied");
    }
}

/// Who connected is gone, and its descriptor is another's: it cannot be told what it was. Refused while something runs that it may
/// have been of, admitted else.
#[test]
fn one_that_vanished_is_refused_while_something_runs() {
    let daemon = Setup::new(Tier::Shim).start();
    let mut owner = daemon.owner();
    let vanished = |name: &str| {
        let file = daemon.path().join(name);
        let own = i32::try_from(daemon.pid()).ok().and_then(Pid::from_raw).unwrap();
        kill_process(own, Signal::STOP).unwrap();
        let mut command = daemon.command(&binaries::probe());
        let status = command.arg("hand-over").arg(daemon.socket()).arg(&file).status();
        kill_process(own, Signal::CONT).unwrap();
        assert!(status.unwrap().success());
        answers(&file)
    };
    assert_eq!(vanished("idle"), "ok ok permission_denied");
    let process = owner.background(&[&binaries::probe(), "sleep", "600"]);
    assert_eq!(vanished("running"), "permission_denied");
    owner.wire.ok("process/stop", json!({"process_id": process, "mode": "kill"}));
    wait::until_true("admitted again", LIMIT, || vanished("ended") == "ok ok permission_denied");
}

/// C127. Only for root: the daemon is another user's then.
#[test]
fn another_user_is_refused() {
    if !rustix::process::geteuid().is_root() {
        procd_tests::skip("only root can be another user");
        return;
    }
    let daemon = Setup::new(Tier::Shim).as_user(UID).start();
    // Root may.
    drop(daemon.operator());
    for path in [daemon.path().to_owned(), daemon.socket()] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
    }
    let file = daemon.path().join("told");
    let mut command = daemon.command("sh");
    let other = UID + 1;
    let line =
        format!("exec setpriv --reuid={other} --regid={other} --clear-groups -- \"$0\" \"$@\"");
    command
        .args(["-c", &line])
        .arg(binaries::probe())
        .arg("client")
        .arg(daemon.socket())
        .arg(&file);
    assert!(command.status().unwrap().success());
    assert_eq!(answers(&file), "permission_denied");
}

/// Everything below the folder that is open to others.
fn open_to_others(folder: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        // What is gone again was seen, or will be, under another name.
        let Ok(seen) = fs::symlink_metadata(&path) else { continue };
        if seen.mode() & 0o077 != 0 && !seen.is_symlink() {
            found.push(format!("{} {:o}", path.display(), seen.mode()));
        }
        if seen.is_dir() {
            open_to_others(&path, found);
        }
    }
}

fn is_ready(daemon: &Daemon) -> bool {
    Wire::bare(&daemon.socket()).is_ok_and(|mut wire| wire.hello().is_ok())
}

/// C127, C166. Looked at in a loop from before the daemon is there until it serves, and while it runs commands.
#[test]
fn nothing_is_ever_wider_than_0600_and_0700_whatever_the_umask() {
    for umask in ["000", "077"] {
        let daemon = Setup::new(Tier::Shim).prepare();
        let place = daemon.path().join("closed");
        let log = daemon.path().join("log");
        let mut command = daemon.command("sh");
        command.args(["-c", &format!("umask {umask}; exec \"$0\" 2>\"$1\"")]);
        command.arg(binaries::path("procd")).arg(&log);
        command
            .env("PROCD_SOCKET", place.join("run/sock"))
            .env("PROCD_STATE_DIR", place.join("state"));
        let mut child = command.spawn().unwrap();
        let mut found = Vec::new();
        let mut rounds = 0_u32;
        let wire = wait::until("the daemon serves", LIMIT, || {
            for _ in 0..50 {
                open_to_others(&place, &mut found);
                rounds += 1;
            }
            let mut wire = Wire::bare(&place.join("run/sock")).ok()?;
            wire.hello().ok().map(|_| wire)
        });
        let mut wire = wire;
        wire.ok("session/open", json!({}));
        let params = json!({"command": "echo text; echo more >&2", "cwd": daemon.path()});
        wire.ok("process/start", params);
        open_to_others(&place, &mut found);
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).unwrap();
        kill_process(pid, Signal::TERM).unwrap();
        assert!(child.wait().unwrap().success(), "{:?}", fs::read_to_string(&log));
        open_to_others(&place, &mut found);
        found.sort();
        found.dedup();
        assert!(found.is_empty(), "umask {umask}, {rounds} looks: {found:?}");
        let own = fs::symlink_metadata(&place).unwrap();
        assert_eq!(own.mode() & 0o7777, 0o700, "umask {umask}");
        assert!(!is_ready(&daemon));
    }
}

/// C127. A socket's folder or a state folder that is not ours alone is refused in a sentence that names it.
#[test]
fn a_folder_that_is_foreign_a_link_or_open_is_refused_with_a_sentence() {
    let daemon = Setup::new(Tier::Shim).prepare();
    let at = |name: &str| daemon.path().join(name);
    fs::create_dir(at("real")).unwrap();
    fs::set_permissions(at("real"), fs::Permissions::from_mode(0o700)).unwrap();
    std::os::unix::fs::symlink(at("real"), at("link")).unwrap();
    fs::create_dir(at("group")).unwrap();
    fs::set_permissions(at("group"), fs::Permissions::from_mode(0o750)).unwrap();
    let mut cases = vec![("link", "link"), ("group", "0700")];
    if rustix::process::geteuid().is_root() {
        fs::create_dir(at("foreign")).unwrap();
        fs::set_permissions(at("foreign"), fs::Permissions::from_mode(0o700)).unwrap();
        std::os::unix::fs::chown(at("foreign"), Some(UID), Some(UID)).unwrap();
        cases.push(("foreign", "belongs to"));
    }
    for (name, word) in cases {
        for variable in ["PROCD_SOCKET", "PROCD_STATE_DIR"] {
            let place = if variable == "PROCD_SOCKET" { at(name).join("sock") } else { at(name) };
            let output = daemon
                .command("procd")
                .env(variable, place)
                .stderr(std::process::Stdio::piped())
                .output()
                .unwrap();
            let text = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(1), "{variable} {name}: {text}");
            assert!(text.contains(word) && text.contains(name), "{variable} {name}: {text}");
        }
    }
}
