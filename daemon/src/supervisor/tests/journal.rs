use procd_core::Owner;
use procd_core::settings::Limits;
use procd_store::event::{EventKind, Notification};
use procd_store::log::Disposition;
use tokio::sync::mpsc;

use super::world::{World, request, soon};
use crate::supervisor::refusal::Refusal;
use crate::supervisor::{Answer, Caller, Notice, Subscribe, Subscribed};

/// A connection that subscribes.
struct Subscriber {
    connection: u64,
    attachment: std::sync::Arc<crate::supervisor::Attachment>,
}

async fn subscriber(world: &World) -> Subscriber {
    let attachment = world.supervisor.attach_operator().await.unwrap();
    Subscriber { connection: attachment.connection(), attachment }
}

fn asked(subscriber: &Subscriber, from_seq: Option<u64>, notifications: bool) -> Subscribe {
    Subscribe {
        connection: subscriber.connection,
        request: 1,
        from_seq,
        kinds: None,
        whole_session: false,
        session: None,
        notifications,
    }
}

async fn subscribe(world: &World, owner: Owner, asked: Subscribe) -> Subscribed {
    soon("a subscription", world.supervisor.subscribe(Caller::Owner(owner), asked)).await.unwrap()
}

async fn record(notices: &mut mpsc::Receiver<Notice>) -> (u64, EventKind) {
    match soon("a record", notices.recv()).await {
        Some(Notice::Record { seq, event, .. }) => (seq, event.kind()),
        other => panic!("{other:?}"),
    }
}

async fn offer(notices: &mut mpsc::Receiver<Notice>) -> Notification {
    loop {
        match soon("an offer", notices.recv()).await {
            Some(Notice::Offer(notification)) => return notification,
            Some(Notice::Record { .. }) => {}
            None => panic!("the subscription ended"),
        }
    }
}

async fn answer(
    world: &World,
    owner: Owner,
    offered: &Notification,
    answer: Answer,
) -> Result<(), Refusal> {
    let id = offered.command_id();
    soon("an answer", world.supervisor.answer_notification(owner, id, answer)).await
}

const ACCEPTED: Answer = Answer::Final(Disposition::Accepted);

#[tokio::test]
async fn a_journal_is_read_from_a_number_on_and_goes_on_live_over_a_restart() {
    let mut world = World::new().await;
    let owner = world.owner().await;
    world.ended(owner, request()).await;
    let reader = subscriber(&world).await;
    let mut first = subscribe(&world, owner, asked(&reader, Some(1), false)).await;
    assert!(!first.gap);
    let (_, started) = record(&mut first.notices).await;
    let (last, completed) = record(&mut first.notices).await;
    assert_eq!((started, completed), (EventKind::Started, EventKind::Completed));
    world.ended(owner, request()).await;
    assert_eq!(record(&mut first.notices).await.1, EventKind::Started);
    assert_eq!(record(&mut first.notices).await.1, EventKind::Completed);
    let world = World::at(world.close().await, Limits::default(), None).await;
    let reader = subscriber(&world).await;
    let mut again = subscribe(&world, owner, asked(&reader, Some(last + 1), false)).await;
    assert!(!again.gap && again.first_kept_seq > last);
    assert_eq!(record(&mut again.notices).await.1, EventKind::Started);
    assert_eq!(record(&mut again.notices).await, (again.last_seq, EventKind::Completed));
    world.remove().await;
}

#[tokio::test]
async fn what_is_not_acknowledged_is_bounded_and_the_rest_waits_in_the_journal() {
    let limits = Limits { retained_session_max: 1000, ..Limits::default() };
    let mut world = World::with(limits, None).await;
    let owner = world.owner().await;
    for _ in 0..50 {
        world.ended(owner, request()).await;
    }
    let reader = subscriber(&world).await;
    let mut subscribed = subscribe(&world, owner, asked(&reader, Some(1), false)).await;
    let mut last = 0;
    for _ in 0..64 {
        last = record(&mut subscribed.notices).await.0;
    }
    assert!(subscribed.notices.try_recv().is_err(), "the window is full");
    let other = subscriber(&world).await;
    let foreign = world.supervisor.acknowledge_events(other.connection, 1, last).await;
    assert!(matches!(foreign, Err(Refusal::Invalid { field: "for", .. })));
    world.supervisor.acknowledge_events(reader.connection, 1, last).await.unwrap();
    for _ in 64..100 {
        let next = record(&mut subscribed.notices).await.0;
        assert!(next > last, "in order");
        last = next;
    }
    drop(reader.attachment);
    assert!(soon("its end", subscribed.notices.recv()).await.is_none());
    drop(other.attachment);
    world.remove().await;
}

