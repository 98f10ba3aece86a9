//! Black-box tests against the built binaries.
#[test]
fn x() {}
