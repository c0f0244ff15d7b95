use super::*;

fn permits() -> Arc<Permits> {
    Arc::new(Permits::new(Arc::default(), 0))
}

fn host(name: &str) -> Reason {
    Reason::host("n", name)
}

/// Makes the host answer a delivery quickly, so that it counts as quick.
async fn answer(permits: &Arc<Permits>, host: &Reason) {
    enter(permits, &[(host, 1)]).await.unwrap().note(Some(true));
}

async fn enter(permits: &Arc<Permits>, limiters: &[(&Reason, usize)]) -> Result<Permit, Reason> {
    let request =
        |(reason, limit): &(&Reason, usize)| PermitRequest { reason: (*reason).clone(), limit: *limit };
    permits.enter(limiters.iter().map(request).collect()).await
}

#[tokio::test(start_paused = true)]
async fn a_delivery_that_waits_holds_nothing_of_other_limiters() {
    let permits = permits();
    let (a, b, ns) = (host("a"), host("b"), Reason::Concurrency("n".into()));
    answer(&permits, &a).await;
    let first = enter(&permits, &[(&a, 1), (&ns, 2)]).await.unwrap();
    let second = tokio::spawn({
        let (permits, a, ns) = (Arc::clone(&permits), a.clone(), ns.clone());
        async move { enter(&permits, &[(&a, 1), (&ns, 2)]).await }
    });
    tokio::task::yield_now().await;
    let other = enter(&permits, &[(&b, 1), (&ns, 2)]).await.unwrap();
    drop(first);
    // The host now has a free permit, and the namespace has none.
    tokio::task::yield_now().await;
    assert_eq!(
        permits.lock().limiters[&ns].running,
        2,
        "the second delivery has got the permit of the first"
    );
    let second = second.await.unwrap().unwrap();
    drop((second, other));
    assert!(permits.lock().limiters.values().all(|limiter| limiter.running == 0));
}

