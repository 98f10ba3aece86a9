//! Enforced access: each access against everything that changes something, inside and outside, through links and bind mounts, from
//! the process and from a grandchild. Source: spec, containment, *Access and limits*.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use procd_tests::{Daemon, Owner, Setup, Tier, binaries, owner::handle, wait};
use serde_json::{Value, json};

const LIMIT: Duration = Duration::from_secs(60);

/// What changes something in one folder.
const INSIDE: &[&str] = &[
    "write", "append", "truncate", "create", "mkdir", "symlink", "fifo", "socket", "rename",
    "link", "remove", "rmdir",
];
/// What goes from one folder to another.
const ACROSS: &[&str] = &["move", "link-out"];

/// Whether this kernel can; says so when not.
pub(crate) fn is_here(daemon: &Daemon) -> bool {
    let mut owner = daemon.owner();
    let claim = json!({"root": daemon.cwd(), "access": "read_only", "enforce": true});
    let params = owner.start_params(&["true"], json!({"workspace": claim, "dry_run": true}));
    match owner.wire.call("process/start", params) {
        Ok(_) => true,
        Err(error) => {
            assert_eq!(error["code"], "lifetime_enforcement_unavailable", "{error}");
            println!("skipped: {}", error["message"]);
            false
        }
    }
}

/// A folder with what the deeds want.
fn furnish(folder: &Path) {
    fs::create_dir_all(folder.join("empty")).unwrap();
    for name in ["file", "a", "gone", "m"] {
        fs::write(folder.join(name), "as it was\n").unwrap();
    }
}

/// Everything below a folder, with its content.
fn seen(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut all = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() && !path.is_symlink() {
            all.extend(seen(&path));
        }
        all.insert(
            path.clone(),
            if path.is_file() { fs::read(&path).unwrap() } else { Vec::new() },
        );
    }
    all
}

/// The deeds that went through, of the process itself and of a grandchild with a POSIX session of its own.
fn done(owner: &mut Owner, claim: &Value, folder: &Path, other: &Path, deep: bool) -> Vec<String> {
    let probe = binaries::probe();
    let (folder, other) = (folder.to_string_lossy(), other.to_string_lossy());
    let direct = [&*probe, "deeds", &folder, &other];
    let line = "(setsid \"$0\" deeds \"$1\" \"$2\"; :); :";
    let below = ["sh", "-c", line, &probe, &folder, &other];
    let argv: &[&str] = if deep { &below } else { &direct };
    let entry = owner.start(argv, json!({"workspace": claim}));
    let text = entry["output"].as_str().unwrap_or_default();
    let all: Vec<_> = text.lines().filter_map(|line| line.split_once(' ')).collect();
    assert_eq!(all.len(), INSIDE.len() + ACROSS.len(), "{entry}");
    let passed = all.iter().filter(|(_, result)| *result == "ok");
    passed.map(|(name, _)| (*name).to_owned()).collect()
}

struct Grid {
    daemon: Daemon,
    workspace: PathBuf,
    outside: PathBuf,
}

impl Grid {
    fn new(tier: Tier) -> Option<Self> {
        let daemon = Setup::new(tier).start();
        if !is_here(&daemon) {
            return None;
        }
        let (workspace, outside) = (daemon.cwd().join("workspace"), daemon.cwd().join("outside"));
        fs::create_dir(&workspace).unwrap();
        fs::create_dir(&outside).unwrap();
        Some(Self { daemon, workspace, outside })
    }

    /// Fresh folders, and what leads from the one into the other.
    fn lay_out(&self) {
        for folder in [&self.workspace, &self.outside] {
            fs::remove_dir_all(folder).unwrap();
            furnish(folder);
            for name in ["named", "other"] {
                furnish(&folder.join(name));
            }
        }
        std::os::unix::fs::symlink(&self.outside, self.workspace.join("way-out")).unwrap();
        std::os::unix::fs::symlink(&self.workspace, self.outside.join("way-in")).unwrap();
    }

    fn claim(&self, access: &str) -> Value {
        let mut claim = json!({"root": self.workspace, "access": access, "enforce": true});
        if access == "scoped_write" {
            claim["paths"] = json!(["named"]);
        }
        claim
    }

    /// Where everything may be done, and where nothing.
    fn places(&self, access: &str) -> (Vec<PathBuf>, Vec<PathBuf>) {
        let at = |path: &str| self.workspace.join(path);
        let out = |path: &str| self.outside.join(path);
        let (mut may, mut may_not) =
            (Vec::new(), vec![out("named"), at("way-out/other"), out(".")]);
        match access {
            "read_only" => may_not.extend([at("named"), at("."), out("way-in/other")]),
            "scoped_write" => {
                may.extend([at("named"), out("way-in/named")]);
                may_not.extend([at("other"), at("."), out("way-in/other")]);
            }
            _ => may.extend([at("named"), at("."), out("way-in/other")]),
        }
        (may, may_not)
    }
}

