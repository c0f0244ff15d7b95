//! Hands due pull timers to the receivers that fetch them from queues. Then waits until the receiver ends its *claim*,
//! its hold on the timer, or until the claim expires.

use super::admission::Admission;
use super::observer::Observer;
use super::pull_queues::{ClaimRequest, ClaimVerdict, EndTicket, OpenClaim, PullQueues};
use super::reason::Reason;
use super::remote_claims::RemoteClaims;
use super::retry_pause::RetryPause;
use crate::convert::shown_body;
use crate::telemetry::{Span, Telemetry};
use crate::work::{LONGEST_CLAIM, StoredPull, head, read};
use core::time::Duration;
use std::sync::Arc;
use tokio::time::Instant;
use tourbillon_api::{Claim, Moment};
use tourbillon_durable::store::TimerStore;
use tourbillon_durable::{Delivery, Verdict};

/// After this pause, a failed request for the renewals of a claim at other nodes is repeated.
const ASKED_AGAIN: Duration = Duration::from_millis(500);

/// Handles due pull timers: hands each timer to a receiver that fetches from the timer's queue.
pub(crate) struct PullHandler {
    pub(super) admission: Arc<Admission>,
    pub(super) queues: Arc<PullQueues>,
    pub(super) observer: Arc<Observer>,
    pub(super) telemetry: Telemetry,
    pub(super) retry_pause: RetryPause,
    /// The store. The moments of expiry that receivers get are moments of the store's clock.
    pub(super) store: Arc<dyn TimerStore>,
    /// Ends and prolongs claims on other nodes. `None` if no other node shares the store.
    pub(super) remote_claims: Option<RemoteClaims>,
}

impl PullHandler {
    /// Hands the timer to a waiting receiver. Then waits until the receiver ends its claim (its hold on the timer), or
    /// until the claim expires. If no receiver waits, the returned verdict parks the timer. A stop of the service also
    /// ends the claim: the timer is parked, or has failed if it is delivered at most once and the receiver has got it.
    pub(crate) async fn deliver(&self, work: &[u8], delivery: &Delivery) -> Verdict {
        let StoredPull { queue, body, timeout_ms } = match read(work) {
            Ok(work) => work,
            Err(reason) => return Verdict::Dead(reason),
        };
        let park = |reason: &Reason| Verdict::Park(reason.to_string().into());
        let name = &*delivery.namespace;
        let reason = Reason::Queue(name.into(), queue.clone());
        // If a timer of a paused namespace were parked for its queue, the next receiver would make the timer due in
        // vain.
        if let Err(held_back) = self.admission.namespace(name) {
            return park(&held_back);
        }
        let mut arrival = self.queues.arrive(&reason, name, delivery.due);
        let timeout = Duration::from_millis(timeout_ms.into());
        // `_place` keeps the permit and the namespace until the claim has ended. The pattern `_` would drop them at
        // once. A namespace that is held cannot be removed. Otherwise it could be removed while a receiver has a timer
        // that is delivered at most once, because the store no longer counts this timer.
        let (_place, mut span, open, claim) = loop {
            if !arrival.is_awaited().await {
                return park(&reason);
            }
            // `enter` also takes a slot of the namespace's rate, which can be given back only for a short time. So the
            // timer looks for a receiver first.
            let mut place = match self.admission.enter(name, &[]).await {
                Ok(place) => place,
                Err(held_back) => return park(&held_back),
            };
            let mut span = self.telemetry.claim(delivery, &queue);
            let Some(name) = self.name(delivery) else {
                span.discard();
                let error = "the system gave no random number".into();
                return self.retry_pause.with(Verdict::Retry { error, after: None }, delivery.pause);
            };
            let until = (self.store.now() + timeout).into();
            let claim = claim(name, delivery, &span, work, body.clone(), until);
            match arrival.hand_over(&claim, delivery.is_once()) {
                Some(open) => {
                    place.begun();
                    break (place, span, open, claim);
                }
                // Another timer got the receiver first, the receiver has gone away, or the namespace has reached its
                // limit of open claims.
                None => span.discard(),
            }
        };
        // For a timer that is delivered at most once, the delivery starts when the store removes the timer. Before
        // that, the delivery can end without having reached the receiver.
        if !delivery.is_once() {
            self.observer.started(delivery);
        }
        let remote_claims = self.remote_claims.as_ref();
        let begins = self.observer.begin(delivery, work);
        let ended = await_end(open, begins, timeout, name, &claim.claim, &*self.store, remote_claims).await;
        let (verdict, ticket) = match ended {
            ClaimEnd::Asked(verdict, ticket) => {
                (verdict.verdict(self.store.now(), self.retry_pause), Some(ticket))
            }
            ClaimEnd::Expired => (failed("the receiver did not end its claim in time"), None),
            // The store has the timer no longer.
            ClaimEnd::Stopped if delivery.is_removed() => {
                (failed("the service stopped before the receiver ended its claim"), None)
            }
            // A timer that the store has removed cannot be parked. Its history shows it as lost.
            ClaimEnd::Stopped | ClaimEnd::NotHandedOver => {
                span.ended(None);
                return park(&reason);
            }
        };
        span.ended(Some(&verdict));
        drop(span);
        // The pause is lengthened before `expect_end`. If the runtime reported another verdict than `expect_end` got,
        // the receiver would learn, wrongly, that its request came too late.
        let verdict = self.retry_pause.with(verdict, delivery.pause);
        if let Some(ticket) = ticket {
            self.observer.expect_end(delivery, &verdict, ticket);
        }
        verdict
    }
}

