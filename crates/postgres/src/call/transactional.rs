//! Makes calls that a program runs in its own transactions.

use super::answer::{self, Seen};
use super::error::{CallError, CallErrorKind};
use super::policy;
use super::service;
use super::statement::{Call, Value};
use super::values::{labels, moment, named};
use crate::deployment::Deployment;
use crate::layout::SchemaName;
use core::fmt;
use core::time::Duration;
use std::sync::{Arc, Weak};
use tourbillon_api::{CancelResult, NewTimer};
use tourbillon_durable::state::Token;
use tourbillon_durable::store::{IfPresent, Op};
use tourbillon_durable::timer::{Address, TimerId};
use tourbillon_durable::{Changed, Due, Kind, Limits, Placed, Rejection, Spec, UtcMillis};

/// Creates, cancels, moves and ends timers in transactions of a program's own connections to the database.
///
/// Each method makes a [`Call`], which `with_sqlx`, `with_tokio_postgres` or `with_diesel` runs on a connection. A
/// method checks its arguments, and sends nothing. The description ([`Spec`]) of a timer is borrowed, so the caller can
/// use it again if the transaction must be repeated.
///
/// A timer that a transaction creates exists only if the transaction commits. No delivery of the timer begins before
/// the commit. After a rollback, the timer never existed. So a program stores an order and its timeout together or not
/// at all.
///
/// The user of the connection needs only the right `USAGE` on the schema.
///
/// In a schema of the service `tourbillond`, only [`put`](Self::put) creates timers. The address of such a timer is its
/// id, or its key with its namespace ([`KeyOf`](tourbillon_durable::timer::KeyOf)). A key alone means the namespace
/// `""`, which the service does not have. So a call with a key alone fails with [`CallErrorKind::Invalid`].
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tourbillon_durable::{Kind, Spec};
/// use tourbillon_postgres::Transactional;
///
/// #[derive(Debug, serde::Serialize, serde::Deserialize)]
/// struct PaymentTimeout {
///     order: i64,
/// }
///
/// impl Kind for PaymentTimeout {
///     const NAME: &'static str = "payment timeout";
/// }
///
/// let timers = Transactional::default();
/// let timeout = Spec::new(PaymentTimeout { order: 17 }).key("order 17").after(Duration::from_secs(30 * 86_400));
/// let call = timers.schedule(&timeout)?;
/// // In a transaction of sqlx: call.with_sqlx(&mut transaction).await?
/// assert_eq!(call.values().len(), 12);
/// # Ok::<(), tourbillon_postgres::CallError>(())
/// ```
#[derive(Clone)]
pub struct Transactional {
    schema: SchemaName,
    /// The open store that made this value. [`wake`](Self::wake) makes this store look for new timers. Empty if this
    /// value was made without a store.
    store: Weak<Deployment>,
}

/// The default works with the schema `tourbillon`. It is made without an open store, so its method
/// [`Transactional::wake`] has no effect.
impl Default for Transactional {
    fn default() -> Self {
        Self { schema: SchemaName::default(), store: Weak::new() }
    }
}

impl fmt::Debug for Transactional {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transactional").field("schema", &self.schema.as_str()).finish_non_exhaustive()
    }
}

const PLACE: &str = "SELECT to_jsonb(p)::text AS answer FROM tourbillon.place(kind => $1::text, \
                     payload => $2::bytea, due => $3::text::timestamptz, delay => $4::text::interval, \
                     key => $5::text, namespace => $6::text, \
                     labels => (SELECT array_agg(l) FROM jsonb_array_elements_text($7::text::jsonb) l), \
                     policy => $8::text::jsonb, if_present => $9::text, replaces => $10::text::uuid, \
                     id => $11::text::uuid, trace => $12::text) p";

const CANCEL: &str =
    "SELECT tourbillon.cancel(key => $1::text, namespace => $2::text, id => $3::text::uuid) AS answer";

const MOVE: &str = "SELECT tourbillon.move_to(key => $1::text, namespace => $2::text, id => $3::text::uuid, \
                    due => $4::text::timestamptz, delay => $5::text::interval) AS answer";

const LOOK: &str = "SELECT (to_jsonb(s) || jsonb_build_object(\
                    'due', (extract(epoch FROM s.due) * 1000)::bigint, \
                    'scheduled', (extract(epoch FROM s.scheduled) * 1000)::bigint, \
                    'created', (extract(epoch FROM s.created) * 1000)::bigint, \
                    'leased_until', (extract(epoch FROM s.leased_until) * 1000)::bigint))::text AS answer \
                    FROM tourbillon.look(key => $1::text, namespace => $2::text, id => $3::text::uuid) s";

