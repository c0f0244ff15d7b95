//! Tests the OpenAPI document.

use serde_json::Value;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::LazyLock;
use tourbillon_api::ProblemKind;

fn path() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("openapi.json")
}

/// Returns the OpenAPI document from the repository.
pub(crate) fn document() -> Value {
    serde_json::from_slice(&std::fs::read(path()).unwrap()).unwrap()
}

const METHODS: [&str; 5] = ["get", "put", "post", "delete", "patch"];

/// Returns all operations in the OpenAPI document, each with its path, its method, and its object in the document.
pub(crate) fn operations(document: &Value) -> Vec<(String, String, Value)> {
    let mut operations = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for method in METHODS {
            if let Some(operation) = item.get(method) {
                operations.push((path.clone(), method.to_uppercase(), operation.clone()));
            }
        }
    }
    operations
}

#[test]
fn the_document_that_is_checked_in_is_the_services() {
    let document = tourbillon_server::openapi().to_pretty_json().unwrap() + "\n";
    if std::env::var_os("TOURBILLON_RENEW").is_some() {
        std::fs::write(path(), &document).unwrap();
    }
    let command = "TOURBILLON_RENEW=1 cargo test -p tourbillon-server --test service document";
    let is_fresh = std::fs::read_to_string(path()).is_ok_and(|stored| stored == document);
    assert!(is_fresh, "openapi.json is not the document of the routes; renew it: {command}");
}

#[test]
fn each_operation_has_a_name_a_summary_its_statuses_and_its_right() {
    let document = document();
    let mut names = BTreeSet::new();
    for (path, method, operation) in operations(&document) {
        let place = format!("{method} {path}");
        assert!(names.insert(operation["operationId"].as_str().unwrap().to_owned()), "{place}");
        assert!(operation["summary"].as_str().is_some_and(|summary| summary.ends_with('.')), "{place}");
        let responses = operation["responses"].as_object().unwrap();
        assert!(responses.keys().any(|status| status.starts_with('2')), "{place}");
        assert!(!responses.contains_key("default"), "{place}");
        for (status, response) in responses {
            assert!(!response["description"].as_str().unwrap().is_empty(), "{place}: {status}");
            // Only an answer without a body, with the status 204, has no content.
            let content = response["content"].as_object();
            assert_eq!(content.is_none(), status == "204", "{place}: {status}");
            let is_problem = content.is_some_and(|content| content.contains_key("application/problem+json"));
            assert_eq!(is_problem, !status.starts_with('2'), "{place}: {status}");
        }
        for status in ["400", "408", "413", "500", "503"] {
            assert!(responses.contains_key(status), "{place} lacks {status}");
        }
        let is_open = operation["security"] == serde_json::json!([{}]);
        assert_eq!(is_open, path == "/healthz", "{place}");
        assert_eq!(responses.contains_key("401"), !is_open, "{place}");
        assert_eq!(
            responses.contains_key("404"),
            path.contains("{namespace}") || path == "/v1/events",
            "{place}"
        );
        let body = &operation["requestBody"]["content"]["application/json"];
        assert_eq!(responses.contains_key("415"), !body.is_null(), "{place}");
        for parameter in operation["parameters"].as_array().into_iter().flatten() {
            assert!(parameter["description"].as_str().is_some(), "{place}: {parameter}");
        }
    }
    assert!(names.len() > 20, "{names:?}");
    assert_eq!(document["security"], serde_json::json!([{ "token": [] }]));
    assert_eq!(document["components"]["securitySchemes"]["token"]["scheme"], "bearer");
}

/// Checks that the document has the status of an answer. The tests call this function for the answers that they get.
#[track_caller]
pub(crate) fn assert_documented(method: &str, path: &str, status: u16) {
    static OPERATIONS: LazyLock<Vec<(String, String, Value)>> = LazyLock::new(|| operations(&document()));
    let path = path.split('?').next().unwrap();
    let parts = |path: &str| path.split('/').map(str::to_owned).collect::<Vec<_>>();
    let given = parts(path);
    let matches = |pattern: &str| {
        let pattern = parts(pattern);
        pattern.len() == given.len()
            && pattern.iter().zip(&given).all(|(wanted, part)| wanted.starts_with('{') || wanted == part)
    };
    let operation = OPERATIONS.iter().find(|(pattern, verb, _)| verb == method && matches(pattern));
    // The document lacks pages, and what the service does not have.
    let Some((pattern, _, operation)) = operation else { return };
    let is_there = operation["responses"].get(status.to_string()).is_some();
    assert!(is_there, "the document of {method} {pattern} lacks the status {status}");
}