both_tiers_inside! {
    fn each_access_lets_through_what_it_says_and_nothing_else(tier) {
        let Some(grid) = Grid::new(tier) else { return };
        let mut owner = grid.daemon.owner();
        for access in ["read_only", "scoped_write", "broad_write"] {
            let claim = grid.claim(access);
            let (may, may_not) = grid.places(access);
            for deep in [false, true] {
                for folder in &may {
                    grid.lay_out();
                    let passed = done(&mut owner, &claim, folder, &grid.outside.join("other"), deep);
                    assert_eq!(passed, INSIDE, "{access}, {}, {deep}", folder.display());
                }
                for folder in &may_not {
                    grid.lay_out();
                    let before = (seen(&grid.workspace), seen(&grid.outside));
                    let into = if may.is_empty() { grid.outside.join("other") } else { may[0].clone() };
                    let passed = done(&mut owner, &claim, folder, &into, deep);
                    assert!(passed.is_empty(), "{access}, {}, {deep}: {passed:?}", folder.display());
                    assert_eq!((seen(&grid.workspace), seen(&grid.outside)), before, "{access}");
                }
            }
        }
        let record = owner.list().swap_remove(0);
        let enforced = record["access"]["enforced"].as_str().unwrap_or_default();
        assert!(enforced.starts_with("landlock ABI "), "{record}");
        // Between two places that are both let through everything goes.
        grid.lay_out();
        let claim = grid.claim("broad_write");
        let all = done(&mut owner, &claim, &grid.workspace.join("named"), &grid.workspace.join("other"), false);
        let moved = all.iter().filter(|name| ACROSS.contains(&name.as_str())).count();
        // `other` had an `m` already: a rename replaces it, and so both go through.
        assert_eq!(moved, ACROSS.len(), "{all:?}");
    }

    /// Bind mounts, in a mount namespace of the test's own: what counts is the folder itself, and the way that was taken to it.
    fn a_bind_mount_neither_opens_nor_closes_anything(tier) {
        let Some(grid) = Grid::new(tier) else { return };
        let mut owner = grid.daemon.owner();
        let alias = grid.daemon.cwd().join("alias");
        let hole = grid.workspace.join("hole");
        // What is mounted, where, the place in it, and what goes through there.
        let cases: [(&str, &Path, &str, &[&str]); 4] = [
            ("workspace", &alias, "other", INSIDE),
            ("workspace/other", &alias, ".", &[]),
            ("outside/other", &alias, ".", &[]),
            ("outside/other", &hole, ".", INSIDE),
        ];
        for (from, to, place, expected) in cases {
            grid.lay_out();
            fs::create_dir_all(to).unwrap();
            let mounted = grid.daemon.cwd().join(from);
            let status = binaries::command("mount").arg("--bind").arg(mounted).arg(to).status().unwrap();
            if !status.success() {
                println!("skipped: no bind mounts here");
                return;
            }
            let claim = grid.claim("broad_write");
            let passed = done(&mut owner, &claim, &to.join(place), &grid.outside, false);
            assert!(binaries::command("umount").arg(to).status().unwrap().success());
            assert_eq!(passed, expected, "{from} at {}", to.display());
        }
    }
}

