//! Golden errors and precedence of the configuration.

use super::*;

fn from_text(text: &str) -> Result<Config, ConfigError> {
    let mut loading = Loading::default();
    loading.file(Path::new("/etc/procd.toml"), text)?;
    loading.finish()
}

fn error_of(text: &str) -> String {
    from_text(text).unwrap_err().to_string()
}

#[test]
fn every_key_is_read() {
    let config = from_text(
        r#"
        containment = "cgroup"
        require_atomic = true
        cgroup_root = "/sys/fs/cgroup/mine"
        no_new_privileges = false
        child_umask = 0o027
        child_nice = -5
        child_oom_score_adj = 500
        shell = "/bin/dash"
        private_exit_ms = 1000
        [env]
        pass = ["A", "B"]
        block = ["C"]
        allow = ["LD_LIBRARY_PATH"]
        [log]
        format = "json"
        level = "debug"
        [limits]
        grace_ms = 1_000
        "#,
    )
    .unwrap();
    let choices = &config.choices;
    assert_eq!(choices.containment, Containment::Cgroup);
    assert!(choices.require_atomic && !choices.no_new_privileges);
    assert_eq!(choices.cgroup_root, Some(CgroupRoot::Folder("/sys/fs/cgroup/mine".into())));
    assert_eq!((choices.child_umask, choices.child_nice), (0o027, -5));
    assert_eq!(choices.child_oom_score_adj, Some(500));
    assert_eq!(choices.shell.as_deref(), Some(Path::new("/bin/dash")));
    assert_eq!(choices.private_exit, Duration::from_secs(1));
    assert_eq!(choices.env_pass, ["A", "B"]);
    assert_eq!(choices.env_block, ["C"]);
    assert_eq!(choices.env_allow, ["LD_LIBRARY_PATH"]);
    assert_eq!((choices.log_format, choices.log_level), (LogFormat::Json, LogLevel::Debug));
    assert_eq!(config.limits.grace_ms, 1000);
    assert_eq!(config.origins.len(), keys::all().count() - Limits::KEYS.len() + 1);
}

#[test]
fn the_own_group_is_named_by_a_word_and_nothing_relative_is_taken_for_it() {
    let config = from_text("cgroup_root = \"own\"").unwrap();
    assert_eq!(config.choices.cgroup_root, Some(CgroupRoot::Own));
    assert!(config.to_text().contains("cgroup_root = \"own\"  # /etc/procd.toml:1\n"));
    assert_eq!(
        error_of("cgroup_root = \"owm\""),
        "/etc/procd.toml:1: wrong value for `cgroup_root`: an absolute path or \"own\" is wanted"
    );
}

#[test]
fn an_empty_file_gives_the_defaults() {
    let config = from_text("").unwrap();
    assert_eq!(config.limits, Limits::default());
    assert_eq!(config.choices, Choices::default());
    assert!(config.origins.is_empty() && config.lowered.is_empty());
}

#[test]
fn an_unknown_key_is_named_with_its_line_and_the_nearest_valid_one() {
    assert_eq!(
        error_of("# first\n[limits]\ngrace_sm = 1\n"),
        "/etc/procd.toml:3: unknown key `limits.grace_sm`; did you mean `limits.grace_ms`?"
    );
    assert_eq!(
        error_of("contaiment = \"auto\"\n"),
        "/etc/procd.toml:1: unknown key `contaiment`; did you mean `containment`?"
    );
    assert_eq!(
        error_of("\ngrace_ms = 5\n"),
        "/etc/procd.toml:2: unknown key `grace_ms`; did you mean `limits.grace_ms`?"
    );
    assert_eq!(
        error_of("[log]\nlevl = 1\n"),
        "/etc/procd.toml:2: unknown key `log.levl`; did you mean `log.level`?"
    );
    assert_eq!(error_of("[zzzzzzzz]\nq = 1\n"), "/etc/procd.toml:1: unknown key `zzzzzzzz`");
}

#[test]
fn a_wrong_value_is_named_with_its_line_and_what_is_wanted() {
    for (text, wanted) in [
        (
            "[limits]\ngrace_ms = \"5s\"",
            "2: wrong value for `limits.grace_ms`: an integer is wanted",
        ),
        (
            "[limits]\ngrace_ms = -1",
            "2: wrong value for `limits.grace_ms`: -1 is not within 0 and 31622400000",
        ),
        ("require_atomic = 1", "1: wrong value for `require_atomic`: true or false is wanted"),
        (
            "containment = \"vm\"",
            "1: wrong value for `containment`: one of \"auto\", \"cgroup\", \"shim\" is wanted",
        ),
        ("shell = \"bash\"", "1: wrong value for `shell`: an absolute path is wanted"),
        ("child_umask = 512", "1: wrong value for `child_umask`: 512 is not within 0 and 511"),
        ("child_nice = 20", "1: wrong value for `child_nice`: 20 is not within -20 and 19"),
        (
            "[env]\npass = [1]",
            "2: wrong value for `env.pass`: a list of names of variables is wanted",
        ),
        (
            "[env]\npass = [\"A=B\"]",
            "2: wrong value for `env.pass`: a list of names of variables is wanted",
        ),
    ] {
        assert_eq!(error_of(text), format!("/etc/procd.toml:{wanted}"));
    }
}

