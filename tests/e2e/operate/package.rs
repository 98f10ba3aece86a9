//! The package: made, and looked into. `cargo xtask deb --tries` installs, runs and removes it.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use procd_tests::{
    Finished, binaries,
    folder::Folder,
    run::{self, LONG},
};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

fn done(mut command: Command, words: &[&str]) -> Finished {
    command.args(words);
    let shown = format!("{command:?}");
    let finished = run::finish(command, b"", LONG);
    assert_eq!(finished.code, Some(0), "{shown}: {finished:?}");
    finished
}

fn packed(folder: &Folder) -> PathBuf {
    let script = root().join("packaging/deb.sh");
    let mut command = binaries::command(script);
    command.env("BIN", binaries::folder()).env("COMPRESSION", "none");
    let made = done(command, &[folder.path().to_str().unwrap()]);
    PathBuf::from(made.text().trim().lines().last().unwrap())
}

#[test]
fn the_package_holds_binaries_units_completions_and_pages() {
    let folder = Folder::new();
    let package = packed(&folder);
    let listed = done(binaries::command("dpkg-deb"), &["--contents", package.to_str().unwrap()]);
    let listed = listed.text();
    for path in [
        "./usr/bin/procd",
        "./usr/bin/procctl",
        "./usr/lib/systemd/user/procd.service",
        "./usr/lib/systemd/user/procd.socket",
        "./usr/share/bash-completion/completions/procctl",
        "./usr/share/zsh/vendor-completions/_procctl",
        "./usr/share/fish/vendor_completions.d/procctl.fish",
        "./usr/share/man/man1/procctl.1.gz",
        "./usr/share/man/man1/procctl-attach.1.gz",
        "./usr/share/doc/procd/OPERATIONS.md",
        "./usr/share/doc/procd/examples/config.toml",
        "./usr/share/doc/procd/copyright",
    ] {
        assert!(listed.lines().any(|line| line.ends_with(path)), "no {path} in\n{listed}");
    }
    assert!(!listed.contains("guardian") && !listed.contains("probe"), "{listed}");
    let fields = done(binaries::command("dpkg-deb"), &["--field", package.to_str().unwrap()]);
    assert!(fields.text().contains("Package: procd\n"), "{fields:?}");
}

#[test]
fn the_install_target_puts_the_same_in_place_below_its_prefix() {
    let folder = Folder::new();
    let mut command = binaries::command(root().join("packaging/install.sh"));
    command.env("BIN", binaries::folder()).env("PREFIX", "/usr/local");
    done(command, &[folder.path().to_str().unwrap()]);
    let prefix = folder.path().join("usr/local");
    let ran = done(binaries::command(prefix.join("bin/procctl")), &["--version"]);
    assert!(ran.text().starts_with("procctl "), "{ran:?}");
    let unit = std::fs::read_to_string(prefix.join("lib/systemd/user/procd.service")).unwrap();
    assert!(unit.contains("/usr/local/bin/procd"), "{unit}");
    for path in ["share/man/man1/procctl.1.gz", "share/bash-completion/completions/procctl"] {
        assert!(prefix.join(path).is_file(), "no {path}");
    }
}
