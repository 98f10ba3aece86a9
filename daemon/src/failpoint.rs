//! The named points of the fault tests, the same as in the store: see there for what they can be
//! told to do. Absent from release builds: without the feature `failpoints` they are nothing.

pub use procd_store::failpoint::{hit, is_armed, value};
