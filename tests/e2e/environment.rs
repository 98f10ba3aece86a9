//! What a command gets: its environment, its words byte for byte, its folder. Source: spec, containment, *Environment*, *Working
//! directory and workspace*.

use std::{
    ffi::OsStr,
    fs,
    os::unix::{ffi::OsStrExt as _, fs::PermissionsExt as _},
    path::Path,
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use procd_tests::{Setup, Tier, binaries, namespace, owner::handle};
use serde_json::{Value, json};

/// As on the wire.
fn base64(bytes: &[u8]) -> String {
    BASE64_STANDARD.encode(bytes)
}

#[test]
fn a_hostile_parent_environment_reaches_nobody() {
    let hostile = [
        ("LD_PRELOAD_NOT", "x"),
        ("BASH_ENV", "/tmp/evil"),
        ("GIT_DIR", "/tmp/evil"),
        ("PYTHONPATH", "/tmp/evil"),
        ("AWS_SECRET_ACCESS_KEY", "hunter2-aws"),
        ("MY_API_TOKEN", "hunter2-token"),
        ("SSH_AUTH_SOCK", "hunter2-sock"),
        ("NOTIFY_SOCKET", "/tmp/no"),
        ("LISTEN_FDS", "3"),
        ("XDG_RUNTIME_DIR", "/tmp"),
        ("PASSED_ON", "yes"),
        ("PASSED_TOKEN", "hunter2-passed"),
        ("EXACT_TOKEN", "exactly"),
        ("BLOCKED", "no"),
        ("LC_SECRET", "hunter2-lc"),
        ("LC_ALL", "C"),
    ];
    let mut setup = Setup::new(Tier::Shim)
        .setting("env.pass = [\"PASSED_*\", \"EXACT_TOKEN\", \"BLOCKED\"]")
        .setting("env.block = [\"BLOCKED\", \"REFUSED_*\"]");
    for (name, value) in hostile {
        setup = setup.environment(name, value);
    }
    let daemon = setup.start();
    let mut owner = daemon.owner();
    let env = json!({"REFUSED_BY_BLOCK": "1", "OWN": "2", "HOME": null, "PROCD_TEST_FOLDER": daemon.cwd()});
    let entry = owner
        .start(&[&binaries::probe(), "environment"], json!({"env": env, "limit_bytes": 100_000}));
    let text = entry["output"].as_str().unwrap();
    let names: Vec<_> = text.lines().filter_map(|line| line.split('=').next()).collect();
    for name in names
        .iter()
        .filter(|name| !["PATH", "USER", "LOGNAME", "SHELL", "LANG", "TZ"].contains(name))
    {
        let known = [
            "EXACT_TOKEN",
            "LC_ALL",
            "OWN",
            "PASSED_ON",
            "PROCD_TEST_FOLDER",
            "TMPDIR",
            "CARGO_HOME",
            "RUSTUP_HOME",
        ];
        assert!(known.contains(name), "{name} in {text}");
    }
    for line in ["OWN=2", "PASSED_ON=yes", "EXACT_TOKEN=exactly", "LC_ALL=C"] {
        assert!(text.lines().any(|found| found == line), "{line} in {text}");
    }
    assert!(!text.contains("hunter2"), "{text}");
}

#[test]
fn each_hijacking_name_is_refused_by_name_unless_the_configuration_allows_it() {
    let names = [
        "LD_PRELOAD",
        "LD_LIBRARY_PATH",
        "DYLD_INSERT_LIBRARIES",
        "GCONV_PATH",
        "BASH_ENV",
        "ENV",
        "SHELLOPTS",
        "PS4",
        "PYTHONSTARTUP",
        "PYTHONPATH",
        "PYTHONHOME",
        "NODE_OPTIONS",
        "RUBYOPT",
        "RUBYLIB",
        "PERL5OPT",
        "PERL5LIB",
        "JAVA_TOOL_OPTIONS",
        "RUSTC_WRAPPER",
        "GIT_DIR",
        "GIT_WORK_TREE",
        "GIT_INDEX_FILE",
        "GIT_OBJECT_DIRECTORY",
        "GIT_ALTERNATE_OBJECT_DIRECTORIES",
        "GIT_COMMON_DIR",
        "GIT_CONFIG_GLOBAL",
        "GIT_CONFIG_COUNT",
        "GIT_EXEC_PATH",
        "GIT_SSH",
        "GIT_SSH_COMMAND",
        "GIT_CEILING_DIRECTORIES",
    ];
    let daemon = Setup::new(Tier::Shim).setting("env.allow = [\"PYTHONPATH\"]").start();
    let mut owner = daemon.owner();
    for name in names {
        for field in ["env", "env_base64"] {
            let value = if field == "env" { json!("x") } else { json!("eA==") };
            let params = owner.start_params(&["true"], json!({field: {name: value}}));
            let answer = owner.wire.call("process/start", params);
            if name == "PYTHONPATH" {
                assert!(answer.is_ok(), "{answer:?}");
                continue;
            }
            let error = answer.unwrap_err();
            assert_eq!(error["code"], "invalid_arguments", "{name}: {error}");
            assert!(error["message"].as_str().unwrap().contains(name), "{name}: {error}");
        }
        // To take one away is no attack.
        owner.start(&["true"], json!({"env": {name: null}}));
    }
}

/// Every file below a folder, and where `word` is in them.
fn files_with(folder: &Path, word: &[u8], found: &mut Vec<String>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() && !path.is_symlink() {
            files_with(&path, word, found);
        }
        let bytes = fs::read(&path).unwrap_or_default();
        if bytes.windows(word.len()).any(|window| window == word) {
            found.push(path.display().to_string());
        }
    }
}

