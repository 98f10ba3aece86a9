//! Run a command, and do not lose patience.
#![expect(clippy::print_stdout, reason = "an example that shows what happens")]

use std::time::Duration;

use procd_client::{ClientError, Connect, Session};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), ClientError> {
    let session = Session::open(Connect::new().private_daemon(true).connect().await?).await?;

    // Done within the budget: the result is complete.
    let quick = session.shell("echo built; exit 2").yield_time(Duration::from_secs(30));
    let quick = quick.start().await?;
    if let Some(reply) = quick.reply() {
        println!("{} {:?} {:?}", reply.page.state, reply.page.exit_code, reply.page.output);
    }

    // Not done: it is handed over, with its handle and the output so far.
    let slow = session.shell("echo begun; read -r line; echo $line");
    let slow = slow.yield_time(Duration::from_millis(200)).start().await?;
    if let Some(reply) = slow.reply() {
        println!("{}", reply.page.state);
    }
    slow.write_last("go on\n").await?;
    println!("{:?}", slow.end().await?);

    // What could not be started at all is an error with its cause.
    if let Err(error) = session.command("no-such-program").start().await {
        println!("{:?}", error.details().and_then(|details| details.cause.as_deref()));
    }
    session.close(None).await.map(drop)
}

// prints: exited Some(2) Some("built\n")
// prints: running
// prints: Exited { code: 0 }
// prints: Some("no_such_program")
