//! A folder of its own for each test, with a path short enough for a socket.

use std::{
    fs,
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
};

/// Removed with everything in it when dropped.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// Makes a fresh one, 0700.
    /// # Panics
    /// When it cannot be made.
    #[must_use]
    #[expect(clippy::expect_used, reason = "this is how a test fails")]
    pub fn new() -> Self {
        let name = uuid::Uuid::new_v4().simple().to_string();
        let path = std::env::temp_dir().join(format!("pt-{}", name.get(..12).unwrap_or(&name)));
        fs::DirBuilder::new().mode(0o700).create(&path).expect("make the test's folder");
        Self(path)
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Default for Folder {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}