/// C121. In a namespace of its own, so that all of /proc is the test's.
#[test]
fn a_secret_that_is_passed_is_in_no_file_log_event_or_command_line() {
    if namespace::has_run_inside(
        module_path!(),
        "a_secret_that_is_passed_is_in_no_file_log_event_or_command_line",
    ) {
        return;
    }
    const SECRET: &str = "hunter2-f3a9c1";
    let daemon = Setup::new(Tier::Shim).setting("log.level = \"trace\"").start();
    let mut owner = daemon.owner();
    let mut operator = daemon.operator();
    let subscription = operator.send("events/subscribe", json!({}));
    operator.reply(subscription).unwrap();
    let env = json!({"API_TOKEN": SECRET, "PROCD_TEST_FOLDER": daemon.cwd()});
    let line = "test \"$API_TOKEN\" = hunter2-\"$PART\"; echo $?; read answer; test \"$answer\" = hunter2-$PART; echo $?";
    let more = json!({"env": env, "env_base64": {"PART": base64(b"f3a9c1")}, "background": true, "request_key": "k"});
    let process = handle(&owner.start(&["sh", "-c", line], more));
    owner.wire.ok(
        "process/input",
        json!({"process_id": process, "data": format!("{SECRET}\n"), "flush_ms": 20_000}),
    );
    let mut seen = String::new();
    while !seen.contains("completed") {
        seen.push_str(&operator.next_notice().expect("events until the end").to_string());
    }
    owner.ended(&process);
    assert_eq!(owner.text(&process), "0\n0\n", "both came over");
    let record = owner.record(&process).to_string();
    // Also a start that never came to anything, and a plan.
    let params = owner.start_params(&["/no/such"], json!({"env": {"API_TOKEN": SECRET}}));
    let error = owner.wire.refused("spawn_failed", "process/start", params).to_string();
    let params =
        owner.start_params(&["true"], json!({"env": {"API_TOKEN": SECRET}, "dry_run": true}));
    let plan = owner.wire.ok("process/start", params).to_string();
    assert!(plan.contains("API_TOKEN"), "{plan}");
    let mut found = Vec::new();
    files_with(&daemon.state(), SECRET.as_bytes(), &mut found);
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        if line.windows(SECRET.len()).any(|window| window == SECRET.as_bytes()) {
            found.push(format!("{}: {}", entry.path().display(), String::from_utf8_lossy(&line)));
        }
    }
    assert!(found.is_empty(), "{found:?}");
    for (what, text) in [
        ("log", daemon.log()),
        ("events", seen),
        ("record", record),
        ("error", error),
        ("plan", plan),
    ] {
        assert!(!text.contains(SECRET), "in the {what}: {text}");
    }
}

