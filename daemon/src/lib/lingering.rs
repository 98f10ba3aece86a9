//! Whether everything ends with the login: under systemd a user's processes do, unless lingering
//! is on. A hint for people, nothing depends on it.

use std::path::Path;

/// The hint for the user `uid`, whose processes live in `control_group`; `root` is `/`.
#[must_use]
pub fn hint(root: &Path, uid: u32, control_group: &str) -> Option<String> {
    let ends_with_login = control_group.contains("/user.slice/");
    if uid == 0 || !ends_with_login || !root.join("run/systemd/system").is_dir() {
        return None;
    }
    let users = std::fs::read_to_string(root.join("etc/passwd")).ok()?;
    let user = users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(uid)).then_some(name)
    })?;
    if root.join("var/lib/systemd/linger").join(user).exists() {
        return None;
    }
    Some(
        "lingering is off: the daemon and every process end when you log out; \
         `loginctl enable-linger` keeps them"
            .to_owned(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_told_where_a_login_ends_everything_and_lingering_is_off() {
        let root = std::env::temp_dir().join(format!("procd-linger-{}", uuid::Uuid::new_v4()));
        let make = |path: &str| std::fs::create_dir_all(root.join(path)).unwrap();
        make("etc");
        std::fs::write(
            root.join("etc/passwd"),
            "root:x:0:0::/:/bin/sh\nuser:x:1000:1000::/:/bin/sh\n",
        )
        .unwrap();
        let group = "0::/user.slice/user-1000.slice/user@1000.service/app.slice/procd.service\n";
        assert_eq!(hint(&root, 1000, group), None, "no systemd");
        make("run/systemd/system");
        let told = hint(&root, 1000, group).unwrap();
        assert!(told.contains("lingering is off") && told.contains("loginctl enable-linger"));
        assert_eq!(hint(&root, 0, group), None, "root has no login to end with");
        assert_eq!(hint(&root, 1001, group), None, "nobody of that number");
        assert_eq!(hint(&root, 1000, "0::/system.slice/procd.service\n"), None);
        make("var/lib/systemd/linger/user");
        assert_eq!(hint(&root, 1000, group), None, "it is on");
        std::fs::remove_dir_all(&root).unwrap();
    }
}
