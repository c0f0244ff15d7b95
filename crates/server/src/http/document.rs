//! Completes the OpenAPI document. Adds the parts that are the same for all handlers, since the handlers' own
//! descriptions leave them out.

use super::rules;
use http::Method;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;
use tourbillon_api::{Problem, ProblemKind};
use utoipa::PartialSchema as _;
use utoipa::openapi::content::ContentBuilder;
use utoipa::openapi::path::{Operation, ParameterIn, PathItem};
use utoipa::openapi::schema::{ObjectBuilder, Schema, Type};
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{InfoBuilder, OpenApi, Ref, RefOr, ResponseBuilder};

/// The media type of an answer that describes a problem.
const PROBLEM: &str = "application/problem+json";
/// The media type of a stream of server-sent events.
const EVENTS: &str = "text/event-stream";

/// Completes the OpenAPI document that the routes describe. Adds the title of the document, the schemas of problems
/// (the bodies of error answers), the authentication by tokens, and the rules that the values of fields and parameters
/// must meet.
pub(super) fn complete(mut document: OpenApi) -> OpenApi {
    document.info = InfoBuilder::new()
        .title("tourbillond")
        .version(env!("CARGO_PKG_VERSION"))
        .description(Some(
            "Durable timers as a service: signed callbacks and queues. Moments are texts after RFC 3339, lengths of \
             time are milliseconds. A request with an unknown field is refused; an answer may get further fields. Each \
             answer to a request has an id in the header `x-request-id`, and a refusal has a problem as its body. \
             Only a client that leaves many answers unread gets 503 without a body. Three answers have neither, \
             because no request was read: 400 to bytes that are no request of HTTP, 431 to a header that is too long \
             or has more than 100 fields, and 503 to a connection beyond the limit. The id is the request's own id, \
             if this id has 1 to 128 letters, digits and characters of `-_.:/+=@`, and otherwise a new id. An id of \
             the client's own is stored with the timers that the request makes, and each callback has it as \
             `tourbillon-request-id`.",
        ))
        .license(Some(utoipa::openapi::License::new("MIT OR Apache-2.0")))
        .build();
    let components = document.components.get_or_insert_default();
    let scheme = HttpBuilder::new()
        .scheme(HttpAuthScheme::Bearer)
        .description(Some("A token of this service, which none needs while the service has no tokens."))
        .build();
    components.add_security_scheme("token", SecurityScheme::Http(scheme));
    components.schemas.insert("Problem".to_owned(), problem());
    components.schemas.insert("ProblemKind".to_owned(), ProblemKind::schema());
    rules::complete(&mut components.schemas);
    document.security = Some(vec![SecurityRequirement::new("token", [""; 0])]);
    for (path, item) in &mut document.paths.paths {
        for (method, operation) in operations(item) {
            complete_operation(operation, path, &method);
            rules::complete_operation(operation, path);
        }
    }
    document
}

/// Returns the schema of a problem in an answer, which also has the id of the request.
fn problem() -> RefOr<Schema> {
    let mut schema = Problem::schema();
    if let RefOr::T(Schema::Object(object)) = &mut schema {
        let id = ObjectBuilder::new()
            .schema_type(Type::String)
            .description(Some("The id of the request, which the log and the audit trail have too."));
        object.properties.insert("request_id".to_owned(), id.into());
    }
    schema
}

/// Returns the operations that the OpenAPI document has for a path, each with its method.
fn operations(item: &mut PathItem) -> impl Iterator<Item = (Method, &mut Operation)> {
    let PathItem { get, put, post, delete, patch, .. } = item;
    let all = [
        (Method::GET, get),
        (Method::PUT, put),
        (Method::POST, post),
        (Method::DELETE, delete),
        (Method::PATCH, patch),
    ];
    all.into_iter().filter_map(|(method, operation)| Some((method, operation.as_mut()?)))
}