impl PullHandler {
    /// Makes a random name for a claim (a receiver's hold on a timer). If nodes share the store, and the delivery has a
    /// lease, the name also contains the timer's id and lease. Any node can then end the claim. Returns `None` if the
    /// system gives no random number.
    fn name(&self, delivery: &Delivery) -> Option<String> {
        let mut random = [0; 16];
        getrandom::fill(&mut random).ok()?;
        let random = u128::from_ne_bytes(random);
        let shared = self.remote_claims.as_ref().and_then(|claims| claims.name(random, delivery));
        Some(shared.unwrap_or_else(|| format!("{random:032x}")))
    }
}

/// The way in which a claim has ended.
enum ClaimEnd {
    /// The receiver has asked to end the claim. The ticket answers the receiver once the store has recorded the end.
    Asked(ClaimVerdict, EndTicket),
    /// The receiver has not ended the claim in time.
    Expired,
    /// The service stops, and the receiver has got the claim.
    Stopped,
    /// The claim was removed before a receiver has got it: the receiver has gone away, or the service stops.
    NotHandedOver,
}

fn failed(error: &str) -> Verdict {
    Verdict::Retry { error: error.into(), after: None }
}

/// Returns the remaining time of a claim that the receiver has renewed at another node, and `None` if the claim has no
/// time left. While the store does not answer, waits and asks again, because the other node may have promised the
/// receiver a later end. Gives up at `last`, the moment after which no renewal can prolong the claim.
///
/// The wait is safe. If the timer's lease ends during the wait, the timer may be delivered again, but the store then
/// refuses each end of this claim by the lease's token. The runtime drops this future once the store answers a renewal
/// of the lease with its loss.
async fn rest_elsewhere(
    namespace: &str,
    claim: &str,
    remote_claims: &RemoteClaims,
    last: Instant,
) -> Option<Duration> {
    let asked = async {
        loop {
            match remote_claims.rest(namespace, claim).await {
                Ok(rest) => return rest,
                Err(error) if error.is_transient() => tokio::time::sleep(ASKED_AGAIN).await,
                // A further question would get the same answer.
                Err(_) => return None,
            }
        }
    };
    tokio::time::timeout_at(last, asked).await.ok().flatten()
}

/// Waits until a claim ends. `begins` begins the delivery of a timer that is delivered at most once.
async fn await_end(
    mut open: OpenClaim,
    begins: impl Future<Output = bool>,
    timeout: Duration,
    namespace: &str,
    claim: &str,
    store: &dyn TimerStore,
    remote_claims: Option<&RemoteClaims>,
) -> ClaimEnd {
    // The receiver may wait for further timers before it gets this one, for longer than the claim's time. Only the
    // receiver's departure or a stop of the service ends the claim in this time, and both remove it.
    if !open.is_handed_over(begins).await {
        return ClaimEnd::NotHandedOver;
    }
    let begin = Instant::now();
    let last = begin + LONGEST_CLAIM;
    let mut until = begin + timeout;
    loop {
        let expired = async move {
            tokio::time::sleep_until(until).await;
            match remote_claims {
                // The receiver may have prolonged the claim at another node. Only the namespace's document of renewals
                // shows this.
                Some(claims) if until < last => rest_elsewhere(namespace, claim, claims, last).await,
                _ => None,
            }
        };
        let request = tokio::select! {
            // A request that came in time counts, although the claim has just expired.
            biased;
            request = open.request() => request,
            rest = expired => {
                let Some(rest) = rest else { return ClaimEnd::Expired };
                // The other node reads the start of the claim from the claim's name, which a client can change. So the
                // bound applies here again.
                until = (Instant::now() + rest).min(last);
                continue;
            }
        };
        match request {
            Some(ClaimRequest::Remove(_) | ClaimRequest::Begin) => {}
            None | Some(ClaimRequest::Stop) => return ClaimEnd::Stopped,
            Some(ClaimRequest::End(verdict, ticket)) => return ClaimEnd::Asked(verdict, ticket),
            Some(ClaimRequest::Renew(sender)) => {
                until = (Instant::now() + timeout).min(last);
                let rest = until.saturating_duration_since(Instant::now());
                let _receiver_has_gone = sender.send((store.now() + rest).into());
            }
        }
    }
}

