//! Which role may call which method. Source: spec, protocol, *Who may connect*.

use procd_protocol::v1::Method;
use procd_protocol::{ErrorBody, ErrorCode};

use crate::session::Role;

/// The roles that may call a method: (before either, owner, operator).
const fn may_call(method: Method) -> (bool, bool, bool) {
    match method {
        Method::Hello | Method::DaemonStatus => (true, true, true),
        Method::SessionOpen | Method::SessionAttach | Method::OperatorAttach => {
            (true, false, false)
        }
        Method::ProcessStart
        | Method::ProcessInput
        | Method::ProcessPin
        | Method::SessionClose
        | Method::LeaseAcquire
        | Method::LeaseRelease
        | Method::NotificationsAck => (false, true, false),
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
        | Method::EventsUnsubscribe => (false, true, true),
        Method::SessionList
        | Method::DaemonMetrics
        | Method::DaemonReload
        | Method::DaemonShutdown => (false, false, true),
    }
}

/// Whether `role` may call `method`.
pub(super) const fn permits(role: Role, method: Method) -> bool {
    let (unbound, owner, operator) = may_call(method);
    match role {
        Role::Unbound => unbound,
        Role::Owner => owner,
        Role::Operator => operator,
    }
}

/// The refusal.
pub(super) fn denied(role: Role, method: Method) -> ErrorBody {
    let text = match role {
        Role::Unbound => format!("`{method}` needs a session or an operator's attach first"),
        Role::Owner => format!("an owner may not call `{method}`"),
        Role::Operator => format!("an operator may not call `{method}`"),
    };
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
}