both_tiers! {
    fn the_temporary_folder_is_its_own_and_goes_with_the_tree(tier) {
        let daemon = Setup::new(tier).start();
        if !is_here(&daemon) {
            return;
        }
        let mut owner = daemon.owner();
        let claim = json!({"root": daemon.cwd(), "access": "read_only", "enforce": true});
        let line = "cd \"$TMPDIR\" && pwd && mkdir empty deep && for f in file a gone m; do echo x >$f; done && \
                    chmod 500 deep && \"$0\" deeds . deep | grep -c ok; stat -c %a \"$TMPDIR\"";
        let entry = owner.start(&["sh", "-c", line, &binaries::probe()], json!({"workspace": claim}));
        let text = entry["output"].as_str().unwrap_or_default().to_owned();
        let lines: Vec<_> = text.lines().collect();
        // As root a folder without its write bit is no obstacle.
        assert!(lines.len() == 3 && ["12", "14"].contains(&lines[1]) && lines[2] == "700", "{entry}");
        let temporary = PathBuf::from(lines[0]);
        assert!(temporary.starts_with(daemon.state().join("tmp")), "{entry}");
        wait::until_true("the temporary folder is gone", LIMIT, || !temporary.exists());
    }

    fn streams_and_plain_devices_stay_writable_and_the_state_folder_does_not(tier) {
        let daemon = Setup::new(tier).start();
        if !is_here(&daemon) {
            return;
        }
        let mut owner = daemon.owner();
        let claim = json!({"root": daemon.cwd(), "access": "read_only", "enforce": true});
        for tty in [false, true] {
            let state = daemon.state();
            let line = format!(
                "echo one; echo two >&2; echo x >/dev/null; echo three >/dev/stdout; {{ echo y >/dev/full; }} 2>/dev/null || echo full; \
                 for f in {0}/format {0}/new /proc/self/oom_score_adj /proc/self/comm {1}/x; do (echo 0 >$f) 2>/dev/null && echo wrote $f; done; echo done",
                state.display(), daemon.path().display(),
            );
            let more = json!({"workspace": claim, "tty": tty, "merge_streams": true});
            let entry = owner.start(&["sh", "-c", &line], more);
            let text = entry["output"].as_str().unwrap_or_default().replace("\r\n", "\n");
            for word in ["one\n", "two\n", "three\n", "full\n", "done\n"] {
                assert!(text.contains(word), "{tty} {word:?}: {entry}");
            }
            assert!(!text.contains("wrote"), "{tty}: {entry}");
        }
        let text = fs::read_to_string(daemon.state().join("format")).unwrap();
        assert!(text.contains("folder_id"), "{text}");
    }

    fn what_may_be_read_can_be_narrowed(tier) {
        let daemon = Setup::new(tier).start();
        if !is_here(&daemon) {
            return;
        }
        let mut owner = daemon.owner();
        fs::write(daemon.cwd().join("secret"), "secret\n").unwrap();
        fs::create_dir(daemon.cwd().join("open")).unwrap();
        fs::write(daemon.cwd().join("open/file"), "plain\n").unwrap();
        let system = ["/usr", "/bin", "/lib", "/lib64", "/etc"];
        let system: Vec<_> = system.into_iter().filter(|path| Path::new(path).exists()).collect();
        let mut paths = json!(system);
        paths.as_array_mut().unwrap().push(json!("open"));
        let claim = json!({"root": daemon.cwd(), "access": "read_only", "enforce": true, "paths_read": paths});
        let line = "cat open/file; cat secret; ls . ; cat </dev/null && echo x >$TMPDIR/x && cat $TMPDIR/x";
        let entry = owner.start(&["sh", "-c", line], json!({"workspace": claim, "merge_streams": true}));
        let text = entry["output"].as_str().unwrap_or_default();
        assert!(text.contains("plain\n") && text.ends_with("x\n"), "{entry}");
        assert!(!text.contains("secret\n") || text.contains("secret: Permission denied"), "{entry}");
        assert_eq!(text.matches("denied").count(), 2, "{entry}");
        // A program that may not be read may not be run.
        let claim = json!({"root": daemon.cwd(), "access": "read_only", "enforce": true, "paths_read": []});
        let params = owner.start_params(&["sh", "-c", "echo never"], json!({"workspace": claim}));
        let error = owner.wire.refused("spawn_failed", "process/start", params);
        assert_eq!(error["details"]["cause"], "not_executable", "{error}");
    }
}

#[test]
fn what_the_kernel_cannot_hold_back_is_refused_and_never_dropped() {
    for (abi, right) in [(0, "write"), (1, "refer"), (2, "truncate")] {
        let daemon =
            Setup::new(Tier::Shim).failpoints(&format!("landlock-abi=value:{abi}")).start();
        let mut owner = daemon.owner();
        for access in ["read_only", "broad_write"] {
            let claim = json!({"root": daemon.cwd(), "access": access, "enforce": true});
            let params = owner.start_params(&["touch", "x"], json!({"workspace": claim}));
            let error =
                owner.wire.refused("lifetime_enforcement_unavailable", "process/start", params);
            assert_eq!(error["details"]["field"], "workspace.enforce", "{error}");
            assert_eq!(error["details"]["missing"], right, "{error}");
        }
        assert!(owner.list().is_empty(), "nothing was recorded");
        assert!(!daemon.cwd().join("x").exists());
    }
}

#[test]
fn a_path_that_is_not_there_or_a_setting_that_does_not_fit_is_refused() {
    let daemon = Setup::new(Tier::Shim).start();
    let mut owner = daemon.owner();
    if is_here(&daemon) {
        let scoped = json!({"root": daemon.cwd(), "access": "scoped_write", "paths": ["no"], "enforce": true});
        let read = json!({"root": daemon.cwd(), "access": "read_only", "paths_read": ["no"], "enforce": true});
        for (claim, field) in [(scoped, "workspace.paths[0]"), (read, "workspace.paths_read[0]")] {
            let params = owner.start_params(&["true"], json!({"workspace": claim}));
            let error = owner.wire.refused("invalid_arguments", "process/start", params);
            assert_eq!(error["details"]["field"], field, "{error}");
        }
    }
    if Tier::Cgroup.is_here() {
        let daemon = Setup::new(Tier::Cgroup).setting("no_new_privileges = false").start();
        let mut owner = daemon.owner();
        let claim = json!({"root": daemon.cwd(), "access": "read_only", "enforce": true});
        let params = owner.start_params(&["true"], json!({"workspace": claim}));
        owner.wire.refused("invalid_settings", "process/start", params);
    }
}

/// Without `enforce` a claim is among clients, and the record says so.
#[test]
fn a_claim_alone_holds_nobody_back_and_is_recorded_as_such() {
    let daemon = Setup::new(Tier::Shim).start();
    let mut owner = daemon.owner();
    let claim = json!({"root": daemon.cwd(), "access": "read_only"});
    let entry = owner.start(&["touch", "made"], json!({"workspace": claim}));
    assert!(daemon.cwd().join("made").exists());
    let record = owner.record(&handle(&entry));
    assert_eq!(record["access"], json!({"asked": "read_only", "effective": "read_only"}));
}
