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
mod follow;
mod launch;
mod link;
mod operator;
pub mod places;
mod process;
mod session;

pub use command::Command;
pub use connect::{Client, Connect};
pub use error::ClientError;
pub use follow::Follow;
pub use operator::Operator;
pub use process::Process;
pub use session::{Credentials, Session};

pub use procd_protocol as protocol;

#[cfg(test)]
mod scripted;
