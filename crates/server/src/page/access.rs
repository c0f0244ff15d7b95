//! Shows namespaces and tokens, and changes them. Only administrators of the whole service see this page.

use super::fault::Fault;
use super::posted::Posted;
use super::rows::whole_list;
use super::text::{number, span};
use super::view::{Frame, When, now, show};
use super::visitor::Visitor;
use crate::audit::Deed;
use crate::service::Service;
use crate::settings::Settings;
use crate::state::{LONGEST_TOKEN_NAME, NewToken, Stored, role_name};
use crate::task;
use askama::Template;
use axum::extract::{Path, State};
use axum::response::{IntoResponse as _, Redirect, Response};
use core::time::Duration;
use std::io;
use tourbillon_api::{AuditAction, Moment, NamespaceLimits, NamespaceView, Problem, ProblemKind, Role};

/// The greatest number of namespaces, and of tokens, on the page.
const MOST: usize = 500;
/// The longest time for which a token made on this page is valid, in days.
const MOST_DAYS: u64 = 3_650;

/// A new token or signing secret. The page shows the text only once.
struct Secret {
    title: String,
    text: String,
}

#[derive(Template)]
#[template(path = "access.html")]
struct AccessPage<'a> {
    frame: Frame<'a>,
    namespaces: Vec<NamespaceView>,
    tokens: &'a [Stored],
    now: Moment,
    is_open: bool,
    /// The arguments with which `tourbillond token` finds the service's file of tokens, such as `--data
    /// /var/lib/tourbillon`.
    place: String,
    secret: Option<Secret>,
}

fn limits(limits: &NamespaceLimits) -> Vec<String> {
    let NamespaceLimits {
        max_timers,
        max_schedules,
        creations_per_second,
        rate_per_second,
        concurrency,
        max_body_bytes,
        max_delay_ms,
        allowed_hosts,
        keep_answers,
        paused: _,
    } = limits;
    let mut list = Vec::new();
    list.extend(max_timers.map(|most| format!("{} timers", number(most))));
    list.extend(max_schedules.map(|most| format!("{} schedules", number(most))));
    list.extend(creations_per_second.map(|rate| format!("{} creations/s", number(rate.into()))));
    list.extend(rate_per_second.map(|rate| format!("{} deliveries/s", number(rate.into()))));
    list.extend(concurrency.map(|most| format!("{} at a time", number(most.into()))));
    list.extend(max_body_bytes.map(|most| format!("bodies of {} bytes", number(most.into()))));
    list.extend(max_delay_ms.map(|most| format!("due within {}", span(most))));
    if !allowed_hosts.is_empty() {
        list.push(format!("only {}", allowed_hosts.join(", ")));
    }
    if *keep_answers {
        list.push("answers are kept".to_owned());
    }
    list
}

async fn page(service: &Service, visitor: &Visitor, secret: Option<Secret>) -> Result<Response, Fault> {
    check(visitor)?;
    let mut namespaces = service.namespace_admin().views(|_| true).await?;
    namespaces.truncate(MOST);
    let known = service.tokens().known();
    let tokens = known.as_deref().unwrap_or_default();
    let page = AccessPage {
        // The script does not refresh this page: a refresh would remove the secret, which is shown only once.
        frame: Frame::still(visitor, "access"),
        namespaces,
        tokens: tokens.get(..MOST).unwrap_or(tokens),
        now: now(service),
        is_open: visitor.is_open,
        place: token_place(service.settings()),
        secret,
    };
    Ok(show(&page))
}

/// Returns the arguments with which `tourbillond token` finds the service's file of tokens, such as `--data
/// /var/lib/tourbillon`.
fn token_place(settings: &Settings) -> String {
    // The path is absolute, because the administrator may run the command in another folder.
    let absolute = |path: &std::path::Path| {
        std::path::absolute(path).unwrap_or_else(|_| path.to_owned()).display().to_string()
    };
    match &settings.tokens {
        Some(file) if *file != settings.data.join("tokens.json") => format!("--tokens {}", absolute(file)),
        _ => format!("--data {}", absolute(&settings.data)),
    }
}

fn check(visitor: &Visitor) -> Result<(), Fault> {
    let detail = "Namespaces and tokens are shown to administrators of the whole service.";
    Fault::unless(visitor.rules(), detail)
}

pub(super) async fn show_access(State(service): State<Service>, visitor: Visitor) -> Result<Response, Fault> {
    page(&service, &visitor, None).await
}

