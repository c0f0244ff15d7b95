use super::*;

fn places() -> Arc<Places> {
    Arc::new(Places::new(Arc::default(), 0))
}

fn host(name: &str) -> Reason {
    Reason::host("n", name)
}

/// Makes the host one that is known to be quick.
async fn answer(places: &Arc<Places>, host: &Reason) {
    enter(places, &[(host, 1)]).await.unwrap().note(Some(true));
}

async fn enter(places: &Arc<Places>, lanes: &[(&Reason, usize)]) -> Result<Place, Reason> {
    places.enter(lanes.iter().map(|(reason, limit)| ((*reason).clone(), *limit)).collect()).await
}

#[tokio::test(start_paused = true)]
async fn a_delivery_that_waits_holds_nothing_in_other_lanes() {
    let places = places();
    let (a, b, ns) = (host("a"), host("b"), Reason::Concurrency("n".into()));
    answer(&places, &a).await;
    let first = enter(&places, &[(&a, 1), (&ns, 2)]).await.unwrap();
    let second = tokio::spawn({
        let (places, a, ns) = (Arc::clone(&places), a.clone(), ns.clone());
        async move { enter(&places, &[(&a, 1), (&ns, 2)]).await }
    });
    tokio::task::yield_now().await;
    let other = enter(&places, &[(&b, 1), (&ns, 2)]).await.unwrap();
    drop(first);
    // The host has a place now, and the namespace has none.
    tokio::task::yield_now().await;
    assert_eq!(places.lock().lanes[&ns].running, 2, "the second delivery has got the place of the first");
    let second = second.await.unwrap().unwrap();
    drop((second, other));
    assert!(places.lock().lanes.values().all(|lane| lane.running == 0));
}