#[tokio::test(start_paused = true)]
async fn a_delivery_that_waits_too_long_is_parked() {
    let permits = permits();
    let a = host("a");
    answer(&permits, &a).await;
    let first = enter(&permits, &[(&a, 1)]).await.unwrap();
    assert_eq!(enter(&permits, &[(&a, 1)]).await.unwrap_err(), a);
    assert!(permits.lock().waiters.is_empty() && permits.lock().limiters[&a].waiting.is_empty());
    drop(first);
    drop(enter(&permits, &[(&a, 1)]).await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_greater_limit_lets_the_waiting_deliveries_begin() {
    let permits = permits();
    let ns = Reason::Concurrency("n".into());
    let _first = enter(&permits, &[(&ns, 1)]).await.unwrap();
    let waiting: Vec<_> = (0..3)
        .map(|_| {
            let (permits, ns) = (Arc::clone(&permits), ns.clone());
            tokio::spawn(async move { enter(&permits, &[(&ns, 1)]).await })
        })
        .collect();
    tokio::task::yield_now().await;
    assert_eq!(permits.lock().waiters.len(), 3);
    assert_eq!(permits.concurrency_limiters(), core::slice::from_ref(&ns));
    let begun = Instant::now();
    permits.set_limit(&ns, 3);
    tokio::task::yield_now().await;
    assert_eq!(permits.lock().waiters.len(), 1);
    assert_eq!(permits.lock().limiters[&ns].running, 3);
    permits.set_limit(&ns, 4);
    for waiting in waiting {
        drop(waiting.await.unwrap().unwrap());
    }
    assert!(begun.elapsed() < LONGEST_WAIT);
}

#[tokio::test(start_paused = true)]
async fn few_wait_and_the_rest_is_parked_at_once() {
    let permits = permits();
    let a = host("a");
    answer(&permits, &a).await;
    let _first = enter(&permits, &[(&a, 1)]).await.unwrap();
    let spawn = || {
        let (permits, a) = (Arc::clone(&permits), a.clone());
        tokio::spawn(async move { enter(&permits, &[(&a, 1)]).await.map(drop) })
    };
    let waiting: Vec<_> = (0..ROOM.0).map(|_| spawn()).collect();
    tokio::task::yield_now().await;
    assert_eq!(permits.wanted(&a, Instant::now()), Wanted::Nothing);
    assert_eq!(spawn().await.unwrap(), Err(a.clone()));
    permits.shut(&a, Duration::from_secs(60));
    for waiting in waiting {
        assert_eq!(waiting.await.unwrap(), Err(a.clone()), "parked since the limiter is shut");
    }
    assert!(matches!(permits.wanted(&a, Instant::now()), Wanted::At(_)));
    assert_eq!(permits.wanted(&a, Instant::now() + Duration::from_secs(61)), Wanted::Nothing);
}

#[tokio::test(start_paused = true)]
async fn a_shut_lane_opens_for_one_until_that_succeeds() {
    let permits = permits();
    let a = host("a");
    permits.shut(&a, Duration::ZERO);
    let mut first = enter(&permits, &[(&a, 4)]).await.unwrap();
    assert_eq!(enter(&permits, &[(&a, 4)]).await.unwrap_err(), a);
    first.note(Some(true));
    drop(first);
    let _both = (enter(&permits, &[(&a, 4)]).await.unwrap(), enter(&permits, &[(&a, 4)]).await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_lane_that_a_waiting_delivery_needs_is_not_forgotten() {
    let permits = permits();
    let (a, ns) = (host("a"), Reason::Concurrency("n".into()));
    let first = enter(&permits, &[(&ns, 1)]).await.unwrap();
    let second = tokio::spawn({
        let (permits, a, ns) = (Arc::clone(&permits), a.clone(), ns.clone());
        async move { enter(&permits, &[(&a, 1), (&ns, 1)]).await }
    });
    tokio::task::yield_now().await;
    permits.sweep();
    drop(first);
    let second = second.await.unwrap().unwrap();
    assert_eq!(permits.lock().limiters.get(&a).map(|limiter| limiter.running), Some(1));
    drop(second);
    assert!(permits.lock().limiters.values().all(|limiter| limiter.running == 0));
}

#[tokio::test(start_paused = true)]
async fn a_delivery_that_is_dropped_while_it_waits_leaves_no_trace() {
    use core::future::Future;
    use core::task::{Context, Waker};
    let permits = permits();
    let a = Reason::Concurrency("a".into());
    for has_got_a_place in [false, true] {
        let first = enter(&permits, &[(&a, 1)]).await.unwrap();
        let limiters = [(&a, 1)];
        let mut second = Box::pin(enter(&permits, &limiters));
        assert!(second.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        if has_got_a_place {
            drop(first);
            assert_eq!(permits.lock().limiters[&a].running, 1);
            drop(second);
        } else {
            drop(second);
            drop(first);
        }
        permits.sweep();
        assert!(permits.lock().limiters.is_empty() && permits.lock().waiters.is_empty());
    }
}

/// Requests the permits of a callback to a host, in the order of the requests in
/// [`Admission::enter`](super::super::admission::Admission::enter).
async fn call(permits: &Arc<Permits>, namespace: &str, to: &Reason, all: usize) -> Result<Permit, Reason> {
    let (slow, share) = (Reason::Slow(namespace.into()), Reason::Share(namespace.into()));
    enter(permits, &[(to, 16), (&slow, slow_permits(all)), (&share, all)]).await
}

/// Calls a host until a call does not get its permits at once. Returns the permits of the earlier calls, and the reason
/// for which the last call did not get its permits.
async fn press(permits: &Arc<Permits>, namespace: &str, to: &Reason, all: usize) -> (Vec<Permit>, Reason) {
    let mut taken = Vec::new();
    loop {
        let answer = core::pin::pin!(call(permits, namespace, to, all));
        match tokio::time::timeout(Duration::ZERO, answer).await {
            Ok(Ok(permit)) => taken.push(permit),
            Ok(Err(reason)) => return (taken, reason),
            // The call waits in memory for a permit.
            Err(_) => return (taken, Reason::Share(namespace.into())),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn hosts_that_hang_leave_a_quarter_to_those_that_answer() {
    let permits = permits();
    let quick = host("quick");
    answer(&permits, &quick).await;
    let mut held = Vec::new();
    for number in 0..100 {
        let (taken, reason) = press(&permits, "n", &host(&number.to_string()), 64).await;
        assert!(taken.len() <= 4, "a host that is not known has a quarter of a host's permits");
        assert!(taken.len() == 4 || reason != host(&number.to_string()), "{reason:?}");
        held.extend(taken);
    }
    // A namespace gets three quarters of the permits for slow hosts, which are three quarters of all permits.
    assert_eq!((held.len(), permits.lock().pools[&PoolName::Slow].running), (36, 36));
    let (taken, _) = press(&permits, "other", &host("new"), 64).await;
    assert!(!taken.is_empty(), "another namespace calls a host that is not known");
    let (taken, reason) = press(&permits, "n", &quick, 64).await;
    assert!(taken.len() >= 9, "{reason:?}");
    // Each permit is given back.
    drop((held, taken));
    assert!(permits.lock().pools[&PoolName::Slow].running <= 4);
}

#[tokio::test(start_paused = true)]
async fn namespaces_leave_places_to_others_and_share_when_they_press() {
    let permits = permits();
    let mut held = Vec::new();
    for number in 0..20 {
        let busy = host(&number.to_string());
        answer(&permits, &busy).await;
        held.extend(press(&permits, "a", &busy, 64).await.0);
    }
    assert_eq!(held.len(), 48, "three quarters");
    let mut others = Vec::new();
    for number in 0..20 {
        others.extend(press(&permits, "b", &host(&number.to_string()), 64).await.0);
    }
    assert_eq!(others.len(), 12, "three quarters of the rest");
    // The first namespace has more than its share. A delivery of the second namespace waits until a delivery of the
    // first namespace ends.
    let waits = tokio::spawn({
        let permits = Arc::clone(&permits);
        async move { call(&permits, "b", &host("19"), 64).await.map(drop) }
    });
    tokio::task::yield_now().await;
    assert_eq!(permits.lock().waiters.len(), 1);
    held.truncate(47);
    assert_eq!(waits.await.unwrap(), Ok(()), "the permit of another namespace wakes it");
    // Both namespaces always want more, and deliveries of both end. The numbers of their permits become about equal.
    for _ in 0..40 {
        held.pop();
        others.pop();
        for number in 0..20 {
            let to = host(&number.to_string());
            held.extend(press(&permits, "a", &to, 64).await.0);
            others.extend(press(&permits, "b", &to, 64).await.0);
        }
        assert!(held.len() + others.len() <= 64);
    }
    assert!(held.len().abs_diff(others.len()) <= 6, "{} and {}", held.len(), others.len());
    assert!(held.len() + others.len() >= 52, "{} and {}", held.len(), others.len());
}

/// Checks that a new namespace gets a permit, again and again, after other namespaces have taken all permits that they
/// can get and give none back.
#[tokio::test(start_paused = true)]
async fn namespaces_that_give_nothing_back_leave_a_first_permit_to_others() {
    for is_one_host in [true, false] {
        for is_quick in [true, false] {
            let permits = permits();
            let mut held = Vec::new();
            for namespace in 0..8 {
                let namespace = namespace.to_string();
                for number in 0..64 {
                    let name = if is_one_host { "a".to_owned() } else { format!("{namespace}-{number}") };
                    let to = Reason::host(&namespace, &name);
                    if is_quick && !permits.lock().limiters.contains_key(&to) {
                        answer(&permits, &to).await;
                    }
                    let (taken, _) = press(&permits, &namespace, &to, 64).await;
                    assert!(number > 0 || !taken.is_empty(), "{namespace}, {is_one_host}, {is_quick}");
                    held.extend(taken);
                }
            }
            for name in ["a", "new"] {
                let to = Reason::host("good", name);
                for _ in 0..3 {
                    drop(call(&permits, "good", &to, 64).await.unwrap());
                }
            }
            let all = permits.lock().pools[&PoolName::All].running;
            assert_eq!(all, held.len());
            assert!(all <= 64 + 8, "{all}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_quick_host_that_begins_to_hang_is_slow_before_its_first_timeout() {
    let permits = permits();
    let a = host("a");
    answer(&permits, &a).await;
    let first = call(&permits, "n", &a, 64).await.unwrap();
    assert_eq!(first.reasons.len(), 2, "no permit among those for slow hosts");
    let moved = permits.lock().limiters[&a].moved;
    let most = |after| permits.lock().limiters[&a].most(0, moved + after);
    assert_eq!((most(QUICK), most(QUICK + Duration::from_millis(1))), (16, 4));
    drop(first);
    assert_eq!(most(QUICK * 2), 16);
    let mut silent = call(&permits, "n", &a, 64).await.unwrap();
    silent.note(None);
    drop(silent);
    assert_eq!(call(&permits, "n", &a, 64).await.unwrap().reasons.len(), 3);
}

#[tokio::test(start_paused = true)]
async fn the_room_to_wait_is_bounded_over_all_lanes() {
    let permits = permits();
    let (mut all, mut waiting) = (Vec::new(), Vec::new());
    for number in 0..MOST_WAITING {
        let limiter = Reason::Concurrency(number.to_string().into());
        all.push(enter(&permits, &[(&limiter, 1)]).await.unwrap());
        let mut waits = Box::pin({
            let (permits, limiter) = (Arc::clone(&permits), limiter.clone());
            async move { enter(&permits, &[(&limiter, 1)]).await.map(drop) }
        });
        assert!(tokio::time::timeout(Duration::ZERO, waits.as_mut()).await.is_err());
        waiting.push(waits);
    }
    let limiter = Reason::Concurrency("last".into());
    let _place = enter(&permits, &[(&limiter, 1)]).await.unwrap();
    let refused = tokio::time::timeout(Duration::ZERO, enter(&permits, &[(&limiter, 1)])).await;
    assert_eq!(refused.expect("at once").unwrap_err(), limiter);
    assert_eq!(permits.wanted(&limiter, Instant::now()), Wanted::Nothing);
}

#[tokio::test(start_paused = true)]
async fn a_host_that_answers_promptly_grows_and_one_that_does_not_shrinks() {
    let permits = Arc::new(Permits::new(Arc::default(), 64));
    let a = host("a");
    answer(&permits, &a).await;
    let mut held = Vec::new();
    for _ in 0..400 {
        held.extend(press(&permits, "n", &a, 1_024).await.0);
        let mut permit = held.pop().unwrap();
        permit.note(Some(true));
    }
    assert_eq!(held.len(), 63, "as many as a host may have that answers promptly");
    let mut late = held.pop().unwrap();
    late.since = late.since.checked_sub(Duration::from_secs(1)).unwrap();
    late.note(Some(true));
    drop(late);
    held.extend(press(&permits, "n", &a, 1_024).await.0);
    assert_eq!(permits.lock().pool_mut(&a).unwrap().grown, 24);
    drop(held);
    call(&permits, "n", &a, 1_024).await.unwrap().note(None);
    assert_eq!(permits.lock().pool_mut(&a).unwrap().grown, 0);
}

#[tokio::test(start_paused = true)]
async fn namespaces_share_the_places_at_a_host() {
    let permits = permits();
    let [mine, theirs] = ["n", "m"].map(|namespace| Reason::host(namespace, "a"));
    answer(&permits, &mine).await;
    let (held, _) = press(&permits, "n", &mine, 1_024).await;
    assert_eq!(held.len(), 16, "one namespace feels no share");
    // The quick answer to the namespace `n` counts for the namespace `m`, too.
    let (others, _) = press(&permits, "m", &theirs, 1_024).await;
    assert_eq!(others.len(), 5, "three quarters of the rest of twenty-two");
    drop((held, others));
    permits.sweep();
    assert!(permits.lock().pools.values().all(|pool| pool.running == 0));
}

#[tokio::test(start_paused = true)]
async fn a_path_that_has_failed_has_a_lane_until_it_works() {
    let permits = permits();
    let (a, path) = (host("a"), Reason::path("n", "a", "/bad"));
    answer(&permits, &a).await;
    drop(enter(&permits, &[(&a, 16), (&path, 16)]).await.unwrap());
    assert!(!permits.lock().limiters.contains_key(&path));
    permits.shut(&path, Duration::from_secs(10));
    assert_eq!(enter(&permits, &[(&a, 16), (&path, 16)]).await.unwrap_err(), path);
    drop(enter(&permits, &[(&a, 16)]).await.unwrap());
    permits.shut(&path, Duration::ZERO);
    let mut probe = enter(&permits, &[(&a, 16), (&path, 16)]).await.unwrap();
    assert_eq!(enter(&permits, &[(&a, 16), (&path, 16)]).await.unwrap_err(), path, "one at a time");
    probe.note(Some(true));
    drop(probe);
    let both = [(&a, 16), (&path, 16)];
    let _two = (enter(&permits, &both).await.unwrap(), enter(&permits, &both).await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_limiter_that_found_no_permit_is_forgotten_once_no_timer_is_parked_for_it() {
    let permits = permits();
    let (a, share) = (host("a"), Reason::Share("n".into()));
    permits.shut(&a, Duration::from_secs(60));
    assert_eq!(enter(&permits, &[(&a, 4), (&share, 4)]).await.unwrap_err(), a);
    permits.parked.add(a.clone());
    permits.shut(&a, Duration::ZERO);
    permits.sweep();
    assert!(permits.lock().limiters.contains_key(&a), "a timer is parked for it");
    // The timer is cancelled, and the next pass finds no parked timer.
    permits.parked.begin_pass();
    permits.parked.end_pass(HashMap::new());
    permits.parked.take_marked();
    permits.sweep();
    assert!(permits.lock().limiters.is_empty() && permits.lock().pools.is_empty());
    // Another limiter keeps the pool. A limiter that is made again is listed once.
    let other = Reason::host("m", "a");
    let held = enter(&permits, &[(&other, 4)]).await.unwrap();
    for _ in 0..3 {
        permits.shut(&a, Duration::from_secs(60));
        assert_eq!(enter(&permits, &[(&a, 4)]).await.unwrap_err(), a);
        permits.shut(&a, Duration::ZERO);
        permits.sweep();
    }
    assert!(permits.lock().pool_mut(&a).unwrap().starved.is_empty());
    drop(held);
}

#[tokio::test(start_paused = true)]
async fn a_host_is_known_by_its_answers_to_others_when_parked_timers_come_first() {
    let permits = permits();
    let [mine, theirs] = ["n", "m"].map(|namespace| Reason::host(namespace, "a"));
    answer(&permits, &mine).await;
    permits.expect(&theirs, 1);
    let delivery = call(&permits, "m", &theirs, 64).await.unwrap();
    assert_eq!(delivery.reasons.len(), 2, "no permit among those for slow hosts");
}
