//! Checks that the client has a call for each request in the service's own description.

use crate::rig::{Script, json};
use percent_encoding::percent_decode_str;
use std::collections::BTreeSet;
use std::time::Duration;
use tourbillon_client::api::{
    Backfill, Batch, CancelMany, LimitsPatch, Moment, Nack, NamespaceLimits, NewSchedule, NewTimer,
    ReplayMany, SchedulePatch,
};

/// Awaits the given calls one after another. Each call must fail, because no route of the service gives the test's
/// answer.
macro_rules! call {
    ($($call:expr;)*) => {
        $(assert!($call.await.is_err(), "{}", stringify!($call));)*
    };
}

#[tokio::test]
async fn each_request_of_the_description_has_a_call() {
    let script = Script::start([json("400 Bad Request", "7")]).await;
    let client = script.builder().repeats(0).build().unwrap();
    // The arguments are the names of the parameters in the description's paths.
    let namespace = client.namespace("{namespace}");
    let (key, id) = (namespace.key("{key}"), namespace.id("{id}"));
    let schedule = namespace.schedule("{key}");
    let timer = NewTimer::default();
    call! {
        client.health();
        client.readiness();
        client.metrics();
        client.openapi();
        client.stats();
        client.backup();
        client.history(None, None);
        client.lateness();
        client.horizon();
        client.endpoints();
        client.queues();
        client.list().pages().next_page();
        client.audit().next_page();
        client.nodes();
        client.namespaces();
        client.events(None).next();
        namespace.view();
        namespace.set(&NamespaceLimits::default());
        namespace.patch(&LimitsPatch::default());
        namespace.delete();
        namespace.rotate_secret();
        namespace.place(&timer);
        namespace.place(&timer).key("{key}");
        namespace.list().pages().next_page();
        namespace.batch(&Batch::default());
        namespace.cancel_many(&CancelMany::default());
        namespace.replay_many(&ReplayMany::default());
        namespace.operation("{id}");
        namespace.operations();
        namespace.queues();
        namespace.queue("{queue}").claim(1, Duration::ZERO);
        namespace.ack("{claim}");
        namespace.ack_many(&[]);
        namespace.nack("{claim}", &Nack::default());
        namespace.renew("{claim}");
        namespace.replay("{id}");
        key.get();
        key.past();
        key.cancel();
        key.move_to(Moment::from_millis(0));
        key.fire();
        key.pause();
        key.resume();
        id.get();
        id.past();
        id.cancel();
        id.move_after(Duration::ZERO);
        id.fire();
        id.pause();
        id.resume();
        namespace.schedules().next_page();
        namespace.preview(&NewSchedule::default());
        schedule.get();
        schedule.put(&NewSchedule::default());
        schedule.patch(&SchedulePatch::default());
        schedule.delete();
        schedule.pause();
        schedule.resume();
        schedule.trigger();
        schedule.backfill(&Backfill { from: Moment::from_millis(0), until: None, limit: None });
    }
    let called: BTreeSet<_> = script
        .requests()
        .iter()
        .map(|request| {
            let (line, _) = request.split_once(" HTTP/1.1").unwrap();
            percent_decode_str(line).decode_utf8().unwrap().into_owned()
        })
        .collect();
    let document = serde_json::to_value(tourbillon_server::openapi()).unwrap();
    let mut described = BTreeSet::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for method in methods.as_object().unwrap().keys() {
            if ["get", "put", "post", "patch", "delete"].contains(&&**method) {
                described.insert(format!("{} {path}", method.to_ascii_uppercase()));
            }
        }
    }
    assert!(described.len() > 20);
    assert_eq!(called, described);
}