#[tokio::test(start_paused = true)]
async fn a_delivery_that_waits_too_long_is_parked() {
    let places = places();
    let a = host("a");
    answer(&places, &a).await;
    let first = enter(&places, &[(&a, 1)]).await.unwrap();
    assert_eq!(enter(&places, &[(&a, 1)]).await.unwrap_err(), a);
    assert!(places.lock().waiters.is_empty() && places.lock().lanes[&a].waiting.is_empty());
    drop(first);
    drop(enter(&places, &[(&a, 1)]).await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn few_wait_and_the_rest_is_parked_at_once() {
    let places = places();
    let a = host("a");
    answer(&places, &a).await;
    let _first = enter(&places, &[(&a, 1)]).await.unwrap();
    let spawn = || {
        let (places, a) = (Arc::clone(&places), a.clone());
        tokio::spawn(async move { enter(&places, &[(&a, 1)]).await.map(drop) })
    };
    let waiting: Vec<_> = (0..ROOM.0).map(|_| spawn()).collect();
    tokio::task::yield_now().await;
    assert_eq!(places.wanted(&a, Instant::now()), Wanted::Nothing);
    assert_eq!(spawn().await.unwrap(), Err(a.clone()));
    places.shut(&a, Duration::from_secs(60));
    for waiting in waiting {
        assert_eq!(waiting.await.unwrap(), Err(a.clone()), "parked since the lane is shut");
    }
    assert!(matches!(places.wanted(&a, Instant::now()), Wanted::At(_)));
    assert_eq!(places.wanted(&a, Instant::now() + Duration::from_secs(61)), Wanted::Nothing);
}

#[tokio::test(start_paused = true)]
async fn a_shut_lane_opens_for_one_until_that_succeeds() {
    let places = places();
    let a = host("a");
    places.shut(&a, Duration::ZERO);
    let mut first = enter(&places, &[(&a, 4)]).await.unwrap();
    assert_eq!(enter(&places, &[(&a, 4)]).await.unwrap_err(), a);
    first.note(Some(true));
    drop(first);
    let _both = (enter(&places, &[(&a, 4)]).await.unwrap(), enter(&places, &[(&a, 4)]).await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_lane_that_a_waiting_delivery_needs_is_not_forgotten() {
    let places = places();
    let (a, ns) = (host("a"), Reason::Concurrency("n".into()));
    let first = enter(&places, &[(&ns, 1)]).await.unwrap();
    let second = tokio::spawn({
        let (places, a, ns) = (Arc::clone(&places), a.clone(), ns.clone());
        async move { enter(&places, &[(&a, 1), (&ns, 1)]).await }
    });
    tokio::task::yield_now().await;
    places.sweep();
    drop(first);
    let second = second.await.unwrap().unwrap();
    assert_eq!(places.lock().lanes.get(&a).map(|lane| lane.running), Some(1));
    drop(second);
    assert!(places.lock().lanes.values().all(|lane| lane.running == 0));
}

#[tokio::test(start_paused = true)]
async fn a_delivery_that_is_dropped_while_it_waits_leaves_no_trace() {
    use core::future::Future;
    use core::task::{Context, Waker};
    let places = places();
    let a = Reason::Concurrency("a".into());
    for has_got_a_place in [false, true] {
        let first = enter(&places, &[(&a, 1)]).await.unwrap();
        let lanes = [(&a, 1)];
        let mut second = Box::pin(enter(&places, &lanes));
        assert!(second.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        if has_got_a_place {
            drop(first);
            assert_eq!(places.lock().lanes[&a].running, 1);
            drop(second);
        } else {
            drop(second);
            drop(first);
        }
        places.sweep();
        assert!(places.lock().lanes.is_empty() && places.lock().waiters.is_empty());
    }
}

/// The lanes of a callback to a host, as the gates make them.
async fn call(places: &Arc<Places>, of: &str, to: &Reason, all: usize) -> Result<Place, Reason> {
    let (slow, share) = (Reason::Slow(of.into()), Reason::Share(of.into()));
    enter(places, &[(to, 16), (&slow, slow_places(all)), (&share, all)]).await
}

/// Calls a host until that is refused at once. Returns the places and the reason of the refusal.
async fn press(places: &Arc<Places>, of: &str, to: &Reason, all: usize) -> (Vec<Place>, Reason) {
    let mut taken = Vec::new();
    loop {
        let answer = core::pin::pin!(call(places, of, to, all));
        match tokio::time::timeout(Duration::ZERO, answer).await {
            Ok(Ok(place)) => taken.push(place),
            Ok(Err(reason)) => return (taken, reason),
            // It waits in memory.
            Err(_) => return (taken, Reason::Share(of.into())),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn t14_hosts_that_hang_leave_a_quarter_to_those_that_answer() {
    let places = places();
    let quick = host("quick");
    answer(&places, &quick).await;
    let mut held = Vec::new();
    for number in 0..100 {
        let (taken, reason) = press(&places, "n", &host(&number.to_string()), 64).await;
        assert!(taken.len() <= 4, "a host that is not known has a quarter of a host's places");
        assert!(taken.len() == 4 || reason != host(&number.to_string()), "{reason:?}");
        held.extend(taken);
    }
    // Three quarters of three quarters: other namespaces may have slow hosts, too.
    assert_eq!((held.len(), places.lock().pools[&PoolName::Slow].running), (36, 36));
    let (taken, _) = press(&places, "other", &host("new"), 64).await;
    assert!(!taken.is_empty(), "another namespace calls a host that is not known");
    let (taken, reason) = press(&places, "n", &quick, 64).await;
    assert!(taken.len() >= 9, "{reason:?}");
    // Each place comes back.
    drop((held, taken));
    assert!(places.lock().pools[&PoolName::Slow].running <= 4);
}

#[tokio::test(start_paused = true)]
async fn t14_namespaces_leave_places_to_others_and_share_when_they_press() {
    let places = places();
    let mut held = Vec::new();
    for number in 0..20 {
        let busy = host(&number.to_string());
        answer(&places, &busy).await;
        held.extend(press(&places, "a", &busy, 64).await.0);
    }
    assert_eq!(held.len(), 48, "three quarters");
    let mut others = Vec::new();
    for number in 0..20 {
        others.extend(press(&places, "b", &host(&number.to_string()), 64).await.0);
    }
    assert_eq!(others.len(), 12, "three quarters of the rest");
    // A delivery of the second namespace waits for the end of one of the first, which has more than its share.
    let waits = tokio::spawn({
        let places = Arc::clone(&places);
        async move { call(&places, "b", &host("19"), 64).await.map(drop) }
    });
    tokio::task::yield_now().await;
    assert_eq!(places.lock().waiters.len(), 1);
    held.truncate(47);
    assert_eq!(waits.await.unwrap(), Ok(()), "the place of another namespace wakes it");
    // Both press, and deliveries of both end: they come to have as many.
    for _ in 0..40 {
        held.pop();
        others.pop();
        for number in 0..20 {
            let to = host(&number.to_string());
            held.extend(press(&places, "a", &to, 64).await.0);
            others.extend(press(&places, "b", &to, 64).await.0);
        }
        assert!(held.len() + others.len() <= 64);
    }
    assert!(held.len().abs_diff(others.len()) <= 6, "{} and {}", held.len(), others.len());
    assert!(held.len() + others.len() >= 52, "{} and {}", held.len(), others.len());
}

#[tokio::test(start_paused = true)]
async fn a_quick_host_that_begins_to_hang_is_slow_before_its_first_timeout() {
    let places = places();
    let a = host("a");
    answer(&places, &a).await;
    let first = call(&places, "n", &a, 64).await.unwrap();
    assert_eq!(first.reasons.len(), 2, "no place among those for slow hosts");
    let moved = places.lock().lanes[&a].moved;
    let most = |after| places.lock().lanes[&a].most(0, moved + after);
    assert_eq!((most(QUICK), most(QUICK + Duration::from_millis(1))), (16, 4));
    drop(first);
    assert_eq!(most(QUICK * 2), 16);
    let mut silent = call(&places, "n", &a, 64).await.unwrap();
    silent.note(None);
    drop(silent);
    assert_eq!(call(&places, "n", &a, 64).await.unwrap().reasons.len(), 3);
}

#[tokio::test(start_paused = true)]
async fn the_room_to_wait_is_bounded_over_all_lanes() {
    let places = places();
    let (mut all, mut waiting) = (Vec::new(), Vec::new());
    for number in 0..MOST_WAITING {
        let lane = Reason::Concurrency(number.to_string().into());
        all.push(enter(&places, &[(&lane, 1)]).await.unwrap());
        let mut waits = Box::pin({
            let (places, lane) = (Arc::clone(&places), lane.clone());
            async move { enter(&places, &[(&lane, 1)]).await.map(drop) }
        });
        assert!(tokio::time::timeout(Duration::ZERO, waits.as_mut()).await.is_err());
        waiting.push(waits);
    }
    let lane = Reason::Concurrency("last".into());
    let _place = enter(&places, &[(&lane, 1)]).await.unwrap();
    let refused = tokio::time::timeout(Duration::ZERO, enter(&places, &[(&lane, 1)])).await;
    assert_eq!(refused.expect("at once").unwrap_err(), lane);
    assert_eq!(places.wanted(&lane, Instant::now()), Wanted::Nothing);
}

#[tokio::test(start_paused = true)]
async fn a_host_that_answers_promptly_grows_and_one_that_does_not_shrinks() {
    let places = Arc::new(Places::new(Arc::default(), 64));
    let a = host("a");
    answer(&places, &a).await;
    let mut held = Vec::new();
    for _ in 0..400 {
        held.extend(press(&places, "n", &a, 1_024).await.0);
        let mut place = held.pop().unwrap();
        place.note(Some(true));
    }
    assert_eq!(held.len(), 63, "as many as a host may have that answers promptly");
    let mut late = held.pop().unwrap();
    late.since = late.since.checked_sub(Duration::from_secs(1)).unwrap();
    late.note(Some(true));
    drop(late);
    held.extend(press(&places, "n", &a, 1_024).await.0);
    assert_eq!(places.lock().pool_mut(&a).unwrap().grown, 24);
    drop(held);
    call(&places, "n", &a, 1_024).await.unwrap().note(None);
    assert_eq!(places.lock().pool_mut(&a).unwrap().grown, 0);
}

#[tokio::test(start_paused = true)]
async fn namespaces_share_the_places_at_a_host() {
    let places = places();
    let [mine, theirs] = ["n", "m"].map(|namespace| Reason::host(namespace, "a"));
    answer(&places, &mine).await;
    let (held, _) = press(&places, "n", &mine, 1_024).await;
    assert_eq!(held.len(), 16, "one namespace feels no share");
    // A host that has answered one namespace quickly is known to be quick.
    let (others, _) = press(&places, "m", &theirs, 1_024).await;
    assert_eq!(others.len(), 5, "three quarters of the rest of twenty-two");
    drop((held, others));
    places.sweep();
    assert!(places.lock().pools.values().all(|pool| pool.running == 0));
}

#[tokio::test(start_paused = true)]
async fn a_path_that_has_failed_has_a_lane_until_it_works() {
    let places = places();
    let (a, path) = (host("a"), Reason::path("n", "a", "/bad"));
    answer(&places, &a).await;
    drop(enter(&places, &[(&a, 16), (&path, 16)]).await.unwrap());
    assert!(!places.lock().lanes.contains_key(&path));
    places.shut(&path, Duration::from_secs(10));
    assert_eq!(enter(&places, &[(&a, 16), (&path, 16)]).await.unwrap_err(), path);
    drop(enter(&places, &[(&a, 16)]).await.unwrap());
    places.shut(&path, Duration::ZERO);
    let mut probe = enter(&places, &[(&a, 16), (&path, 16)]).await.unwrap();
    assert_eq!(enter(&places, &[(&a, 16), (&path, 16)]).await.unwrap_err(), path, "one at a time");
    probe.note(Some(true));
    drop(probe);
    let both = [(&a, 16), (&path, 16)];
    let _two = (enter(&places, &both).await.unwrap(), enter(&places, &both).await.unwrap());
}