/// Makes the claim that the receiver gets. `until` is its end by the store's clock. `work` is the timer's stored queue
/// entry, which contains the id of the request that created the timer.
fn claim(name: String, delivery: &Delivery, span: &Span, work: &[u8], body: Vec<u8>, until: Moment) -> Claim {
    let (body, body_base64) = shown_body(body);
    Claim {
        claim: name,
        id: delivery.id.to_string(),
        key: delivery.key.as_deref().map(str::to_owned),
        labels: delivery.labels.iter().map(|label| label.to_string()).collect(),
        scheduled: delivery.scheduled.into(),
        attempt: delivery.attempt,
        until,
        trace: span.trace().map(|trace| trace.to_string()),
        request_id: head(work).request.map(str::to_owned),
        body,
        body_base64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::ClusterStore;
    use crate::state::double::{self, Documents, Looks, Node};
    use core::future::ready;
    use core::sync::atomic::Ordering;
    use tokio::sync::oneshot;
    use tokio::task::JoinHandle;
    use tourbillon_durable::UtcMillis;
    use tourbillon_durable::store::{Hooked, MemoryStore};

    const TIME: Duration = Duration::from_millis(100);

    fn named(name: &str) -> Claim {
        serde_json::from_value(serde_json::json!({
            "claim": name, "id": name, "labels": [], "scheduled": "2026-01-01T00:00:00Z", "attempt": 1,
            "until": "2026-01-01T00:00:00Z", "body": "",
        }))
        .unwrap()
    }

    /// Lets a receiver ask for two timers, and hands it one timer with a claim that lasts for [`TIME`]. After 150 ms
    /// without the second timer, calls `then` with the queues and the running fetch. Returns the end of the claim.
    async fn gathered(then: impl AsyncFnOnce(&PullQueues, JoinHandle<Vec<Claim>>)) -> ClaimEnd {
        let queues = Arc::new(PullQueues::new(Arc::default(), 64, false));
        let reason = Reason::Queue("a".into(), "q".into());
        let fetch = tokio::spawn({
            let queues = Arc::clone(&queues);
            async move { queues.fetch("a", "q", 2, Duration::from_secs(5)).await.unwrap() }
        });
        while queues.receivers().is_empty() {
            tokio::task::yield_now().await;
        }
        let mut arrivals = [(); 2].map(|()| queues.arrive(&reason, "a", UtcMillis::ZERO));
        for arrival in &mut arrivals {
            assert!(arrival.is_awaited().await);
        }
        let open = arrivals[0].hand_over(&named("one"), false).unwrap();
        let end = tokio::spawn(async move {
            await_end(open, ready(true), TIME, "a", "one", &MemoryStore::default(), None).await
        });
        tokio::time::sleep(TIME * 3 / 2).await;
        assert!(
            !fetch.is_finished() && !end.is_finished(),
            "the time has begun before the receiver has the timer"
        );
        then(&queues, fetch).await;
        drop(arrivals);
        end.await.unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn the_time_of_a_claim_begins_when_the_receiver_gets_it() {
        let begun = Instant::now();
        let end = gathered(async |_, fetch| {
            // The second timer does not come within a second, the longest time for which the receiver gathers.
            let claims = fetch.await.unwrap();
            assert_eq!(claims.len(), 1);
            let moved = claims[0].until.as_millis() - named("one").until.as_millis();
            assert_eq!(u128::from(moved), begun.elapsed().as_millis());
        });
        assert!(matches!(end.await, ClaimEnd::Expired));
        assert!(begun.elapsed() >= Duration::from_secs(1) + TIME);
    }

    #[tokio::test(start_paused = true)]
    async fn a_timer_that_no_receiver_got_is_parked_after_the_time_of_its_claim_too() {
        let gone = gathered(async |_, fetch| {
            fetch.abort();
            assert!(fetch.await.is_err());
        });
        assert!(matches!(gone.await, ClaimEnd::NotHandedOver));
        let stopped = gathered(async |queues, fetch| {
            queues.close();
            assert_eq!(fetch.await.unwrap(), []);
        });
        assert!(matches!(stopped.await, ClaimEnd::NotHandedOver));
    }

    /// A claim that a receiver has got from a node that shares its store with other nodes.
    struct Claimed {
        node: Arc<Hooked<Node>>,
        documents: Documents,
        queues: Arc<PullQueues>,
        end: JoinHandle<ClaimEnd>,
        begun: Instant,
    }

    /// The name of a claim, and the key of its entry in the document of renewals.
    const NAME: [&str; 2] = [
        "0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000",
        "0000000000000000000000000000000000000000000000000000000000000000",
    ];

    /// Hands a claim with the time [`TIME`] to a receiver, at a node whose store does not answer.
    async fn unanswered() -> Claimed {
        let documents = Documents::default();
        let node = double::node(&documents, 1);
        node.hook().fails_reads.store(true, Ordering::Relaxed);
        let store: Arc<dyn ClusterStore> = Arc::clone(&node) as _;
        let claims = RemoteClaims::new(store, RetryPause { least: Duration::ZERO });
        let queues = Arc::new(PullQueues::new(Arc::default(), 64, false));
        let fetch = tokio::spawn({
            let queues = Arc::clone(&queues);
            async move { queues.fetch("a", "q", 1, Duration::from_secs(5)).await.unwrap() }
        });
        while queues.receivers().is_empty() {
            tokio::task::yield_now().await;
        }
        let reason = Reason::Queue("a".into(), "q".into());
        let open = {
            let mut arrival = queues.arrive(&reason, "a", UtcMillis::ZERO);
            assert!(arrival.is_awaited().await);
            arrival.hand_over(&named(NAME[0]), false).unwrap()
        };
        let end = tokio::spawn({
            let node = Arc::clone(&node);
            async move { await_end(open, ready(true), TIME, "a", NAME[0], &*node, Some(&claims)).await }
        });
        assert_eq!(fetch.await.unwrap().len(), 1);
        Claimed { node, documents, queues, end, begun: Instant::now() }
    }

    impl Claimed {
        /// Stores a renewal as another node would. The renewed claim expires `time` from now by the store's clock.
        fn renew_elsewhere(&self, time: Duration) {
            let until = (self.node.now() + time).as_millis();
            let renewals = serde_json::to_vec(&serde_json::json!({ NAME[1]: until })).unwrap();
            self.documents.lock().unwrap().insert("renewals/a".to_owned(), (1, renewals));
        }

        fn answer(&self) {
            self.node.hook().fails_reads.store(false, Ordering::Relaxed);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_claim_that_was_renewed_elsewhere_outlives_a_store_that_does_not_answer_at_its_first_end() {
        let claimed = unanswered().await;
        claimed.renew_elsewhere(60 * TIME);
        tokio::time::sleep(20 * TIME).await;
        assert!(!claimed.end.is_finished(), "the store has not said that there is no renewal");
        claimed.answer();
        tokio::time::sleep(30 * TIME).await;
        assert!(!claimed.end.is_finished(), "the receiver was promised a later end");
        claimed.renew_elsewhere(Duration::ZERO);
        assert!(matches!(claimed.end.await.unwrap(), ClaimEnd::Expired));
    }

    #[tokio::test(start_paused = true)]
    async fn a_claim_that_was_renewed_nowhere_expires_once_the_store_answers() {
        let claimed = unanswered().await;
        tokio::time::sleep(20 * TIME).await;
        assert!(!claimed.end.is_finished());
        claimed.answer();
        assert!(matches!(claimed.end.await.unwrap(), ClaimEnd::Expired));
        assert!(claimed.begun.elapsed() <= 20 * TIME + ASKED_AGAIN);
    }

    #[tokio::test(start_paused = true)]
    async fn a_receiver_ends_its_claim_while_the_store_does_not_answer() {
        for answers_late in [false, true] {
            let claimed = unanswered().await;
            let (_never, signal) = oneshot::channel();
            if answers_late {
                // The read of the renewals is under way when the receiver ends its claim.
                claimed.node.hook().waits.lock().unwrap().push_back((Looks::After, signal));
            }
            tokio::time::sleep(3 * TIME).await;
            let asked = tokio::spawn({
                let queues = Arc::clone(&claimed.queues);
                async move { queues.end("a", NAME[0], Verdict::Done).await }
            });
            let ClaimEnd::Asked(verdict, ticket) = claimed.end.await.unwrap() else {
                panic!("{answers_late}")
            };
            assert_eq!(verdict, Verdict::Done.into());
            drop(ticket);
            drop(asked.await.unwrap());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_claim_lasts_no_longer_than_the_longest_claim_while_the_store_does_not_answer() {
        let claimed = unanswered().await;
        assert!(matches!(claimed.end.await.unwrap(), ClaimEnd::Expired));
        assert_eq!(claimed.begun.elapsed().as_secs(), LONGEST_CLAIM.as_secs());
    }

    #[tokio::test(start_paused = true)]
    async fn damaged_renewals_do_not_keep_a_claim() {
        let claimed = unanswered().await;
        claimed.documents.lock().unwrap().insert("renewals/a".to_owned(), (1, b"no object".to_vec()));
        claimed.answer();
        assert!(matches!(claimed.end.await.unwrap(), ClaimEnd::Expired));
        assert!(claimed.begun.elapsed() <= TIME + ASKED_AGAIN);
    }
}
