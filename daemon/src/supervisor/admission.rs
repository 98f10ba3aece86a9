//! Admission: the steps from a request to a running process, undone as a whole when one fails.

use super::api::Gate;
use super::refusal::Refusal;
use super::runner::StartRequest;

/// Resolves the working folder of a request against its session.
/// # Errors
/// `Invalid` for a relative folder in a session that declares no workspace.
pub(super) fn place(request: &mut StartRequest, gate: &Gate) -> Result<(), Refusal> {
    let first = gate.workspaces.first();
    match (&request.cwd, first) {
        (None, Some(workspace)) => request.cwd = Some(workspace.clone()),
        (Some(cwd), Some(workspace)) if cwd.is_relative() => {
            request.cwd = Some(workspace.join(cwd));
        }
        (Some(cwd), None) if cwd.is_relative() => {
            return Err(Refusal::Invalid {
                field: "cwd",
                message: "a relative `cwd` needs a session that declares a workspace".to_owned(),
            });
        }
        (None, None) | (Some(_), _) => {}
    }
    Ok(())
}