/// Creates, pauses, resumes or removes a namespace, or makes a signing secret. `verb`, the last segment of the path,
/// names the change.
pub(super) async fn change_namespace(
    State(service): State<Service>,
    Path(verb): Path<String>,
    form: Posted,
) -> Result<Response, Fault> {
    let Posted { visitor, fields } = &form;
    check(visitor)?;
    let name = fields.get("name").trim();
    match &*verb {
        "make" => service.namespace_admin().make(name).await?,
        "pause" | "resume" => service.namespace_admin().pause(name, verb == "pause").await?,
        "secret" => {
            let secret = service.namespace_admin().make_secret(name).await?.secret;
            let title = format!("The new signing secret of the namespace {name}. It is not shown again.");
            // A redirect would lose the secret, because no later page shows it.
            return page(&service, visitor, Some(Secret { title, text: secret })).await;
        }
        "remove" => {
            fields.confirm(name)?;
            service.namespace_admin().remove(name).await?;
        }
        _ => return Err(Fault::no_page()),
    }
    Ok(Redirect::to("/ui/access").into_response())
}

/// Applies `change` to the file of tokens, on a thread that may block. Then makes the service read the file again.
async fn change_file<T: Send + 'static>(
    service: &Service,
    change: impl FnOnce(&Service) -> io::Result<T> + Send + 'static,
) -> Result<T, Problem> {
    let service = service.clone();
    let changed = task::blocking(move || {
        let answer = change(&service)?;
        // Without this call, a revoked token would stay valid until the service checks the file again.
        service.reload_tokens(true)?;
        Ok::<T, io::Error>(answer)
    });
    let changed = changed.await.map_err(|error| Problem::new(ProblemKind::Internal, error.to_string()))?;
    changed.map_err(|error| {
        let kind = if error.kind() == io::ErrorKind::NotFound {
            ProblemKind::NotFound
        } else {
            ProblemKind::StoreUnavailable
        };
        Problem::new(kind, error.to_string())
    })
}

/// Makes or revokes a token. `verb` is the last part of the address, and names the change. Only the answer to this
/// request shows the text of a new token.
pub(super) async fn change_token(
    State(service): State<Service>,
    Path(verb): Path<String>,
    form: Posted,
) -> Result<Response, Fault> {
    let Posted { visitor, fields } = &form;
    check(visitor)?;
    if visitor.is_open {
        // While the service has no tokens, everybody may use it. The first token would lock out this visitor too.
        return Err(Fault::forbidden(
            "The first token is made on the command line: `tourbillond token new`.",
        ));
    }
    match &*verb {
        "make" => {
            let role = match fields.get("role") {
                "reader" => Role::Reader,
                "writer" => Role::Writer,
                "admin" => Role::Admin,
                _ => return Err(Fault::bad("The role is reader, writer or admin.")),
            };
            let namespace = fields.given("namespace").map(|name| Box::<str>::from(name.trim()));
            if let Some(namespace) = &namespace {
                service.namespaces().require(namespace)?;
            }
            let name = fields.get("name").trim();
            if name.is_empty() || name.len() > LONGEST_TOKEN_NAME {
                return Err(Fault::bad(format!("A token's name has 1 to {LONGEST_TOKEN_NAME} bytes.")));
            }
            let expires = match fields.given("days").map(str::parse::<u64>) {
                None => None,
                Some(Ok(days)) if (1..=MOST_DAYS).contains(&days) => Some(Duration::from_secs(days * 86_400)),
                Some(_) => {
                    return Err(Fault::bad(format!("A token lasts for 1 to {MOST_DAYS} days, or for ever.")));
                }
            };
            let new = NewToken { name: name.into(), role, namespace, expires };
            let entry = service
                .audit()
                .begin(Deed::new(AuditAction::MakeToken).detail(format!("{name:?}, {}", role_name(role))));
            let added = change_file(&service, |service| service.tokens().file().add(new)).await;
            let entry = match &added {
                Ok((_, stored)) => entry.add(|deed| deed.target(stored.id()).detail(stored.words())),
                Err(_) => entry,
            };
            // The audit entry ends before an error returns, because a dropped entry records an unknown outcome.
            entry.end(&added).await;
            let (text, _) = added?;
            let title = format!("The new token {name}. It is not shown again.");
            page(&service, visitor, Some(Secret { title, text })).await
        }
        "revoke" => {
            let id = fields.get("id").to_owned();
            fields.confirm(&id)?;
            let entry = service.audit().begin(Deed::new(AuditAction::RevokeToken).target(&*id));
            let revoked = change_file(&service, move |service| service.tokens().file().revoke(&id)).await;
            let entry = match &revoked {
                Ok(stored) => entry.add(|deed| deed.detail(stored.words())),
                Err(_) => entry,
            };
            // As for a new token, the audit entry ends before an error returns.
            entry.end(&revoked).await;
            revoked?;
            Ok(Redirect::to("/ui/access").into_response())
        }
        _ => Err(Fault::no_page()),
    }
}