#[tokio::test]
async fn a_removed_record_is_a_gap_exactly_for_those_who_ask_for_it() {
    let mut world = World::new().await;
    let owner = world.owner().await;
    let first = world.ended(owner, request()).await;
    world.ended(owner, request()).await;
    let reader = subscriber(&world).await;
    let before = subscribe(&world, owner, asked(&reader, Some(1), false)).await;
    world.supervisor.unsubscribe(reader.connection, 1).await.unwrap();
    soon("the removal", world.supervisor.remove(Caller::Owner(owner), first)).await.unwrap();
    let after = subscribe(&world, owner, asked(&reader, Some(1), false)).await;
    assert!(!before.gap && after.gap && after.first_kept_seq > before.first_kept_seq);
    let asked_later = asked(&subscriber(&world).await, Some(after.first_kept_seq), false);
    assert!(!subscribe(&world, owner, asked_later).await.gap);
    let world = World::at(world.close().await, Limits::default(), None).await;
    let reader = subscriber(&world).await;
    let restored = subscribe(&world, owner, asked(&reader, Some(1), false)).await;
    assert!(restored.gap, "also after a restart");
    assert_eq!(restored.first_kept_seq, after.first_kept_seq);
    world.remove().await;
}

#[tokio::test]
async fn a_notification_comes_until_it_is_acknowledged_and_never_again() {
    let mut world = World::new().await;
    let (owner, stranger) = (world.owner().await, world.owner().await);
    world.ended(owner, request()).await;
    let reader = subscriber(&world).await;
    let mut subscribed = subscribe(&world, owner, asked(&reader, None, true)).await;
    let offered = offer(&mut subscribed.notices).await;
    // The connection goes without an answer: the next one gets it, also after a restart.
    drop(reader.attachment);
    let mut world = World::at(world.close().await, Limits::default(), None).await;
    let reader = subscriber(&world).await;
    let mut subscribed = subscribe(&world, owner, asked(&reader, None, true)).await;
    assert_eq!(offer(&mut subscribed.notices).await, offered);
    let foreign = answer(&world, stranger, &offered, ACCEPTED).await;
    assert_eq!(foreign.unwrap_err(), Refusal::NoNotification);
    answer(&world, owner, &offered, ACCEPTED).await.unwrap();
    answer(&world, owner, &offered, ACCEPTED).await.unwrap();
    answer(&world, owner, &offered, Answer::Final(Disposition::Duplicate)).await.unwrap();
    world.ended(owner, request()).await;
    let second = offer(&mut subscribed.notices).await;
    assert_ne!(second.command_id(), offered.command_id());
    // While the second waits for its answer, it is not offered with the next one.
    world.ended(owner, request()).await;
    let third = offer(&mut subscribed.notices).await;
    assert_ne!(third.command_id(), second.command_id());
    answer(&world, owner, &third, ACCEPTED).await.unwrap();
    drop(reader.attachment);
    let world = World::at(world.close().await, Limits::default(), None).await;
    let reader = subscriber(&world).await;
    let mut subscribed = subscribe(&world, owner, asked(&reader, None, true)).await;
    assert_eq!(offer(&mut subscribed.notices).await, second);
    assert!(subscribed.notices.try_recv().is_err(), "the acknowledged one does not come");
    world.remove().await;
}

#[tokio::test]
async fn a_stopped_one_comes_again_and_a_collision_is_marked_for_good() {
    let mut world = World::new().await;
    let owner = world.owner().await;
    world.ended(owner, request()).await;
    let reader = subscriber(&world).await;
    let mut subscribed = subscribe(&world, owner, asked(&reader, None, true)).await;
    let offered = offer(&mut subscribed.notices).await;
    answer(&world, owner, &offered, Answer::Stopped).await.unwrap();
    assert!(subscribed.notices.try_recv().is_err());
    // The next subscribe gets it at once.
    let second = subscriber(&world).await;
    let mut newer = subscribe(&world, owner, asked(&second, None, true)).await;
    assert_eq!(offer(&mut newer.notices).await, offered);
    answer(&world, owner, &offered, Answer::Stopped).await.unwrap();
    let again =
        tokio::time::timeout(std::time::Duration::from_secs(60), newer.notices.recv()).await;
    assert!(matches!(again, Ok(Some(Notice::Offer(_)))), "and every five seconds");
    answer(&world, owner, &offered, Answer::Final(Disposition::Collision)).await.unwrap();
    let late = answer(&world, owner, &offered, ACCEPTED).await;
    assert!(matches!(late, Err(Refusal::Invalid { field: "disposition", .. })), "{late:?}");
    assert_eq!(world.supervisor.status(None).await.collisions, 1);
    let world = World::at(world.close().await, Limits::default(), None).await;
    assert_eq!(world.supervisor.status(None).await.collisions, 1);
    let late = answer(&world, owner, &offered, ACCEPTED).await;
    assert!(matches!(late, Err(Refusal::Invalid { field: "disposition", .. })), "{late:?}");
    world.remove().await;
}

