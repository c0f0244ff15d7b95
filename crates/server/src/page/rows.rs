//! Makes the rows in lists of timers, and the addresses to which the rows link.

use super::fault::Fault;
use super::text::{beginning, segment, with_query};
use crate::service::id;
use tourbillon_api::Timer;
use tourbillon_durable::timer::TimerId;
use url::Url;

/// Returns the address of the page that shows a timer.
pub(super) fn address(namespace: &str, id: &str) -> String {
    format!("/ui/timers/{}/{id}", segment(namespace))
}

/// Parses the id of a timer from an address. Fails with the page "no such page" if the text is not an id.
pub(super) fn id_of(text: &str) -> Result<TimerId, Fault> {
    id(text).map_err(|_| Fault::no_page())
}

/// Returns the address of a page with a list of timers that meet a single condition. `path` is the page's path, such as
/// `/ui/dead`. `condition` is the name and the value of a parameter in the address's query. If `namespace` is empty,
/// the list has timers of all namespaces.
pub(super) fn list_address(path: &str, namespace: &str, condition: (&str, &str)) -> String {
    with_query(path, &[("namespace", namespace), condition])
}

/// Returns the address of a page with a list of all items of a namespace, such as its timers. `path` is the page's
/// path, such as `/ui/timers`. If `namespace` is empty, the list has the items of all namespaces.
pub(super) fn whole_list(path: &str, namespace: &str) -> String {
    with_query(path, &[("namespace", namespace)])
}

/// Describes the receiver of a timer: the method, host and path of its callback, or the name of its queue.
pub(super) fn target(timer: &Timer) -> String {
    if let Some(callback) = &timer.callback {
        let host = Url::parse(&callback.url).ok().map(|url| {
            let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
            format!("{}{port}{}", url.host_str().unwrap_or_default(), url.path())
        });
        let method = callback.method.as_deref().unwrap_or("POST");
        return format!("{method} {}", host.unwrap_or_else(|| callback.url.clone()));
    }
    timer.pull.as_ref().map_or_else(String::new, |pull| format!("queue {}", pull.queue))
}

/// Returns the labels of a timer. With each label comes the address of a page that lists the timers with this label in
/// the timer's namespace. `path` is the path of this page, such as `/ui/dead`.
pub(super) fn labels(timer: &Timer, path: &str) -> Vec<(String, String)> {
    let address = |label: &String| (label.clone(), list_address(path, &timer.namespace, ("label", label)));
    timer.labels.iter().map(address).collect()
}

/// Returns the key of a timer. Returns the timer's id if it has no key.
pub(super) fn name(timer: &Timer) -> &str {
    timer.key.as_deref().unwrap_or(&timer.id)
}

/// Returns the beginning of a timer's last error, or an empty text.
pub(super) fn error(timer: &Timer) -> String {
    beginning(timer.last_error.as_deref().unwrap_or(""), 80)
}

/// Returns words for the reason why a timer is dead, such as "all attempts failed". Returns an empty text for an
/// unknown reason.
pub(super) fn death(timer: &Timer) -> &'static str {
    match timer.reason.as_deref().unwrap_or("") {
        "attempts" => "all attempts failed",
        "deliveries" => "no delivery had an end",
        "age" => "too old for another attempt",
        "blocked-destination" => "destination blocked",
        "refused" => "refused by the receiver",
        "plan" => "its plan cannot be followed",
        _ => "",
    }
}
