//! The table of all routes of the HTTP interface. Each handler's description has its method and its path.

use super::{
    audit, backup, batch, claims, document, events, list, namespaces, operations, queues, report, schedules,
    timers, view,
};
use crate::service::Service;
use axum::Router;
use axum::extract::DefaultBodyLimit;
use utoipa::openapi::OpenApi;
use utoipa_axum::router::{OpenApiRouter, UtoipaMethodRouter};
use utoipa_axum::routes;

/// Returns the routes of the HTTP interface, with the OpenAPI document that describes them.
pub(super) fn routes() -> (Router<Service>, OpenApi) {
    // The batch has a router of its own, because a layer applies to all routes of its router, and this limit is only
    // for batches.
    let batch = OpenApiRouter::new().routes(routes!(batch::batch));
    let router = OpenApiRouter::new()
        .merge(batch.layer(DefaultBodyLimit::max(batch::LONGEST)))
        .routes(routes!(timers::put_timer))
        .routes(routes!(timers::post_timer))
        .routes(routes!(timers::replay_timer))
        .routes(routes!(list::list_timers))
        .routes(routes!(list::list_all_timers))
        .routes(routes!(operations::cancel_timers))
        .routes(routes!(operations::replay_timers))
        .routes(routes!(operations::list_operations))
        .routes(routes!(operations::get_operation))
        .routes(routes!(claims::claim))
        .routes(routes!(claims::ack))
        .routes(routes!(claims::ack_many))
        .routes(routes!(claims::nack))
        .routes(routes!(claims::renew))
        .routes(routes!(queues::list_queues))
        .routes(routes!(queues::list_all_queues))
        .routes(routes!(schedules::list_schedules))
        .routes(routes!(
            schedules::put_schedule,
            schedules::get_schedule,
            schedules::patch_schedule,
            schedules::delete_schedule
        ))
        .routes(routes!(schedules::pause_schedule))
        .routes(routes!(schedules::resume_schedule))
        .routes(routes!(schedules::trigger_schedule))
        .routes(routes!(schedules::backfill_schedule))
        .routes(routes!(schedules::preview_schedule))
        .routes(routes!(namespaces::list_namespaces))
        .routes(routes!(
            namespaces::put_namespace,
            namespaces::get_namespace,
            namespaces::patch_namespace,
            namespaces::delete_namespace
        ))
        .routes(routes!(namespaces::make_secret))
        .routes(routes!(report::healthz))
        .routes(routes!(report::readyz))
        .routes(routes!(report::metrics))
        .routes(routes!(report::openapi))
        .routes(routes!(report::stats))
        .routes(routes!(view::history))
        .routes(routes!(view::lateness))
        .routes(routes!(view::endpoints))
        .routes(routes!(view::horizon))
        .routes(routes!(view::nodes))
        .routes(routes!(events::events))
        .routes(routes!(audit::list_audit))
        .routes(routes!(backup::back_up));
    // Each of these routes gets a second path, with the id of the timer. `put_timer` is not among them, because a
    // client can choose the key of a new timer, but not the id.
    let by_key: [UtoipaMethodRouter<Service>; 5] = [
        routes!(timers::get_timer, timers::move_timer, timers::cancel_timer),
        routes!(timers::fire_timer),
        routes!(timers::pause_timer),
        routes!(timers::resume_timer),
        routes!(timers::past),
    ];
    let router =
        by_key.into_iter().fold(router, |router, by_key| router.routes(by_id(by_key.clone())).routes(by_key));
    let (router, document) = router.split_for_parts();
    (router, document::complete(document))
}

/// Changes the path of a route so that a timer's id stands in the place of its key.
fn by_id((schemas, mut paths, handlers): UtoipaMethodRouter<Service>) -> UtoipaMethodRouter<Service> {
    let by_key = core::mem::take(&mut paths.paths);
    paths.paths = by_key
        .into_iter()
        .map(|(path, mut item)| {
            let all = [&mut item.get, &mut item.patch, &mut item.delete, &mut item.post];
            for id in all.into_iter().flatten().filter_map(|operation| operation.operation_id.as_mut()) {
                // OpenAPI demands that the ids of operations are unique, and both paths have the same handlers.
                id.push_str("_by_id");
            }
            (path.replace("/timers/{key}", "/ids/{id}"), item)
        })
        .collect();
    (schemas, paths, handlers)
}