both_tiers! {
    fn values_may_be_as_long_as_the_kernel_takes_and_of_any_bytes(tier) {
        // Name, `=`, value and NUL together.
        const KERNEL_MAX: usize = 128 * 1024;
        let daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        let longest = KERNEL_MAX - "LONG=".len() - 1;
        let line = "printf %s \"$LONG\" | wc -c; printf %s \"$RAW\" | od -An -tx1 | tr -d ' \\n'";
        let raw: Vec<u8> = (1..=255).collect();
        let more = json!({"env": {"LONG": "x".repeat(longest)}, "env_base64": {"RAW": base64(&raw)}});
        let entry = owner.start(&["sh", "-c", line], more);
        let hex: String = raw.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(entry["output"], format!("{longest}\n{hex}"), "{entry}");
        // One byte more is what the kernel refuses, and said so; more than the protocol's own limit is refused before.
        let params = owner.start_params(&["true"], json!({"env": {"LONG": "x".repeat(longest + 1)}}));
        let error = owner.wire.refused("spawn_failed", "process/start", params);
        assert_eq!(error["details"]["cause"], "argument_list_too_long", "{error}");
        let bytes = base64(&vec![b'x'; KERNEL_MAX + 1]);
        let params = owner.start_params(&["true"], json!({"env_base64": {"LONG": bytes}}));
        let error = owner.wire.refused("invalid_arguments", "process/start", params);
        assert_eq!(error["details"]["field"], "env_base64.LONG", "{error}");
    }

    fn words_and_folders_need_not_be_utf_8(tier) {
        let daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        let name = OsStr::from_bytes(b"caf\xe9 \xff");
        let folder = daemon.cwd().join(name);
        fs::create_dir(&folder).unwrap();
        let argv = [&b"sh"[..], b"-c", b"printf '%s:' \"$1\"; pwd", b"sh", b"a\xff\xc3\x28 'b"];
        let argv: Vec<_> = argv.iter().map(|word| base64(word)).collect();
        let mut params = owner.start_params(&[], json!({"argv_base64": argv, "cwd_base64": base64(folder.as_os_str().as_bytes())}));
        for field in ["argv", "cwd"] {
            params.as_object_mut().unwrap().remove(field);
        }
        let entry = owner.wire.ok("process/start", params);
        let process = handle(&entry);
        let expected = [b"a\xff\xc3\x28 'b:", folder.as_os_str().as_bytes(), b"\n"].concat();
        assert_eq!(owner.bytes(&process, 0), expected, "{entry}");
        let record = owner.record(&process);
        assert_eq!(record["command"]["argv"][4], "a\\xFF\\xC3( 'b", "{record}");
    }

    fn a_text_runs_by_the_shell_that_was_asked_for(tier) {
        let daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        let mut run = |more: Value| {
            let mut params = owner.start_params(&[], more);
            params.as_object_mut().unwrap().remove("argv");
            owner.wire.call("process/start", params)
        };
        // Byte for byte: nothing of it is looked at on the way.
        let text = "printf '%s|' \"$0\" 'a  b' \"\\$x\" `echo c`  # ü\n\techo; false || echo last";
        let plain = run(json!({"command": text, "shell": "/bin/sh"})).unwrap();
        assert_eq!(plain["output"], "/bin/sh|a  b|$x|c|\nlast\n", "{plain}");
        let by_name = run(json!({"command": "echo ${BASH_VERSION:+bash}", "shell": "bash"})).unwrap();
        assert_eq!(by_name["output"], "bash\n", "{by_name}");
        for (login, word) in [(true, "-bash"), (false, "bash")] {
            let entry = run(json!({"command": "echo \"$0\"; shopt -q login_shell; echo $?", "shell": "bash", "login": login})).unwrap();
            assert_eq!(entry["output"], format!("{word}\n{}\n", u8::from(!login)), "{entry}");
        }
        let error = run(json!({"command": "true", "shell": "/no/such/shell"})).unwrap_err();
        assert_eq!(error["details"]["cause"], "no_such_program", "{error}");
    }
}

