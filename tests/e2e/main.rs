//! Black-box tests against the built binaries.
#![forbid(unsafe_code)]
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "this crate is nothing but tests"
)]

/// A test of each tier; where a machine has no tier 1, that half says so.
macro_rules! both_tiers {
    ($($(#[$meta:meta])* fn $name:ident($tier:ident) $body:block)+) => {$(
        $(#[$meta])*
        mod $name {
            use super::*;

            fn case($tier: Tier) $body

            #[test]
            fn cgroup() {
                if crate::is_here(Tier::Cgroup) {
                    case(Tier::Cgroup);
                }
            }

            #[test]
            fn shim() {
                case(Tier::Shim);
            }
        }
    )+};
}

/// The same, each alone in a PID namespace of its own: for tests that kill or flood.
macro_rules! both_tiers_inside {
    ($($(#[$meta:meta])* fn $name:ident($tier:ident) $body:block)+) => {$(
        $(#[$meta])*
        mod $name {
            use super::*;

            fn case($tier: Tier) $body

            #[test]
            fn cgroup() {
                if !procd_tests::namespace::has_run_inside(module_path!(), "cgroup") && crate::is_here(Tier::Cgroup) {
                    case(Tier::Cgroup);
                }
            }

            #[test]
            fn shim() {
                if !procd_tests::namespace::has_run_inside(module_path!(), "shim") {
                    case(Tier::Shim);
                }
            }
        }
    )+};
}

mod access;
mod bad_input;
mod children;
mod classification;
mod clients;
mod combined;
mod containment;
mod damage;
mod disk;
mod documents;
mod endurance;
mod environment;
mod faults;
mod field;
mod field_cases;
mod foreign;
mod hostile;
mod input;
mod isolation;
mod journal;
mod kept;
mod leases;
mod lifecycle;
mod limits;
mod notices;
mod operate;
mod operators;
mod output;
mod peers;
mod private_log;
mod protocol;
mod races;
mod real_work;
mod recovery;
mod resources;
mod screens;
mod signals;
mod slow;
mod soak;
#[path = "../soak/cases.rs"]
mod soak_cases;
mod spool_disk;
mod stop;
mod stored;
mod terminal;
mod transcripts;
mod until;
mod waits;

use procd_tests::Tier;

/// Whether this machine has the tier; says so when not.
fn is_here(tier: Tier) -> bool {
    let is_here = tier.is_here();
    if !is_here {
        procd_tests::skip("no delegated control group on this machine");
    }
    is_here
}
