//! What a failed start means, by its stage and errno.

use procd_sys::message::Stage;
use rustix::io::Errno;

use super::materials::system_cause;
use super::plan::folder_cause;
use crate::supervisor::runner::{SpawnCause, SpawnFailure};

/// There is no guardian, or no shim came to be.
pub(super) const NO_GUARDIAN: SpawnFailure = SpawnFailure { cause: SpawnCause::Guardian, errno: 0 };
/// It came to nothing, and nothing says why.
pub(super) const UNKNOWN: SpawnFailure = SpawnFailure { cause: SpawnCause::Other, errno: 0 };

/// The failure of a start that was reported.
/// - `is_group`: whether the clone joined a control group.
pub(super) fn of(stage: Stage, errno: i32, is_group: bool) -> SpawnFailure {
    let kind = Errno::from_raw_os_error(errno);
    let cause = match stage {
        Stage::Body => system_or(errno, SpawnCause::Guardian),
        Stage::Clone if is_group && kind != Errno::AGAIN => {
            system_or(errno, SpawnCause::ControlGroup)
        }
        Stage::Clone => system_cause(errno),
        Stage::Setup => system_cause(errno),
        Stage::Folder => folder_cause(kind),
        Stage::Exec => exec_cause(kind),
        Stage::Fence => SpawnCause::Fence,
        Stage::Isolation => system_or(errno, SpawnCause::Isolation),
    };
    SpawnFailure { cause, errno }
}

/// What a want of the system's means; anything else is the fault of `blamed`.
pub(super) fn system_or(errno: i32, blamed: SpawnCause) -> SpawnCause {
    let cause = system_cause(errno);
    if cause == SpawnCause::Other { blamed } else { cause }
}

fn exec_cause(errno: Errno) -> SpawnCause {
    match errno {
        Errno::NOENT | Errno::NOTDIR => SpawnCause::NoSuchProgram,
        Errno::ACCESS | Errno::PERM => SpawnCause::NotExecutable,
        Errno::NOEXEC => SpawnCause::BadFormat,
        other => system_cause(other.raw_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_stage_and_errno_has_its_cause() {
        let cause = |stage, errno: Errno| of(stage, errno.raw_os_error(), true).cause;
        assert_eq!(cause(Stage::Exec, Errno::NOENT), SpawnCause::NoSuchProgram);
        assert_eq!(cause(Stage::Exec, Errno::ACCESS), SpawnCause::NotExecutable);
        assert_eq!(cause(Stage::Exec, Errno::NOEXEC), SpawnCause::BadFormat);
        assert_eq!(cause(Stage::Exec, Errno::TOOBIG), SpawnCause::ArgumentListTooLong);
        assert_eq!(cause(Stage::Exec, Errno::NOMEM), SpawnCause::OutOfMemory);
        assert_eq!(cause(Stage::Folder, Errno::NOENT), SpawnCause::CwdMissing);
        assert_eq!(cause(Stage::Folder, Errno::ACCESS), SpawnCause::CwdDenied);
        assert_eq!(cause(Stage::Folder, Errno::NOTDIR), SpawnCause::CwdNotDirectory);
        assert_eq!(cause(Stage::Clone, Errno::NODEV), SpawnCause::ControlGroup);
        assert_eq!(cause(Stage::Clone, Errno::AGAIN), SpawnCause::Other);
        assert_eq!(cause(Stage::Body, Errno::MFILE), SpawnCause::OutOfDescriptors);
        assert_eq!(cause(Stage::Body, Errno::BADMSG), SpawnCause::Guardian);
    }
}