const DONE: &str = "SELECT 'done' AS answer FROM tourbillon.done(id => $1::text::uuid, token => $2::text)";

impl Transactional {
    pub(crate) fn of(deployment: &Arc<Deployment>) -> Self {
        Self { schema: deployment.pool.schema().clone(), store: Arc::downgrade(deployment) }
    }

    /// Returns a `Transactional` for the schema `name`. The value is made without an open store, so its method
    /// [`wake`](Self::wake) has no effect.
    ///
    /// # Errors
    ///
    /// Fails with [`CallErrorKind::Invalid`] if the name is not valid. See
    /// [`PostgresBuilder::schema`](crate::PostgresBuilder::schema).
    pub fn in_schema(name: &str) -> Result<Self, CallError> {
        let Some(schema) = SchemaName::parse(name) else {
            return Err(CallError::new(CallErrorKind::Invalid, SchemaName::RULE));
        };
        Ok(Self { schema, store: Weak::new() })
    }

    /// Makes the store that made this value look for new timers at once. A program calls this method after a commit.
    /// The method does not wait. It has no effect if this value was made without a store. The stores of other processes
    /// find the new timers at their next poll (see [`POLL`](crate::POLL)).
    pub fn wake(&self) {
        if let Some(store) = self.store.upgrade() {
            store.alarm.wake();
        }
    }

    /// Creates a timer. A delay counts from the moment at which the server runs the statement, by the server's clock.
    ///
    /// The durability in `spec` has no effect: the commit of the transaction decides the durability. The times in the
    /// policy of `spec` are rounded up to whole milliseconds.
    ///
    /// # Errors
    ///
    /// This method fails if `spec` is not valid, or exceeds a limit. It fails with [`CallErrorKind::Unsupported`] if
    /// `spec` has a series, a jitter, or a limit of deliveries. The returned call fails with
    /// [`CallErrorKind::KeyExists`] if another timer has the key. After this error, the transaction can go on.
    pub fn schedule<K: Kind>(&self, spec: &Spec<K>) -> Result<Call<Placed>, CallError> {
        self.place(spec, spec.operation_of_kind(UtcMillis::ZERO, &limits()))
    }

    /// Creates a timer with a payload of bytes, as [`schedule`](Self::schedule) does. The kind is a name by which the
    /// runtime finds the handler.
    ///
    /// # Errors
    ///
    /// As for [`schedule`](Self::schedule).
    pub fn schedule_bytes(&self, kind: &str, spec: &Spec<Vec<u8>>) -> Result<Call<Placed>, CallError> {
        self.place(spec, spec.operation(kind, spec.payload().clone(), UtcMillis::ZERO, &limits()))
    }

    fn place<P>(&self, spec: &Spec<P>, op: Result<Op, Rejection>) -> Result<Call<Placed>, CallError> {
        let Op::Place(timer, mode) = op? else { unreachable!("a description makes a creation") };
        if timer.series.is_some() {
            let message = "the functions of PostgreSQL take no series";
            return Err(CallError::new(CallErrorKind::Unsupported, message));
        }
        let (word, replaces) = match mode {
            IfPresent::Reject => ("reject", None),
            IfPresent::Keep => ("keep", None),
            IfPresent::Replace => ("replace", None),
            IfPresent::ReplaceKeepDue => ("replace-keep-due", None),
            IfPresent::ReplaceOnly(id) => ("replace-only", Some(id)),
        };
        let id = timer.has_chosen_id.then_some(timer.id);
        let id_text = |id: Option<TimerId>| Value::Text(id.map(|id| id.to_string()));
        let [due, delay] = moment(spec.due())?;
        let values = vec![
            Value::text(timer.kind),
            Value::Bytes(timer.payload.0.into_vec()),
            due,
            delay,
            Value::Text(timer.key.map(String::from)),
            Value::text(timer.namespace),
            labels(&timer.labels)?,
            Value::Text(policy::in_json(&timer.policy)?),
            Value::text(word),
            id_text(replaces),
            id_text(id),
            Value::Text(timer.trace.map(String::from)),
        ];
        Call::new(&self.schema, PLACE, values, answer::placed).admit()
    }