#[tokio::test]
async fn a_notification_outlives_its_record_if_somebody_ever_wanted_one() {
    let mut world = World::new().await;
    let (owner, never) = (world.owner().await, world.owner().await);
    let reader = subscriber(&world).await;
    drop(subscribe(&world, owner, asked(&reader, None, true)).await);
    drop(reader.attachment);
    for who in [owner, never] {
        let handle = world.ended(who, request()).await;
        soon("the removal", world.supervisor.remove(Caller::Owner(who), handle)).await.unwrap();
    }
    let world = World::at(world.close().await, Limits::default(), None).await;
    let reader = subscriber(&world).await;
    let mut subscribed = subscribe(&world, owner, asked(&reader, None, true)).await;
    let offered = offer(&mut subscribed.notices).await;
    answer(&world, owner, &offered, ACCEPTED).await.unwrap();
    let second = subscriber(&world).await;
    let mut none = subscribe(&world, never, asked(&second, None, true)).await;
    assert!(none.notices.try_recv().is_err());
    world.remove().await;
}

/// Ends `count` processes, eight at a time.
async fn complete(world: &mut World, owner: Owner, count: usize) {
    assert_eq!(count % 8, 0, "eight run at a time");
    for _ in 0..count / 8 {
        let mut running = Vec::new();
        for _ in 0..8 {
            running.push(world.running(owner, request()).await);
        }
        let mut views = Vec::new();
        for (started, played) in running {
            played.end(procd_core::LeaderEnd::Code(0)).await;
            views.push(started.view);
        }
        for mut view in views {
            soon("the end", view.ended()).await;
        }
    }
}

/// Many ends in one loop, with a subscriber that takes a window and vanishes, one that answers,
/// and a daemon that is started anew in between. The records are evicted long before.
#[tokio::test]
async fn many_notifications_come_at_least_once_each_and_none_after_its_answer() {
    const COUNT: usize = 400;
    const EARLY: usize = 96;
    const UNANSWERED_MAX: usize = 64;
    let mut world = World::new().await;
    let owner = world.owner().await;
    let slow = subscriber(&world).await;
    let mut taken = subscribe(&world, owner, asked(&slow, None, true)).await;
    complete(&mut world, owner, EARLY).await;
    let mut unanswered = Vec::new();
    for _ in 0..UNANSWERED_MAX {
        unanswered.push(offer(&mut taken.notices).await);
    }
    complete(&mut world, owner, COUNT / 2 - EARLY).await;
    world.supervisor.status(None).await;
    let mut others = std::iter::from_fn(|| taken.notices.try_recv().ok());
    assert!(!others.any(|notice| matches!(notice, Notice::Offer(_))), "no more at a time");
    let mut answered = std::collections::HashSet::new();
    for offered in unanswered.drain(..10) {
        answer(&world, owner, &offered, ACCEPTED).await.unwrap();
        assert!(answered.insert(offered.command_id()));
    }
    assert!(taken.notices.len() <= 128, "what waits is bounded");
    drop((taken, slow));
    let mut world = World::at(world.close().await, Limits::default(), None).await;
    complete(&mut world, owner, COUNT / 2).await;
    let reader = subscriber(&world).await;
    let mut subscribed = subscribe(&world, owner, asked(&reader, None, true)).await;
    while answered.len() < COUNT {
        let offered = offer(&mut subscribed.notices).await;
        answer(&world, owner, &offered, ACCEPTED).await.unwrap();
        assert!(answered.insert(offered.command_id()), "none comes after its answer");
    }
    assert!(subscribed.notices.try_recv().is_err());
    assert_eq!(world.supervisor.status(None).await.dropped_notifications, 0);
    world.remove().await;
}