/// The folder is opened once: a link that is swapped between the check and the use leads nobody out of the workspace.
#[test]
fn a_folder_swapped_for_a_link_between_check_and_use_leads_nowhere_else() {
    let daemon = Setup::new(Tier::Shim).failpoints("start-plan-folder=pause:30").start();
    let workspace = daemon.cwd().join("workspace");
    let (inside, outside) = (workspace.join("folder"), daemon.cwd().join("outside"));
    for folder in [&inside, &outside] {
        fs::create_dir_all(folder).unwrap();
    }
    let mut owner = daemon.owner_with(json!({"workspaces": [workspace]}));
    let swapped = workspace.join("swapped");
    let stop = std::sync::atomic::AtomicBool::new(false);
    let order = std::sync::atomic::Ordering::Relaxed;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // By turns the real folder's name, and a link out of the workspace, each put there in one step.
            let (real, link) = (workspace.join("real"), workspace.join("link"));
            while !stop.load(order) {
                for target in [&inside, &outside] {
                    let next = if target == &inside { &real } else { &link };
                    drop(fs::remove_file(next));
                    std::os::unix::fs::symlink(target, next).unwrap();
                    fs::rename(next, &swapped).unwrap();
                }
            }
        });
        let (mut ran, mut refused) = (0, 0);
        for _ in 0..60 {
            let params = owner.start_params(&["pwd", "-P"], json!({"cwd": "swapped"}));
            match owner.wire.call("process/start", params) {
                Ok(entry) => {
                    assert_eq!(
                        entry["output"],
                        format!("{}\n", inside.canonicalize().unwrap().display()),
                        "{entry}"
                    );
                    ran += 1;
                }
                Err(error) if error["code"] == "spawn_failed" => {
                    // The name was nowhere for a moment.
                    assert_eq!(error["details"]["cause"], "cwd_missing", "{error}");
                }
                Err(error) => {
                    assert_eq!(
                        (&error["code"], &error["details"]["field"]),
                        (&json!("invalid_arguments"), &json!("cwd"))
                    );
                    refused += 1;
                }
            }
        }
        stop.store(true, order);
        println!("ran inside {ran}, refused as outside {refused}");
    });
}

both_tiers! {
    /// C122: the error names the folder.
    fn a_folder_that_cannot_be_entered_says_why(tier) {
        let daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        let file = daemon.cwd().join("file");
        fs::write(&file, "x").unwrap();
        let mut cases = vec![(daemon.cwd().join("no"), "cwd_missing"), (file, "cwd_not_directory")];
        if !rustix::process::geteuid().is_root() {
            let closed = daemon.cwd().join("closed");
            fs::create_dir(&closed).unwrap();
            fs::set_permissions(&closed, fs::Permissions::from_mode(0o000)).unwrap();
            cases.push((closed, "cwd_denied"));
        }
        for (folder, cause) in cases {
            let params = owner.start_params(&["true"], json!({"cwd": folder}));
            let error = owner.wire.refused("spawn_failed", "process/start", params);
            assert_eq!(error["details"]["cause"], cause, "{error}");
        }
    }

    fn a_folder_outside_every_workspace_is_refused_however_it_is_named(tier) {
        let daemon = Setup::new(tier).start();
        let workspace = daemon.cwd().join("workspace");
        let outside = daemon.cwd().join("outside");
        for folder in [&workspace, &outside] {
            fs::create_dir(folder).unwrap();
        }
        std::os::unix::fs::symlink(&outside, workspace.join("link")).unwrap();
        std::os::unix::fs::symlink(&workspace, outside.join("back")).unwrap();
        let mut owner = daemon.owner_with(json!({"workspaces": [workspace]}));
        let absolute = outside.to_string_lossy().into_owned();
        for cwd in ["..", "link", "../outside", &absolute, "/", "link/../outside"] {
            let params = owner.start_params(&["true"], json!({"cwd": cwd}));
            let error = owner.wire.refused("invalid_arguments", "process/start", params);
            assert_eq!(error["details"]["field"], "cwd", "{cwd}: {error}");
        }
        let back = outside.join("back").to_string_lossy().into_owned();
        for cwd in [".", "link/back", &back] {
            let entry = owner.start(&["pwd", "-P"], json!({"cwd": cwd}));
            assert_eq!(entry["output"], format!("{}\n", workspace.canonicalize().unwrap().display()), "{cwd}: {entry}");
        }
    }
}