fn complete_operation(operation: &mut Operation, path: &str, method: &Method) {
    let has_body = operation.request_body.is_some();
    // Only an operation that needs no token has `security` of its own. The others take the value of the document.
    let is_open = operation.security.is_some();
    let of_a_namespace = path.contains("{namespace}");
    // A backup and a preview change nothing.
    let is_change = *method != Method::GET && !path.ends_with("/backup") && !path.ends_with("/previews");
    let common = [
        (true, "400", "The request is not valid."),
        (!is_open, "401", "A valid token is needed."),
        (true, "403", "The token does not permit this, or the request comes from another site or machine."),
        (of_a_namespace, "404", "There is no such namespace, timer, schedule, operation or claim."),
        (true, "408", "The request took too long."),
        (true, "413", "A part of the request is too large."),
        (has_body, "415", "The body is not JSON by its type."),
        (of_a_namespace, "429", "A limit was reached, or a removal of the namespace is under way."),
        (has_body, "429", "As many bytes of bodies are under way as there may be."),
        (true, "500", "The service has failed."),
        (
            true,
            "503",
            "The store cannot be used now, or the service is stopping. If `outcome` is `unknown`, the request may have \
             been fulfilled nevertheless.",
        ),
        (is_change, "507", "Nothing new is stored: the disk or the memory of the store is nearly full."),
    ];
    let responses = &mut operation.responses.responses;
    responses.remove("default");
    for (_, status, description) in common.into_iter().filter(|(applies, ..)| *applies) {
        if !responses.contains_key(status) {
            let response = ResponseBuilder::new().description(description).build();
            responses.insert(status.to_owned(), RefOr::T(response));
        }
    }
    for (status, response) in responses.iter_mut() {
        let RefOr::T(response) = response else { continue };
        let is_refusal = status.starts_with(['4', '5']);
        // For a `body` without a media type, utoipa writes `application/json`, which is not the type of a problem.
        if is_refusal && !response.content.contains_key(PROBLEM) {
            let problem = ContentBuilder::new().schema(Some(Ref::from_schema_name("Problem"))).build();
            response.content = [(PROBLEM.to_owned(), problem.into())].into_iter().collect();
        }
        if let Some(RefOr::T(events)) = response.content.get_mut(EVENTS) {
            events.schema = Some(rules::event_of("Event"));
        }
    }
}

/// The text of the OpenAPI document, as `/openapi.json` serves it. All services of a process serve the same text.
static TEXT: OnceLock<String> = OnceLock::new();

/// Converts the OpenAPI document to a text. From then on, [`text`] returns this text.
pub(super) fn publish(document: &OpenApi) {
    TEXT.get_or_init(|| document.to_pretty_json().unwrap_or_default() + "\n");
}

/// Returns the text of the OpenAPI document. The text is empty before the first call of [`publish`].
pub(super) fn text() -> &'static str {
    TEXT.get().map_or("", String::as_str)
}

/// The names of the query parameters that requests may have, by the request's path and method.
pub(super) struct Queries(matchit::Router<BTreeMap<String, BTreeSet<String>>>);

impl Queries {
    /// Returns the names of the query parameters that a request may have. `None` if the OpenAPI document lacks the path
    /// or the method.
    pub(super) fn of(&self, path: &str, method: &Method) -> Option<&BTreeSet<String>> {
        // The router answers HEAD with the handler of GET.
        let method = if *method == Method::HEAD { &Method::GET } else { method };
        self.0.at(path).ok()?.value.get(method.as_str())
    }
}

/// Collects the names of the query parameters in an OpenAPI document.
///
/// # Panics
///
/// Panics if two paths of the document match the same request. The router of the service is made from the same paths,
/// and panics first.
pub(super) fn queries(document: &OpenApi) -> Queries {
    let mut queries = matchit::Router::new();
    for (path, item) in document.paths.paths.clone() {
        let mut item = item;
        let mut of_path = BTreeMap::new();
        for (method, operation) in operations(&mut item) {
            let parameters = operation.parameters.iter().flatten();
            let names = parameters.filter_map(|parameter| match parameter {
                RefOr::T(parameter) if parameter.parameter_in == ParameterIn::Query => {
                    Some(parameter.name.clone())
                }
                _ => None,
            });
            of_path.insert(method.to_string(), names.collect());
        }
        queries.insert(path, of_path).expect("the router has these paths, too");
    }
    Queries(queries)
}