/// Returns whether an operation of the document can answer with a problem of this kind. `id` is the operation's id.
fn can_answer(kind: ProblemKind, id: &str, path: &str, method: &str, has_body: bool) -> bool {
    let id = id.strip_suffix("_by_id").unwrap_or(id);
    let is_one_of = |ids: &[&str]| ids.contains(&id);
    let of_a_namespace = path.contains("{namespace}");
    match kind {
        ProblemKind::BadRequest
        | ProblemKind::Forbidden
        | ProblemKind::TooLarge
        | ProblemKind::Timeout
        | ProblemKind::Internal
        | ProblemKind::ReadOnly
        | ProblemKind::StoreUnavailable
        | ProblemKind::Stopping => true,
        // A path of the document has the methods of the document.
        ProblemKind::MethodNotAllowed => false,
        ProblemKind::Unauthorised => id != "healthz",
        ProblemKind::NotFound => of_a_namespace || id == "events",
        ProblemKind::UnsupportedMediaType => has_body,
        ProblemKind::LimitReached => of_a_namespace || has_body || is_one_of(&["events", "back_up"]),
        ProblemKind::StorageFull => method != "GET" && !is_one_of(&["back_up", "preview_schedule"]),
        ProblemKind::KeyExists => is_one_of(&["put_timer", "fire_timer", "replay_timer"]),
        ProblemKind::WrongPhase => {
            is_one_of(&["move_timer", "fire_timer", "pause_timer", "resume_timer", "replay_timer"])
        }
        ProblemKind::IdempotencyInProgress | ProblemKind::IdempotencyMismatch => {
            is_one_of(&["put_timer", "post_timer"])
        }
        ProblemKind::ClaimEnded => is_one_of(&["ack", "nack", "renew"]),
        ProblemKind::NamespaceNotEmpty => id == "delete_namespace",
        ProblemKind::BlockedDestination => {
            is_one_of(&["put_timer", "post_timer", "put_schedule", "patch_schedule", "preview_schedule"])
        }
        ProblemKind::DueTooFar => is_one_of(&["put_timer", "post_timer", "move_timer"]),
        ProblemKind::ZoneUnknown => is_one_of(&[
            "put_schedule",
            "patch_schedule",
            "preview_schedule",
            "resume_schedule",
            "backfill_schedule",
        ]),
        other => panic!("which operations answer with {other:?}?"),
    }
}

#[test]
fn each_operation_has_the_statuses_of_the_problems_that_it_answers_and_no_others() {
    for (path, method, operation) in operations(&document()) {
        let id = operation["operationId"].as_str().unwrap();
        let has_body = !operation["requestBody"].is_null();
        let kinds = ProblemKind::ALL.iter().filter(|kind| can_answer(**kind, id, &path, &method, has_body));
        let wanted: BTreeSet<String> = kinds.map(|kind| kind.status().to_string()).collect();
        let all = operation["responses"].as_object().unwrap().keys();
        let documented: BTreeSet<String> = all.filter(|status| !status.starts_with('2')).cloned().collect();
        assert_eq!(documented, wanted, "{method} {path}");
    }
}

#[test]
fn each_reference_has_its_schema() {
    fn look(value: &Value, document: &Value, found: &mut BTreeSet<String>) {
        match value {
            Value::Object(members) => {
                if let Some(Value::String(reference)) = members.get("$ref") {
                    let target = document.pointer(reference.strip_prefix('#').unwrap());
                    assert!(target.is_some(), "{reference}");
                    found.insert(reference.clone());
                }
                members.values().for_each(|value| look(value, document, found));
            }
            Value::Array(items) => items.iter().for_each(|value| look(value, document, found)),
            _ => {}
        }
    }

    let document = document();
    let mut found = BTreeSet::new();
    look(&document, &document, &mut found);
    assert!(found.len() > 20, "{found:?}");
}