/// A folder that is removed under a running start is what the kernel makes of it: the command runs in a folder without a name.
#[test]
fn a_folder_deleted_between_check_and_use_hurts_nobody() {
    let daemon = Setup::new(Tier::Shim).failpoints("spawn-requested=pause:200").start();
    let mut owner = daemon.owner();
    let folder = daemon.cwd().join("gone");
    fs::create_dir(&folder).unwrap();
    let params = owner.start_params(&["sh", "-c", "echo here"], json!({"cwd": folder}));
    let id = owner.wire.send("process/start", params);
    fs::remove_dir(&folder).unwrap();
    match owner.wire.reply(id) {
        Ok(entry) => assert_eq!(entry["output"], "here\n", "{entry}"),
        Err(error) => assert_eq!(error["details"]["cause"], "cwd_missing", "{error}"),
    }
}

/// C122. The daemon's own folder is `/`, whatever becomes of the one it was started in.
#[test]
fn a_daemon_started_in_a_folder_that_is_then_deleted_goes_on() {
    let daemon = Setup::new(Tier::Shim).prepare();
    let folder = daemon.path().join("start");
    fs::create_dir(&folder).unwrap();
    let mut command = daemon.command("sh");
    command
        .args(["-c", "cd \"$1\" && rmdir \"$1\" && exec \"$0\""])
        .arg(binaries::path("procd"))
        .arg(&folder);
    let mut child = command.spawn().unwrap();
    let mut wire = procd_tests::wait::until("the daemon serves", procd_tests::wait::STEP, || {
        let mut wire = procd_tests::Wire::bare(&daemon.socket()).ok()?;
        wire.hello().ok().map(|_| wire)
    });
    assert!(!folder.exists());
    assert_eq!(fs::read_link(format!("/proc/{}/cwd", child.id())).unwrap(), Path::new("/"));
    wire.ok("session/open", json!({}));
    let env = json!({"PROCD_TEST_FOLDER": daemon.path()});
    let entry =
        wire.ok("process/start", json!({"command": "echo runs", "cwd": daemon.cwd(), "env": env}));
    assert_eq!(entry["output"], "runs\n", "{entry}");
    let pid = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert!(child.wait().unwrap().success());
}

#[test]
fn the_guard_of_a_session_looks_at_words_and_a_session_without_one_does_not() {
    let daemon = Setup::new(Tier::Shim).start();
    let mut plain = daemon.owner();
    let mut guarded = daemon.owner_with(json!({"guard": true}));
    let state = daemon.state().join("x").to_string_lossy().into_owned();
    let cases: [(&[&str], &str, u64); 5] = [
        (&[".git/hooks/pre-commit"], "guard_protected_path", 0),
        (&["sh", "-lc", "cd x; ./.procd/run"], "guard_protected_path", 2),
        (&["env", &state], "guard_protected_path", 1),
        (&["git", "--git-dir=/tmp/x", "status"], "guard_git_redirection", 1),
        (&["busybox", "sh", "-c", "GIT_DIR=x git log"], "guard_git_redirection", 3),
    ];
    for (argv, cause, word) in cases {
        let params = guarded.start_params(argv, json!({}));
        let error = guarded.wire.refused("invalid_arguments", "process/start", params);
        assert_eq!(
            (&error["details"]["cause"], &error["details"]["word"]),
            (&json!(cause), &json!(word)),
            "{error}"
        );
        assert_eq!(error["details"]["field"], "argv");
        let params = plain.start_params(argv, json!({"dry_run": true}));
        plain.wire.ok("process/start", params);
    }
    assert!(guarded.list().is_empty());
    guarded.start(&["sh", "-c", "ls .git 2>/dev/null; GIT_PAGER=cat true"], json!({}));
    // It is a rule of the session, over a restart too.
    let mut daemon = daemon;
    daemon.kill();
    daemon.restart();
    let mut again = guarded.attach(daemon.connect());
    let params = again.start_params(&[".git/hooks/x"], json!({}));
    again.wire.refused("invalid_arguments", "process/start", params);
}
