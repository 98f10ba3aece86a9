use std::path::Path;

use procd_core::settings::Limits;
use procd_core::{Handle, Owner};

use super::world::{World, request, soon};
use crate::supervisor::refusal::Refusal;
use crate::supervisor::{Caller, ListFilter};

async fn listed(world: &World, owner: Owner) -> Vec<Handle> {
    let filter = ListFilter { limit: 1000, ..ListFilter::default() };
    let page = world.supervisor.list(Caller::Owner(owner), filter).await.unwrap();
    page.views.iter().map(|one| one.view.handle).collect()
}

async fn until_listed(world: &World, owner: Owner, wanted: &[Handle]) {
    soon("the removal", async {
        while listed(world, owner).await != wanted {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// Every file of a state folder whose name tells the handle.
fn files_of(path: &Path, handle: Handle) -> usize {
    let Ok(entries) = std::fs::read_dir(path) else { return 0 };
    let of = |entry: std::fs::DirEntry| {
        let own = usize::from(entry.file_name().to_string_lossy().contains(&handle.to_string()));
        own + files_of(&entry.path(), handle)
    };
    entries.flatten().map(of).sum()
}

async fn sealed(world: &mut World, owner: Owner) -> Handle {
    let handle = world.ended(owner, request()).await;
    let path = world.path.clone();
    soon("the file", async {
        while files_of(&path.join("sessions"), handle) == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    handle
}

#[tokio::test]
async fn an_eviction_leaves_no_file() {
    let limits = Limits { retained_session_max: 1, ..Limits::default() };
    let mut world = World::with(limits, None).await;
    let owner = world.owner().await;
    let first = sealed(&mut world, owner).await;
    let second = sealed(&mut world, owner).await;
    until_listed(&world, owner, &[second]).await;
    let path = world.path.clone();
    soon("the files to go", async {
        while files_of(&path.join("sessions"), first) > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    world.remove().await;
}

#[tokio::test]
async fn a_pinned_one_stays_also_over_a_restart_until_it_is_given_back() {
    let limits = Limits { retained_session_max: 1, ..Limits::default() };
    let mut world = World::with(limits.clone(), None).await;
    let owner = world.owner().await;
    let caller = Caller::Owner(owner);
    let pinned = sealed(&mut world, owner).await;
    assert!(soon("the pin", world.supervisor.pin(caller, pinned, true)).await.unwrap().is_pinned);
    let second = sealed(&mut world, owner).await;
    let third = sealed(&mut world, owner).await;
    until_listed(&world, owner, &[third, pinned]).await;
    let world = World::at(world.close().await, limits, None).await;
    let view = world.supervisor.find(caller, pinned).await.unwrap();
    assert!(view.now().record.pinned);
    assert_eq!(world.supervisor.find(caller, second).await.unwrap_err(), Refusal::NotFound);
    soon("the pin", world.supervisor.pin(caller, pinned, false)).await.unwrap();
    assert_eq!(listed(&world, owner).await.len(), 1);
    world.remove().await;
}

#[tokio::test]
async fn what_is_too_old_goes_with_its_unused_session() {
    let limits = Limits { retention_ms: 300, ..Limits::default() };
    let mut world = World::with(limits, None).await;
    let owner = world.owner().await;
    world.ended(owner, request()).await;
    until_listed(&world, owner, &[]).await;
    soon("the session to go", async {
        while world.supervisor.status(None).await.sessions > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    world.remove().await;
}

#[tokio::test]
async fn a_running_process_cannot_be_removed_and_a_removed_one_is_unknown() {
    let mut world = World::new().await;
    let owner = world.owner().await;
    let caller = Caller::Owner(owner);
    let (started, played) = world.running(owner, request()).await;
    let refusal = world.supervisor.remove(caller, started.view.handle).await.unwrap_err();
    assert!(matches!(refusal, Refusal::Invalid { field: "process_id", .. }));
    played.end(procd_core::LeaderEnd::Code(0)).await;
    let mut view = started.view;
    soon("the end", view.ended()).await;
    // At once, while its seal may be under way.
    soon("the removal", world.supervisor.remove(caller, view.handle)).await.unwrap();
    assert_eq!(world.supervisor.find(caller, view.handle).await.unwrap_err(), Refusal::NotFound);
    let path = world.path.clone();
    let world = World::at(world.close().await, Limits::default(), None).await;
    assert_eq!(files_of(&path.join("sessions"), view.handle), 0);
    assert!(listed(&world, owner).await.is_empty());
    world.remove().await;
}
