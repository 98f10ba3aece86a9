//! Whose calls a connection makes: bound once, by opening or attaching, and for life. Nothing
//! inside a later request can widen or change it.
//! Source: spec, protocol, *Who may connect*; lifecycle, *Sessions and owners*.

use std::sync::{Arc, Mutex, PoisonError};

use procd_core::Owner;

use crate::supervisor::view::WaiterSlots;
use crate::supervisor::{Attachment, Caller};

/// What a connection is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Neither yet.
    Unbound,
    /// One owner.
    Owner,
    /// An operator.
    Operator,
}

/// What a connection was bound to.
#[derive(Debug, Clone)]
pub enum Bound {
    /// One owner.
    Owner {
        /// Session and loop.
        owner: Owner,
        /// The blocking calls of the session.
        waiters: WaiterSlots,
        /// Stops the idle clock of the session while it exists.
        attachment: Arc<Attachment>,
    },
    /// An operator.
    Operator {
        /// The blocking calls of this connection.
        waiters: WaiterSlots,
        /// Why, unless a call says it.
        reason: Option<String>,
        /// What it holds ends with it.
        attachment: Arc<Attachment>,
    },
}

impl Bound {
    /// On whose behalf calls are made.
    #[must_use]
    pub const fn caller(&self) -> Caller {
        match self {
            Self::Owner { owner, .. } => Caller::Owner(*owner),
            Self::Operator { .. } => Caller::Operator,
        }
    }

    /// The number of the connection.
    #[must_use]
    pub fn connection(&self) -> u64 {
        match self {
            Self::Owner { attachment, .. } | Self::Operator { attachment, .. } => {
                attachment.connection()
            }
        }
    }

    /// The slots for blocking calls.
    #[must_use]
    pub const fn waiters(&self) -> &WaiterSlots {
        match self {
            Self::Owner { waiters, .. } | Self::Operator { waiters, .. } => waiters,
        }
    }
}

/// The binding of one connection.
#[derive(Debug, Default)]
pub struct Binding(Mutex<State>);

#[derive(Debug, Default)]
enum State {
    #[default]
    Unbound,
    /// A request is about to bind it: a second one at the same time is refused.
    Claimed,
    Bound(Bound),
}

/// The connection is bound, or about to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AlreadyBound;

impl Binding {
    fn with<T>(&self, look: impl FnOnce(&mut State) -> T) -> T {
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The role it has.
    pub fn role(&self) -> Role {
        self.with(|state| match state {
            State::Unbound | State::Claimed => Role::Unbound,
            State::Bound(Bound::Owner { .. }) => Role::Owner,
            State::Bound(Bound::Operator { .. }) => Role::Operator,
        })
    }

    /// What it was bound to, if it was.
    pub fn bound(&self) -> Option<Bound> {
        self.with(|state| match state {
            State::Unbound | State::Claimed => None,
            State::Bound(bound) => Some(bound.clone()),
        })
    }

    /// Claims the one binding; given back if the claim is dropped without binding.
    /// # Errors
    /// [`AlreadyBound`].
    pub fn claim(&self) -> Result<Claim<'_>, AlreadyBound> {
        self.with(|state| match state {
            State::Unbound => {
                *state = State::Claimed;
                Ok(Claim(self))
            }
            State::Claimed | State::Bound(_) => Err(AlreadyBound),
        })
    }
}

/// The right to bind a connection.
#[derive(Debug)]
pub struct Claim<'b>(&'b Binding);

impl Claim<'_> {
    /// Binds the connection for life.
    pub fn bind(self, bound: Bound) {
        self.0.with(|state| *state = State::Bound(bound));
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.0.with(|state| {
            if matches!(state, State::Claimed) {
                *state = State::Unbound;
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operator() -> Bound {
        let attachment = Attachment::detached();
        Bound::Operator { waiters: WaiterSlots::new(1), reason: None, attachment }
    }

    #[test]
    fn a_connection_is_bound_once_and_a_failed_claim_leaves_it_free() {
        let binding = Binding::default();
        let claim = binding.claim().unwrap();
        assert_eq!(binding.claim().unwrap_err(), AlreadyBound);
        assert_eq!(binding.role(), Role::Unbound);
        drop(claim);
        binding.claim().unwrap().bind(operator());
        assert_eq!(binding.role(), Role::Operator);
        assert_eq!(binding.claim().unwrap_err(), AlreadyBound);
        assert_eq!(binding.bound().unwrap().caller(), Caller::Operator);
    }
}
