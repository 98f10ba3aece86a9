//! Start a server, wait until it is up, use it, stop it.
#![expect(clippy::print_stdout, reason = "an example that shows what happens")]

use std::time::Duration;

use procd_client::{ClientError, Connect, End, Session};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), ClientError> {
    let session = Session::open(Connect::new().private_daemon(true).connect().await?).await?;
    let server = session.shell("echo listening on 8080; cat").background().label("web");
    let server = server.start().await?;

    let waited = server.wait_for("listening on [0-9]+").timeout(Duration::from_secs(60)).await?;
    match waited.found() {
        Some(found) => println!("{}", found.text),
        None => println!("it did not come up: {} {:?}", waited.woke_by, End::of(&waited.page)),
    }

    // Answered when nothing of its tree is left: the port is free.
    println!("{}", server.stop().await?.state);
    session.close(None).await.map(drop)
}

// prints: listening on 8080
// prints: terminated
