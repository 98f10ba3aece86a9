//! Come back, and be told once what has ended.
#![expect(clippy::print_stdout, reason = "an example that shows what happens")]

use procd_client::{Client, ClientError, Connect, Credentials, Session, protocol::ProcessId};

/// One run of an agent: it starts a build and goes away.
async fn begin(client: Client) -> Result<(Credentials, ProcessId), ClientError> {
    let session = Session::open(client).await?;
    let build = session.shell("echo compiling; echo ok").background().start().await?;
    // To be kept somewhere safe: whoever has the credentials is the session.
    Ok((session.credentials().clone(), build.id()))
}

/// The next run: it has the credentials and the handle.
async fn come_back(client: Client, kept: (Credentials, ProcessId)) -> Result<(), ClientError> {
    let (credentials, build) = kept;
    let session = Session::attach(client, credentials).await?;
    let mut completions = session.notifications().await?;
    let completion = completions.next().await?;
    completions.accept(&completion).await?;
    println!("{} {}", completion.process_id == build, completion.state);

    let mut follow = session.process(build).follow();
    while let Some(page) = follow.next().await? {
        print!("{}", page.output.unwrap_or_default());
    }
    session.close(None).await.map(drop)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), ClientError> {
    let connect = Connect::new().private_daemon(true);
    let kept = begin(connect.connect().await?).await?;
    come_back(connect.connect().await?, kept).await
}

// prints: true exited
// prints: compiling
// prints: ok
