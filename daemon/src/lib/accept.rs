//! Accepts clients, and keeps the socket in its place: removed under the daemon it is made
//! again; where that cannot be, or the state folder is gone, the daemon is told to end.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::time::Duration;

use procd_store::folder::StateFolder;
use procd_sys::peer::Peer;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::task::JoinHandle;
use tokio_util::task::TaskTracker;

use crate::connection::{self, Refused, budget::Budgets};
use crate::request::{Client, Daemon, Standing};
use crate::socket::watch::FolderWatch;
use crate::socket::{Bound, peer};
use crate::supervisor::runner::{Kinship, Lineage};

/// Between two tries when the system has no descriptor for a client.
const EXHAUSTED: Duration = Duration::from_millis(100);

/// Before a removed socket is made again: whoever removes a whole folder is let finish.
const REMOVING: Duration = Duration::from_millis(200);

/// How long the beginning of a tree may leave open whether a client is of it, and how often that
/// is asked.
const SETTLING: Duration = Duration::from_secs(5);
const SETTLING_TICK: Duration = Duration::from_millis(2);

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
    lineage: Arc<dyn Lineage>,
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
        lineage,
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
    lineage: Arc<dyn Lineage>,
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
                    // Many that come at once are no reason for the others to wait.
                    tokio::task::yield_now().await;
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
        let (peer, slot) = match self.look(&stream) {
            Ok(found) => found,
            Err(refused) => return refuse(&stream, refused),
        };
        let (daemon, lineage) = (self.daemon.clone(), self.lineage.clone());
        let budgets = self.budgets.clone();
        self.connections.spawn(async move {
            budgets.turns.next().await;
            match judge(&*lineage, &peer).await {
                Ok(standing) => {
                    let client = Client::new(daemon, standing);
                    connection::serve(stream, client, budgets).await;
                }
                Err(refused) => refuse(&stream, refused),
            }
            drop(slot);
        });
    }

    /// Who it is, and whether there is room.
    fn look(&self, stream: &UnixStream) -> Result<(Peer, OwnedSemaphorePermit), Refused> {
        let peer = Peer::of(stream).map_err(|error| {
            tracing::debug!(%error, "a client vanished before it could be judged");
            Refused::Unknown
        })?;
        if !peer::is_welcome(&peer, self.own_uid) {
            tracing::warn!(uid = peer.uid(), "a client of another user was refused");
            return Err(Refused::OtherUser);
        }
        let max = self.daemon.limits().connections_max;
        let slot = self.slots.clone().try_acquire_owned().map_err(|_full| Refused::Full { max })?;
        Ok((peer, slot))
    }
}

/// What a connector may be at most.
async fn judge(lineage: &dyn Lineage, peer: &Peer) -> Result<Standing, Refused> {
    let settling = tokio::time::timeout(SETTLING, async {
        loop {
            match lineage.judge(peer) {
                Kinship::Unsettled => tokio::time::sleep(SETTLING_TICK).await,
                settled @ (Kinship::Stranger | Kinship::Supervised { .. } | Kinship::Unknown) => {
                    break settled;
                }
            }
        }
    });
    match settling.await {
        Ok(Kinship::Stranger) => Ok(Standing::Free),
        Ok(Kinship::Supervised { may_connect: true }) => Ok(Standing::Supervised),
        Ok(Kinship::Supervised { may_connect: false }) => {
            tracing::warn!("a supervised process that may not connect was refused");
            Err(Refused::Supervised)
        }
        Ok(Kinship::Unknown | Kinship::Unsettled) | Err(_) => {
            tracing::warn!(
                "a client of whom it cannot be told whether it is supervised was refused"
            );
            Err(Refused::Unknown)
        }
    }
}

/// One frame. A new socket has room for it; whoever does not take it is not told.
fn refuse(stream: &UnixStream, refused: Refused) {
    if let Err(error) = stream.try_write(&refused.frame()) {
        tracing::debug!(%error, "a refused client was not told");
    }
}
