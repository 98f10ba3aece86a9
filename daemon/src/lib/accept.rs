//! Accepts clients, and keeps the socket in its place: removed under the daemon it is made
//! again; where that cannot be, or the state folder is gone, the daemon is told to end.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::time::Duration;

use procd_store::folder::StateFolder;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::task::JoinHandle;
use tokio_util::task::TaskTracker;

use crate::connection::{self, Refused, budget::Budgets};
use crate::request::{Client, Daemon};
use crate::socket::watch::FolderWatch;
use crate::socket::{Bound, peer};

/// Between two tries when the system has no descriptor for a client.
const EXHAUSTED: Duration = Duration::from_millis(100);

/// Before a removed socket is made again: whoever removes a whole folder is let finish.
const REMOVING: Duration = Duration::from_millis(200);

/// The accepting task.
#[derive(Debug)]
pub(crate) struct Accepting {
    /// Ends, with all connections, after the daemon's `ending`.
    pub(crate) tasks: JoinHandle<()>,
    /// Why the daemon has to end, if it has to.
    pub(crate) displaced: oneshot::Receiver<String>,
}

/// Starts accepting.
/// # Errors
/// The system gives no watch or descriptor.
pub(crate) fn start(
    socket: Bound,
    folder: Arc<StateFolder>,
    daemon: Arc<Daemon>,
) -> io::Result<Accepting> {
    let (displaced_sender, displaced) = oneshot::channel();
    let acceptor = Acceptor {
        listener: UnixListener::from_std(socket.listener()?)?,
        socket_watch: watch_of(&socket)?,
        folder_watch: FolderWatch::new(folder.path())?,
        socket: Some(socket),
        folder,
        slots: Arc::new(Semaphore::new(
            usize::try_from(daemon.limits().connections_max).unwrap_or(Semaphore::MAX_PERMITS),
        )),
        budgets: Arc::new(Budgets::new(daemon.limits().connections_max)),
        connections: TaskTracker::new(),
        own_uid: rustix::process::geteuid().as_raw(),
        daemon,
    };
    Ok(Accepting { tasks: tokio::spawn(acceptor.run(displaced_sender)), displaced })
}

fn watch_of(socket: &Bound) -> io::Result<FolderWatch> {
    FolderWatch::new(socket.path().parent().unwrap_or(socket.path()))
}

struct Acceptor {
    listener: UnixListener,
    socket: Option<Bound>,
    socket_watch: FolderWatch,
    folder: Arc<StateFolder>,
    folder_watch: FolderWatch,
    slots: Arc<Semaphore>,
    budgets: Arc<Budgets>,
    connections: TaskTracker,
    own_uid: u32,
    daemon: Arc<Daemon>,
}

/// What can happen while accepting.
enum Event {
    Client(io::Result<UnixStream>),
    SocketFolder(io::Result<()>),
    StateFolder(io::Result<()>),
    Ending,
}

impl Acceptor {
    async fn run(mut self, displaced: oneshot::Sender<String>) {
        let reason = self.accept().await;
        if let Some(reason) = reason {
            // Those who are connected are served until the end.
            drop(displaced.send(reason));
            self.daemon.ending.cancelled().await;
        }
        self.connections.close();
        self.connections.wait().await;
    }

    /// Accepts until the daemon ends; the reason when it has to end.
    async fn accept(&mut self) -> Option<String> {
        loop {
            let event = tokio::select! {
                accepted = self.listener.accept() => Event::Client(accepted.map(|(it, _)| it)),
                happened = self.socket_watch.happened() => Event::SocketFolder(happened),
                happened = self.folder_watch.happened() => Event::StateFolder(happened),
                () = self.daemon.ending.cancelled() => Event::Ending,
            };
            let kept = match event {
                Event::Client(Ok(stream)) => {
                    self.admit(stream);
                    Ok(())
                }
                Event::Client(Err(error)) => {
                    tracing::warn!(%error, "a client could not be accepted");
                    tokio::time::sleep(EXHAUSTED).await;
                    Ok(())
                }
                Event::SocketFolder(Ok(())) => self.keep_socket().await,
                Event::StateFolder(Ok(())) => self.keep_folder(),
                Event::SocketFolder(Err(error)) | Event::StateFolder(Err(error)) => {
                    Err(format!("a folder cannot be watched any more: {error}"))
                }
                Event::Ending => return None,
            };
            if let Err(reason) = kept {
                return Some(reason);
            }
        }
    }

    /// Makes the socket again if it is not in its place any more.
    async fn keep_socket(&mut self) -> Result<(), String> {
        if self.socket.as_ref().is_some_and(Bound::is_in_place) {
            return Ok(());
        }
        tokio::time::sleep(REMOVING).await;
        let Some(socket) = self.socket.take_if(|socket| !socket.is_in_place()) else {
            return Ok(());
        };
        tracing::warn!("the socket was removed; it is made again");
        let remade = socket
            .remake()
            .map_err(|error| format!("the socket was removed and cannot be made again: {error}"))?;
        let renewed = || {
            let listener = UnixListener::from_std(remade.listener()?)?;
            io::Result::Ok((listener, watch_of(&remade)?))
        };
        let (listener, watch) =
            renewed().map_err(|error| format!("the new socket cannot be used: {error}"))?;
        self.listener = listener;
        self.socket_watch = watch;
        self.socket = Some(remade);
        Ok(())
    }

    /// Whether the state folder is still ours.
    fn keep_folder(&self) -> Result<(), String> {
        let path = self.folder.path().join("lock");
        let there = std::fs::symlink_metadata(&path).ok().map(|found| (found.dev(), found.ino()));
        let held = rustix::fs::fstat(self.folder.lock_fd()).ok();
        if there.is_some() && there == held.map(|found| (found.st_dev, found.st_ino)) {
            return Ok(());
        }
        Err("the state folder was removed or replaced under the daemon".to_owned())
    }

    /// Serves one client, or refuses it in one frame.
    fn admit(&self, stream: UnixStream) {
        let slot = match self.judge(&stream) {
            Ok(slot) => slot,
            Err(refused) => {
                // A new socket has room for one frame; whoever does not take it is not told.
                if let Err(error) = stream.try_write(&refused.frame()) {
                    tracing::debug!(%error, "a refused client was not told");
                }
                return;
            }
        };
        let client = Client::new(self.daemon.clone());
        let budgets = self.budgets.clone();
        self.connections.spawn(async move {
            connection::serve(stream, client, budgets).await;
            drop(slot);
        });
    }

    fn judge(&self, stream: &UnixStream) -> Result<OwnedSemaphorePermit, Refused> {
        let peer = peer::of(stream).map_err(|error| {
            tracing::debug!(%error, "a client vanished before it could be judged");
            Refused::Unknown
        })?;
        if !peer::is_welcome(peer, self.own_uid) {
            tracing::warn!(uid = peer.uid, "a client of another user was refused");
            return Err(Refused::OtherUser);
        }
        let max = self.daemon.limits().connections_max;
        self.slots.clone().try_acquire_owned().map_err(|_full| Refused::Full { max })
    }
}
