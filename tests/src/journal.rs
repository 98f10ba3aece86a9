//! What the journal tells of ends.

use std::collections::BTreeMap;

use serde_json::json;

use crate::{
    owner::{Owner, handle, number},
    wire::Wire,
};

/// How many ends the journal tells of each process of the owner's session, all of it being read
/// from the first number on, over `wire`.
/// # Panics
/// When it cannot be read, or is not whole.
#[must_use]
#[expect(clippy::expect_used, reason = "this is how a test fails")]
pub fn ends(owner: &Owner, wire: Wire) -> BTreeMap<String, usize> {
    let mut reader = owner.attach(wire).wire;
    let id = reader.send("events/subscribe", json!({"from_seq": 1, "scope": "session"}));
    let subscribed = reader.reply(id).expect("a subscription");
    assert_eq!(subscribed["gap"], false, "{subscribed}");
    let last = number(&subscribed, "last_seq");
    let mut ends = BTreeMap::new();
    let mut seq = 0;
    while seq < last {
        let notice = reader.next_notice().expect("a record");
        let params = &notice["params"];
        seq = number(params, "seq");
        let event = &params["event"];
        if ["completed", "lost"].iter().any(|kind| event["kind"] == *kind) {
            *ends.entry(handle(event)).or_default() += 1;
        }
        reader.ok("events/ack", json!({"for": id, "up_to_seq": seq}));
    }
    ends
}

/// Each of `processes` has one end in the journal and one record in the list, no more, and nobody
/// else has any.
/// # Panics
/// When that is not so.
pub fn assert_one_end_each(owner: &mut Owner, wire: Wire, processes: &[String]) {
    let told = ends(owner, wire);
    for process in processes {
        assert_eq!(told.get(process), Some(&1), "ends of {process}: {told:?}");
    }
    assert_eq!(told.len(), processes.len(), "ends of strangers: {told:?}");
    let mut listed: Vec<String> = owner.list().iter().map(handle).collect();
    let count = listed.len();
    listed.sort();
    listed.dedup();
    assert_eq!(listed.len(), count, "a process with two records");
}
