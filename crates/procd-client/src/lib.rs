//! Thin client of procd: connect (starting a private daemon when asked to), call, follow. No
//! policy: what a call means is the daemon's.
//!
//! ```no_run
//! # async fn example() -> Result<(), procd_client::ClientError> {
//! use procd_client::{Client, Session};
//!
//! let session = Session::open(Client::connect().await?).await?;
//! let process = session.command("make").arg("test").cwd("/src").background().start().await?;
//! let mut output = process.follow();
//! while let Some(page) = output.next().await? {
//!     print!("{}", page.output.unwrap_or_default());
//! }
//! println!("{:?}", process.wait().await?.exit_code);
//! # Ok(())
//! # }
//! ```

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod command;
mod connect;
mod connection;
mod error;
mod events;
mod export;
mod follow;
mod launch;
mod lease;
mod link;
mod notifications;
mod operator;
pub mod places;
mod process;
mod session;
mod stream;
mod wait;

pub use command::Command;
pub use connect::{Client, Connect};
pub use error::{ClientError, SharedIo};
pub use events::{Events, EventsRequest, Numbered};
pub use export::{Export, Exported, Piece};
pub use follow::Follow;
pub use lease::{Lease, LeaseRequest};
pub use notifications::Notifications;
pub use operator::Operator;
pub use process::Process;
pub use session::{Credentials, Session};
pub use wait::{End, WaitFor, Waited};

pub use procd_protocol as protocol;

/// The first example of the README compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

#[cfg(test)]
mod scripted;
#[cfg(test)]
mod transcripts;
