//! Which role may call which method, as a table that a new method must enter: there is no arm for
//! the rest. Source: spec, protocol, *Who may connect*.

use procd_protocol::v1::Method;
use procd_protocol::{ErrorBody, ErrorCode};

use crate::session::Role;

/// What a connection may become, for life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// Owner or operator.
    Free,
    /// Of a process that this daemon supervises, and whose start allowed it: an owner at most.
    Supervised,
}

/// Before either role.
const UNBOUND: u8 = 1;
const OWNER: u8 = 2;
const OPERATOR: u8 = 4;
/// A supervised process too, in the roles beside.
const SUPERVISED: u8 = 8;

/// Who may call a method.
const fn allowed(method: Method) -> u8 {
    match method {
        Method::Hello | Method::DaemonStatus => UNBOUND | OWNER | OPERATOR | SUPERVISED,
        Method::SessionOpen | Method::SessionAttach => UNBOUND | SUPERVISED,
        Method::OperatorAttach => UNBOUND,
        Method::ProcessStart
        | Method::ProcessInput
        | Method::ProcessPin
        | Method::SessionClose
        | Method::LeaseAcquire
        | Method::LeaseRelease
        | Method::NotificationsAck => OWNER | SUPERVISED,
        Method::ProcessList
        | Method::SessionStopAll
        | Method::ProcessInspect
        | Method::ProcessStop
        | Method::ProcessSignal
        | Method::ProcessRemove
        | Method::ProcessOutput
        | Method::ProcessSearch
        | Method::ProcessExport
        | Method::EventsSubscribe
        | Method::EventsAck
        | Method::EventsUnsubscribe => OWNER | OPERATOR | SUPERVISED,
        Method::SessionList
        | Method::DaemonMetrics
        | Method::DaemonReload
        | Method::DaemonShutdown => OPERATOR,
    }
}

/// Whether a connection in `role` may call `method`.
const fn permits(role: Role, method: Method) -> bool {
    let wanted = match role {
        Role::Unbound => UNBOUND,
        Role::Owner => OWNER,
        Role::Operator => OPERATOR,
    };
    allowed(method) & wanted != 0
}

/// Lets a call pass.
/// # Errors
/// `permission_denied`, with why.
pub(super) fn check(standing: Standing, role: Role, method: Method) -> Result<(), ErrorBody> {
    let is_open = match standing {
        Standing::Free => true,
        Standing::Supervised => allowed(method) & SUPERVISED != 0,
    };
    match (is_open, permits(role, method)) {
        (true, true) => Ok(()),
        (false, _) => Err(denied(format!("a supervised process may not call `{method}`"))),
        (true, false) => Err(denied(match role {
            Role::Unbound => format!("`{method}` needs a session or an operator's attach first"),
            Role::Owner => format!("an owner may not call `{method}`"),
            Role::Operator => format!("an operator may not call `{method}`"),
        })),
    }
}

fn denied(text: String) -> ErrorBody {
    ErrorBody::new(ErrorCode::PermissionDenied, text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use procd_protocol::words::Word;

    #[test]
    fn a_connection_binds_once_and_each_role_has_its_methods() {
        for &method in Method::ALL {
            let permitted = |role| permits(role, method);
            let binds = matches!(
                method,
                Method::SessionOpen | Method::SessionAttach | Method::OperatorAttach
            );
            assert!(!binds || !(permitted(Role::Owner) || permitted(Role::Operator)), "{method}");
            let before = binds || matches!(method, Method::Hello | Method::DaemonStatus);
            assert_eq!(permitted(Role::Unbound), before, "{method}");
        }
        assert!(!permits(Role::Operator, Method::ProcessInput));
        assert!(!permits(Role::Operator, Method::ProcessStart));
        assert!(!permits(Role::Owner, Method::DaemonShutdown));
        assert!(permits(Role::Operator, Method::ProcessStop));
    }

    #[test]
    fn a_supervised_client_has_what_an_owner_has_and_no_more() {
        for &method in Method::ALL {
            for role in [Role::Unbound, Role::Owner] {
                let is_operators = method == Method::OperatorAttach || !permits(role, method);
                let passes = check(Standing::Supervised, role, method).is_ok();
                assert_eq!(passes, !is_operators, "{method} {role:?}");
            }
            let text = check(Standing::Supervised, Role::Owner, method);
            assert!(text.is_ok() || text.is_err_and(|e| e.code == ErrorCode::PermissionDenied));
        }
    }
}
