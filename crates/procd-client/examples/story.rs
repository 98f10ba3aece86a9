//! The life of a server in ten steps: `cargo run -p procd-client --example story`.
#![expect(clippy::print_stdout, reason = "an example that shows what happens")]

use procd_client::{ClientError, Connect, Process, Session};

const SERVER: &str = r#"trap 'echo bye; exit' TERM
echo listening on port 8080
read -r line && echo "$line"
tail -f /dev/null & wait"#;

async fn whole(server: Process) -> Result<String, ClientError> {
    let (mut follow, mut text) = (server.follow(), String::new());
    while let Some(page) = follow.next().await? {
        text += &page.output.unwrap_or_default();
    }
    Ok(text)
}

pub(crate) async fn story(connect: Connect) -> Result<(Session, String, String), ClientError> {
    let session = Session::open(connect.connect().await?).await?;
    let mut completions = session.notifications().await?;
    // 1. Start a server, once, whatever happens to the answer.
    let server = session.shell(SERVER).background().label("web").start().await?;
    // 2. Wait until it says that it listens.
    let listening = server.wait_for("listening on port [0-9]+\n").await?;
    let behind = listening.found().map_or(0, |found| found.end_cursor);
    // 3. Send it input. As the last of its input it can be sent again, and arrives once.
    server.write_last("hello\n").await?;
    // 4. Read by cursor, from behind that line on.
    let mut answer = server.follow().from(behind.try_into().unwrap_or(0));
    let answer = answer.next().await?.and_then(|page| page.output).unwrap_or_default();
    // 5. Follow the output from its first byte on, beside everything else.
    let following = tokio::spawn(whole(server.clone()));
    // 6. Lose the connection. The follow goes on at its cursor over a new one.
    session.disconnect().await;
    // 7. Resume: whoever has the credentials comes back, another program too.
    let other = Session::attach(connect.connect().await?, session.credentials().clone()).await?;
    // 8. Stop it. Answered when its whole tree is gone.
    other.process(server.id()).stop().await?;
    // 9. Be told of the completion, once: what is accepted never comes again.
    let completion = completions.next().await?;
    completions.accept(&completion).await?;
    // 10. Export the bytes that are kept.
    let mut exported = Vec::new();
    server.export().write_to(&mut exported).await?;
    let followed = following.await.unwrap_or_else(|_gone| Ok(String::new()))?;
    let told = format!("{answer}{} {}\n{followed}", completion.process_id, completion.state);
    Ok((session, told, String::from_utf8_lossy(&exported).into_owned()))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), ClientError> {
    let (session, told, exported) = story(Connect::new().private_daemon(true)).await?;
    print!("{told}---\n{exported}");
    session.close(None).await.map(drop)
}