    /// Creates a timer of the service `tourbillond`, as a request to its HTTP interface does. At the due moment the
    /// service sends a callback, or puts a message into a queue. The answer is the id of the stored timer.
    ///
    /// The service checks the destination of a callback only when it sends the request. The limits that the service has
    /// for the namespace are not checked.
    ///
    /// ```
    /// use tourbillon_postgres::Transactional;
    /// use tourbillon_postgres::tourbillon_api::{Callback, NewTimer};
    ///
    /// let expire = NewTimer::callback(Callback::post("https://shop.example/orders/17/expire")).after_ms(60_000);
    /// let call = Transactional::default().put("default", Some("order 17"), &expire)?;
    /// assert!(call.text().contains("schedule_callback"));
    /// # Ok::<(), tourbillon_postgres::CallError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// This method fails if the timer has both a callback and a queue, or neither. It fails if the timer has both a due
    /// moment and a delay, or more than one body. It also fails if the delay is too long, if a body is not valid base
    /// 64, or if a text has a zero byte.
    ///
    /// The call fails with [`CallErrorKind::Invalid`], [`CallErrorKind::TooLong`], [`CallErrorKind::DueTooFar`],
    /// [`CallErrorKind::Unsupported`] or [`CallErrorKind::KeyExists`]. After each of these errors the transaction must
    /// be rolled back.
    pub fn put(
        &self,
        namespace: &str,
        key: Option<&str>,
        timer: &NewTimer,
    ) -> Result<Call<TimerId>, CallError> {
        let (text, values) = service::statement(namespace, key, timer)?;
        Call::new(&self.schema, text, values, answer::id).admit()
    }

    /// Cancels the timer with an id or key. If the answer is [`CancelResult::Cancelled`] and the transaction commits,
    /// no delivery of the timer begins any more. After a rollback, the timer is as before.
    ///
    /// # Errors
    ///
    /// Fails with [`CallErrorKind::Invalid`] if the key or the namespace has a zero byte.
    pub fn cancel(&self, at: impl Into<Address>) -> Result<Call<CancelResult>, CallError> {
        Call::new(&self.schema, CANCEL, named(at.into()).into(), answer::cancelled).admit()
    }

    /// Moves the due moment of a timer. A timer that is being delivered, or is dead, is not moved. A delay counts from
    /// the moment at which the server runs the statement, by the server's clock.
    ///
    /// # Errors
    ///
    /// Fails with [`CallErrorKind::Invalid`] if the key or the namespace has a zero byte, and with
    /// [`CallErrorKind::DueTooFar`] if the delay is too long.
    pub fn move_to(&self, at: impl Into<Address>, due: Due) -> Result<Call<Changed>, CallError> {
        let values = named(at.into()).into_iter().chain(moment(Some(due))?).collect();
        Call::new(&self.schema, MOVE, values, answer::moved).admit()
    }

    /// Returns the timer with an id or key, as the transaction sees it.
    ///
    /// # Errors
    ///
    /// Fails with [`CallErrorKind::Invalid`] if the key or the namespace has a zero byte.
    pub fn look(&self, at: impl Into<Address>) -> Result<Call<Option<Seen>>, CallError> {
        Call::new(&self.schema, LOOK, named(at.into()).into(), answer::seen).admit()
    }

    /// Ends the delivery of a timer as successful. `id` and `token` are the id and the token of the
    /// [`Delivery`](tourbillon_durable::Delivery).
    ///
    /// If the lease was lost, the call fails with [`CallErrorKind::Lost`], and the whole transaction must be rolled
    /// back. So an effect in the same database happens once, even if two processes handle the timer. After the commit
    /// the handler returns [`Verdict::Done`](tourbillon_durable::Verdict::Done) as usual, and the runtime notices that
    /// the delivery has ended already.
    ///
    /// The call fails with [`CallErrorKind::Unsupported`] if the timer is an occurrence of a series.
    pub fn done(&self, id: TimerId, token: Token) -> Call<()> {
        let token = format!("{:016x}{:016x}", token.incarnation, token.claim);
        let values = vec![Value::text(id.to_string()), Value::text(token)];
        Call::new(&self.schema, DONE, values, answer::done)
    }
}

/// Returns the limits by which the description of a timer ([`Spec`]) is checked before it is sent. The delay has no
/// limit here. The SQL functions check the delay by the server's clock.
fn limits() -> Limits {
    let mut limits = Limits::default();
    limits.delay = Duration::MAX;
    limits
}