#[test]
fn broken_toml_and_doubled_keys_are_named_with_their_line() {
    let broken = error_of("a = 1\n[limits\n");
    assert!(broken.starts_with("/etc/procd.toml:2: "), "{broken}");
    let doubled = error_of("[limits]\ngrace_ms = 1\ngrace_ms = 2\n");
    assert!(doubled.starts_with("/etc/procd.toml:3: duplicate key"), "{doubled}");
}

#[test]
fn contradictions_name_both_keys_and_both_places() {
    assert_eq!(
        error_of("[limits]\nrunning_loop_max = 9\nrunning_session_max = 4\n"),
        "/etc/procd.toml:2 and /etc/procd.toml:3: `running_loop_max` (9) is above \
         `running_session_max` (4)"
    );
    assert!(error_of("no_new_privileges = false\ncontainment = \"shim\"").contains("contradict"));
}

#[test]
fn the_environment_beats_the_file_and_a_flag_beats_both() {
    let path = std::env::temp_dir().join(format!("procd-config-{}.toml", std::process::id()));
    std::fs::write(&path, "[limits]\ngrace_ms = 1\nsessions_max = 1\nconnections_max = 1\n")
        .unwrap();
    let environment = Environment::from_pairs(&[
        ("PROCD_LIMITS_SESSIONS_MAX", "2"),
        ("PROCD_LIMITS_CONNECTIONS_MAX", "2"),
        ("PROCD_SHELL", "/bin/dash"),
        ("PROCD_SOCKET", "/not/a/setting"),
    ]);
    let flags = ["limits.connections_max=3".to_owned(), "log.level=warn".to_owned()];
    let config = load(Some((&path, true)), &environment, &flags).unwrap();
    let limits = &config.limits;
    assert_eq!((limits.grace_ms, limits.sessions_max, limits.connections_max), (1, 2, 3));
    assert_eq!(config.choices.log_level, LogLevel::Warn);
    assert_eq!(config.choices.shell.as_deref(), Some(Path::new("/bin/dash")));
    let origin = |key: &str| config.origins[key].to_string();
    assert_eq!(origin("limits.grace_ms"), format!("{}:2", path.display()));
    let variable = "environment variable PROCD_LIMITS_SESSIONS_MAX";
    assert_eq!(origin("limits.sessions_max"), variable);
    assert_eq!(origin("limits.connections_max"), "flag --set");
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn a_file_that_was_named_must_exist_and_the_default_one_need_not() {
    let path = Path::new("/nonexistent/procd.toml");
    let environment = Environment::default();
    assert!(load(Some((path, false)), &environment, &[]).is_ok());
    let error = load(Some((path, true)), &environment, &[]).unwrap_err();
    assert_eq!(error.to_string(), "cannot read the configuration `/nonexistent/procd.toml`");
}

#[test]
fn wrong_flags_and_variables_are_named() {
    let flag = |text: &str| {
        load(None, &Environment::default(), &[text.to_owned()]).unwrap_err().to_string()
    };
    assert_eq!(flag("x"), "flag --set wants `KEY=VALUE`, not `x`");
    assert_eq!(
        flag("log.format=xml"),
        "flag --set: wrong value for `log.format`: one of \"text\", \"json\" is wanted"
    );
    let environment = Environment::from_pairs(&[("PROCD_CHILD_NICE", "high")]);
    assert_eq!(
        load(None, &environment, &[]).unwrap_err().to_string(),
        "environment variable PROCD_CHILD_NICE: wrong value for `child_nice`: an integer is wanted"
    );
}

#[test]
fn the_shipped_example_names_every_key_with_its_default() {
    let example = include_str!("../../../docs/config.example.toml");
    from_text(example).unwrap();
    // Every `#key = value` with its mark taken off; prose has a space behind the mark.
    let is_key = |line: &&str| !line.starts_with("# ");
    let given: Vec<_> =
        example.lines().filter(is_key).map(|line| line.trim_start_matches('#')).collect();
    let config = from_text(&given.join("\n")).unwrap();
    for key in keys::all() {
        assert!(config.origins.contains_key(&key), "{key} is not in the example");
    }
    assert_eq!((config.limits, config.lowered), (Limits::default(), vec![]));
    let choices = Choices::default();
    assert_eq!(config.choices.private_exit, choices.private_exit);
    assert_eq!(config.choices.child_umask, choices.child_umask);
}
