//! A command that is put together and then started.

use std::sync::Arc;
use std::time::Duration;

use procd_protocol::OriginId;
use procd_protocol::v1::{
    Env, Method, OnLeaderExit, Plan, PlanResult, StartParams, Stdin, WorkspaceClaim,
};
use procd_protocol::words::Word;
use uuid::Uuid;

use crate::connection::OnDrop;
use crate::error::ClientError;
use crate::link::{Link, Repeat};
use crate::process::{Process, millis};

/// A command to start. What is not said is as the daemon has it by default: wait for the end,
/// no deadline, stdin from /dev/null.
#[derive(Debug, Clone)]
#[must_use = "it does nothing before it is started"]
pub struct Command {
    link: Arc<Link>,
    params: StartParams,
    on_drop: OnDrop,
}

impl Command {
    pub(crate) const fn new(link: Arc<Link>, params: StartParams) -> Self {
        Self { link, params, on_drop: OnDrop::Cancel }
    }

    /// One argument more. A shell's text takes none.
    pub fn arg(mut self, arg: impl Into<String>) -> Self {
        self.params.argv.get_or_insert_default().push(arg.into());
        self
    }

    /// More arguments.
    pub fn args<A: Into<String>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.params.argv.get_or_insert_default().extend(args.into_iter().map(Into::into));
        self
    }

    /// The working folder.
    pub fn cwd(mut self, folder: impl Into<String>) -> Self {
        self.params.cwd = Some(folder.into());
        self
    }

    /// Sets a variable.
    pub fn env(self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.variable(name.into(), Some(value.into()))
    }

    /// Removes a variable.
    pub fn env_remove(self, name: impl Into<String>) -> Self {
        self.variable(name.into(), None)
    }

    fn variable(mut self, name: String, value: Option<String>) -> Self {
        let Env(pairs) = self.params.env.get_or_insert_default();
        pairs.retain(|(known, _)| *known != name);
        pairs.push((name, value));
        self
    }

    /// Where stdin comes from.
    pub const fn stdin(mut self, stdin: Stdin) -> Self {
        self.params.stdin = Some(stdin);
        self
    }

    /// One pipe for stdout and stderr: their order is exact, and there are no tags.
    pub const fn merge_streams(mut self) -> Self {
        self.params.merge_streams = Some(true);
        self
    }

    /// Answered as soon as it runs.
    pub const fn background(mut self) -> Self {
        self.params.background = Some(true);
        self
    }

    /// Answered after so long at the latest; it runs on.
    pub fn yield_time(mut self, time: Duration) -> Self {
        self.params.yield_time_ms = Some(millis(time));
        self
    }

    /// The deadline of the process, from its spawn.
    pub fn timeout(mut self, time: Duration) -> Self {
        self.params.timeout_ms = Some(millis(time));
        self
    }

    /// What it is called, at most 128 characters.
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.params.label = Some(label.into());
        self
    }

    /// The tool execution it comes from.
    pub const fn origin(mut self, origin: OriginId) -> Self {
        self.params.origin = Some(origin);
        self
    }

    /// Its memory window, bytes.
    pub const fn memory_bytes(mut self, bytes: u64) -> Self {
        self.params.memory_bytes = Some(bytes);
        self
    }

    /// Its spool, bytes.
    pub const fn spool_bytes(mut self, bytes: u64) -> Self {
        self.params.spool_bytes = Some(bytes);
        self
    }

    /// Text of the reply, bytes.
    pub const fn limit_bytes(mut self, bytes: u64) -> Self {
        self.params.limit_bytes = Some(bytes);
        self
    }

    /// A terminal in place of pipes.
    pub const fn tty(mut self) -> Self {
        self.params.tty = Some(true);
        self
    }

    /// A terminal of this size, in characters, 1..=65535 each.
    pub fn tty_size(mut self, rows: u16, cols: u16) -> Self {
        self.params.tty = Some(true);
        self.params.rows = Some(rows.into());
        self.params.cols = Some(cols.into());
        self
    }

    /// Descendants that outlive the command are kept: it runs until its tree is empty.
    pub const fn keep_tree(mut self) -> Self {
        self.params.on_leader_exit = Some(OnLeaderExit::KeepTree);
        self
    }

    /// How long to wait for room; not at all if it is not said.
    pub fn queue_timeout(mut self, time: Duration) -> Self {
        self.params.queue_timeout_ms = Some(millis(time));
        self
    }

    /// A claim on a workspace, held until the end.
    pub fn workspace(mut self, claim: WorkspaceClaim) -> Self {
        self.params.workspace = Some(claim);
        self
    }

    /// An end that is no success is an error with its code: `timed_out`, `interrupted`,
    /// `terminated`, `killed`, `lost_on_restore`. A code that is not zero stays a result.
    pub const fn require_success(mut self) -> Self {
        self.params.require_success = Some(true);
        self
    }

    /// The key under which the start is done once, 1..=128 characters. One is made if none is
    /// given, so that a start whose answer is lost can be asked again; one of your own survives
    /// the end of this client.
    pub fn request_key(mut self, key: impl Into<String>) -> Self {
        self.params.request_key = Some(key.into());
        self
    }

    /// Dropping [`Self::start`] before it is answered leaves the process alone: it is in the list.
    pub const fn leave_on_drop(mut self) -> Self {
        self.on_drop = OnDrop::Leave;
        self
    }

    /// Every parameter, to be changed as one likes.
    pub const fn params(&mut self) -> &mut StartParams {
        &mut self.params
    }

    /// Starts it, once, also when the connection breaks meanwhile. Dropping this before it is
    /// answered stops the process, unless [`Self::leave_on_drop`] was said; dropping the
    /// [`Process`] never does.
    /// # Errors
    /// As [`Client::call`](crate::Client::call).
    pub async fn start(mut self) -> Result<Process, ClientError> {
        let random = || Uuid::new_v4().simple().to_string();
        self.params.request_key.get_or_insert_with(random);
        let reply = self.link.call(&self.params, Repeat::Safe, self.on_drop).await?;
        Ok(Process::started(self.link, reply))
    }

    /// What a start would be. Starts nothing.
    /// # Errors
    /// As [`Client::call`](crate::Client::call).
    pub async fn plan(mut self) -> Result<Plan, ClientError> {
        self.params.dry_run = Some(true);
        let client = self.link.client().await?;
        let raw = client.call_raw(Method::ProcessStart.as_str(), &self.params).await?;
        let read = serde_json::from_str(raw.get());
        read.map(|PlanResult { plan }| plan).map_err(|error| ClientError::nonsense(&error))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::scripted::{ID, Script, free, greeted, page, within};
    use crate::{Session, session::Credentials};

    #[tokio::test]
    async fn a_command_is_started_as_it_was_put_together() {
        let (client, mut daemon) = greeted().await;
        let script = async {
            let (id, params) = daemon.expect("session/open").await;
            assert!(params["session_key"].is_string());
            let answer = json!({ "session_id": params["session_id"], "loop_id": params["loop_id"],
                "free": free() });
            daemon.answer(id, answer).await;
            let (id, mut params) = daemon.expect("process/start").await;
            assert!(params["request_key"].take().is_string());
            let expected = json!({ "argv": ["make", "-j2", "test"], "cwd": "/src",
                "env": { "A": "2", "B": null }, "background": true, "timeout_ms": 1500,
                "request_key": null });
            assert_eq!(params, expected);
            let mut reply = page(0, 0, 0, "running");
            reply["origin"] = json!(uuid::Uuid::new_v4());
            reply["woke_by"] = json!("poll");
            daemon.answer(id, reply).await;
            let (id, params) = daemon.expect("process/input").await;
            assert_eq!(params, json!({ "process_id": ID, "data_base64": "AP8=" }));
            daemon.refuse(id, "stdin_closed").await;
            let (id, params) = daemon.expect("process/stop").await;
            assert_eq!(params, json!({ "process_id": ID, "mode": "terminate" }));
            daemon.answer(id, json!({ "process_id": ID, "state": "terminated" })).await;
        };
        let using = async {
            let session = Session::open(client).await.unwrap();
            let command = session.command("make").arg("-j2").arg("test").cwd("/src");
            let command = command.env("A", "1").env("A", "2").env_remove("B").background();
            let process =
                command.timeout(std::time::Duration::from_millis(1500)).start().await.unwrap();
            assert_eq!(process.id().to_string(), ID);
            assert!(process.write([0, 255]).await.is_err());
            process.stop().await.unwrap()
        };
        let (stopped, ()) = within(async { tokio::join!(using, script) }).await;
        assert_eq!(stopped.state.as_str(), "terminated");
    }

    #[tokio::test]
    async fn a_start_whose_answer_is_lost_is_made_again_under_its_key() {
        let script = Script::new();
        let daemon = async {
            let mut lost = script.opened().await;
            let (_, first) = lost.expect("process/start").await;
            drop(lost);
            let mut kept = script.attached().await;
            let (id, again) = kept.expect("process/start").await;
            assert!(first["request_key"].is_string());
            assert_eq!(first, again);
            let mut reply = page(0, 0, 0, "running");
            reply["origin"] = json!(uuid::Uuid::new_v4());
            reply["woke_by"] = json!("poll");
            kept.answer(id, reply).await;
            kept
        };
        let using = async {
            let session = script.session().await;
            session.command("make").background().start().await.unwrap().id()
        };
        let (id, _daemon) = within(async { tokio::join!(using, daemon) }).await;
        assert_eq!(id.to_string(), ID);
    }

    #[test]
    fn credentials_are_random_and_hide_their_key() {
        let (one, other) = (Credentials::random().unwrap(), Credentials::random().unwrap());
        assert_ne!(one, other);
        assert!(!format!("{one:?}").contains(&one.session_key.to_text()));
    }
}
