//! The deliberate breaks of `cargo xtask mutants`: each says what it breaks, applies to the sources as they are, and names a
//! test that is there.

use super::{assert_clean, files, read, root};
use crate::binaries;

/// Fewer prove nothing, a count.
const COUNT_MIN: usize = 60;

fn header<'a>(text: &'a str, name: &str) -> &'a str {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|rest| rest.strip_prefix(": ")).unwrap_or_default()
}

/// The folder of a package of the workspace.
fn folder_of(package: &str) -> Option<String> {
    let name = format!("name = \"{package}\"");
    let manifests = files(&["protocol", "crates", "daemon", "tests"], "Cargo.toml");
    let own = manifests.into_iter().find(|path| read(path).lines().any(|line| line == name))?;
    Some(own.parent()?.to_string_lossy().into_owned())
}

/// Whether a package has a test of that name; a test of both tiers is named by its tier at last, one
/// of a matrix by its row.
fn has_test(package: &str, test: &str) -> bool {
    let mut names = test.rsplit("::").filter(|name| !["shim", "cgroup"].contains(name));
    let (Some(folder), Some(name)) = (folder_of(package), names.next()) else { return false };
    let (begins, row) = (format!("fn {name}("), format!("\n    {name}: "));
    let has_it = |text: &str| text.contains(&begins) || text.contains(&row);
    test == "*" || files(&[&folder], ".rs").iter().any(|path| has_it(&read(path)))
}

#[test]
fn every_break_applies_and_names_a_test_that_is_there() {
    let patches = files(&["tests/mutants"], ".patch");
    let mut findings = Vec::new();
    for path in &patches {
        let text = read(path);
        let words: Vec<&str> = header(&text, "test").split(' ').collect();
        let (package, test) = (words.first().unwrap_or(&""), words.last().unwrap_or(&""));
        let mut git = binaries::command("git");
        git.args(["apply", "--check"]).arg(root().join(path)).current_dir(root());
        let checked = git.output().unwrap();
        let rules = [
            ("says what it breaks", !header(&text, "breaks").is_empty()),
            ("says which promise", !header(&text, "promise").is_empty()),
            ("names a test that is there", has_test(package, test)),
            ("applies", checked.status.success()),
        ];
        let broken = rules.iter().filter(|(_, holds)| !holds);
        findings.extend(broken.map(|(rule, _)| format!("{}: never {rule}", path.display())));
    }
    assert!(patches.len() >= COUNT_MIN, "{} breaks", patches.len());
    assert_clean("deliberate breaks", &findings);
}
