//! What docs/FIELD-CASES.md and docs/LAWS.md name exists: each case and each law has its row, and each test that a row names is there.

use std::path::{Path, PathBuf};

use super::{assert_clean, read, root};

/// The cases of the field, by number.
const CASES: [u32; 101] = [
    1, 2, 4, 6, 7, 9, 11, 12, 14, 16, 17, 19, 21, 22, 24, 26, 27, 29, 31, 32, 34, 36, 37, 39, 41,
    42, 44, 46, 47, 49, 51, 52, 54, 56, 57, 59, 61, 62, 64, 66, 67, 69, 71, 72, 74, 76, 77, 79, 81,
    82, 84, 86, 87, 89, 91, 92, 94, 96, 97, 99, 101, 102, 104, 106, 107, 109, 111, 112, 114, 116,
    117, 119, 121, 122, 124, 126, 127, 129, 131, 132, 134, 136, 137, 139, 141, 142, 144, 146, 147,
    149, 151, 152, 154, 156, 157, 159, 161, 162, 164, 166, 167,
];
/// Themes of the cases, and trials beside those that were reported, a theme.
const THEMES: usize = 18;
const NEIGHBOURS: usize = 3;
const LAWS: usize = 11;

/// Rows of a table whose first cell is `first`.
fn rows<'t>(text: &'t str, first: &str) -> Vec<&'t str> {
    let opening = format!("| {first} |");
    text.lines().filter(|line| line.starts_with(&opening)).collect()
}

/// What stands between backticks and names a test.
fn tests(row: &str) -> Vec<&str> {
    row.split('`').skip(1).step_by(2).filter(|word| word.contains("::")).collect()
}

/// The file that holds a test: named by its path, or by its module among the black-box tests.
fn file(test: &str) -> PathBuf {
    if test.contains('/') {
        return test.split("::").next().unwrap_or_default().into();
    }
    let module = test.rsplit_once("::").map_or(test, |(module, _)| module);
    if module == "soak_cases" {
        return "tests/soak/cases.rs".into();
    }
    Path::new("tests/e2e").join(module.replace("::", "/")).with_extension("rs")
}

/// Whether the test is there: a function, or a cell of a macro's table.
fn is_there(test: &str) -> bool {
    let path = file(test);
    let name = test.rsplit("::").next().unwrap_or_default();
    root().join(&path).is_file() && {
        let text = read(&path);
        let forms = [format!("fn {name}("), format!("def {name}("), format!(" {name}: ")];
        forms.iter().any(|form| text.contains(form))
    }
}

fn missing(document: &str) -> Vec<String> {
    let text = read(Path::new(document));
    let rows = text.lines().filter(|line| line.starts_with("| "));
    let named = rows.flat_map(tests);
    named.filter(|test| !is_there(test)).map(|test| format!("{document}: `{test}`")).collect()
}

#[test]
fn each_field_case_has_its_row_and_its_test() {
    let document = "docs/FIELD-CASES.md";
    let text = read(Path::new(document));
    let mut findings = missing(document);
    for case in CASES {
        let name = format!("C{case:02}");
        let rows = rows(&text, &name);
        let [row] = rows[..] else {
            findings.push(format!("{name}: {} rows", rows.len()));
            continue;
        };
        let says_so = |test: &&str| {
            let path = file(test);
            root().join(&path).is_file() && has_word(&read(&path), &name)
        };
        if !tests(row).iter().any(says_so) {
            findings.push(format!("{name}: no test that it names says the number"));
        }
    }
    for theme in 1..=THEMES {
        let rows = rows(&text, &format!("N{theme}"));
        if rows.len() != NEIGHBOURS {
            findings.push(format!("N{theme}: {} neighbours", rows.len()));
        }
        findings
            .extend(rows.iter().filter(|row| tests(row).is_empty()).map(|row| (*row).to_owned()));
    }
    assert_clean("field cases", &findings);
}

/// Whether the number is there and not the beginning of another.
fn has_word(text: &str, name: &str) -> bool {
    text.split(name).skip(1).any(|rest| !rest.starts_with(|next: char| next.is_ascii_digit()))
}

#[test]
fn each_law_names_tests_that_try_to_break_it() {
    let document = "docs/LAWS.md";
    let text = read(Path::new(document));
    let mut findings = missing(document);
    for law in 1..=LAWS {
        let rows = rows(&text, &law.to_string());
        if rows.len() != 1 || rows.iter().any(|row| tests(row).len() < 2) {
            findings.push(format!("law {law}: {rows:?}"));
        }
    }
    assert_clean("laws", &findings);
}
