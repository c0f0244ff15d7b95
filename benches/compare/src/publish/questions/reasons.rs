//! The reasons why ours loses, and when not to use it, with places for figures.

/// What a server on tokio gains. Follows the verdicts of the questions about such servers.
pub(super) const NO_GAIN: &str = "With 1,000 connections and three timeouts a request, the proxy takes \
    {requests; 1,000 connections, 15,000 requests a second; engine, turned by the runtime; cpu} of processor time a \
    request with ours, {requests; 1,000 connections, 15,000 requests a second; tokio; cpu} with tokio's timers and \
    {requests; 1,000 connections, 15,000 requests a second; without timeouts; cpu} without timeouts. With 10,000 \
    connections it takes \
    {requests; 10,000 connections, 15,000 requests a second; engine, turned by the runtime; cpu}, \
    {requests; 10,000 connections, 15,000 requests a second; tokio; cpu} and \
    {requests; 10,000 connections, 15,000 requests a second; without timeouts; cpu}. Such a server should keep tokio's \
    timers, unless it needs something that they lack: timers outside of a runtime, one set of timers for several \
    runtimes and threads, or a cancel that says whether the handler has begun.";
pub(super) const FASTER_CLOCK: &str = "Beside a million others, arming and cancelling a timer takes \
    {pair; 1,000,000 pending; engine, Handle; t1} on our clock, and \
    {pair; 1,000,000 pending; engine, Handle, Instant::now; t1} on the system's clock, which the other contestants read. \
    The best of them takes {pair; 1,000,000 pending; Mutex<cascading wheel>, a shard a core; t1}, and tokio's `Sleep` \
    {pair; 1,000,000 pending; tokio, Sleep; t1}.";
pub(super) const NOT_FASTER: &str = "With 10,000 connections the proxy takes \
    {requests; 10,000 connections, 15,000 requests a second; engine, a reusable timeout each; cpu} of processor time a \
    request with a `ReusableTimeout` for each wait, and \
    {requests; 10,000 connections, 15,000 requests a second; engine, turned by the runtime; cpu} with new timeouts.";

pub(super) const LOCKS: &str = "A caller that stays with one core's wheel, behind a mutex of its own, never waits for \
    another caller.";
pub(super) const REFRESHED: &str = "Nearly half of the random deadlines are before the timer's present ticket, and \
    then cost another ticket: a compare-and-swap, which the next moves wait for, and a third cache miss, on the timer's \
    extra word. The rest is two cache misses, on the handle and on the timer's slot, of which the second waits for the \
    first. A miss that nothing overlaps takes {floor; one step; read a random line of 256 MiB; ns} here.";
pub(super) const TICK: &str = "A deadline is rounded up to a tick of 1 ms. A structure whose thread wakes for each \
    deadline waits for no tick, but takes more processor time: `Mutex<BTreeMap>` takes \
    {expiry; 1,000,000 due over 2 s; Mutex<BTreeMap>; cpu}, ours \
    {expiry; 1,000,000 due over 2 s; engine, own workers; cpu}. `Builder::tick` chooses between the two: our p99 is \
    {expiry; 1,000,000 due over 2 s; engine, own workers; p99} with ticks of 1 ms and \
    {expiry; 1,000,000 due over 2 s; engine, own workers, tick 0.1 ms; p99} with ticks of 0.1 ms, which take \
    {expiry; 1,000,000 due over 2 s; engine, own workers, tick 0.1 ms; cpu}.";
pub(super) const HANDED_OVER: &str = "A thread that runs handlers unlocks its shard and sets an alarm before, so that \
    another thread can take the shard over. Handlers that run inline need neither, and then the timers take \
    {expiry; 1,000,000 due over 2 s; engine, inline; cpu}.";
pub(super) const EACH_TICK: &str = "In each tick in which timers are due, a shard's thread of ours wakes once. Coarser \
    ticks need fewer wake-ups, and fire later: the two rows with such ticks have \
    {expiry; 1,000,000 due over 2 s; engine, inline, tick 4 ms; wakes} with a p99 of \
    {expiry; 1,000,000 due over 2 s; engine, inline, tick 4 ms; p99}, and \
    {expiry; 1,000,000 due over 2 s; engine, inline, tick 16 ms; wakes} with a p99 of \
    {expiry; 1,000,000 due over 2 s; engine, inline, tick 16 ms; p99}.";
pub(super) const ONE_LIST: &str = "The wheel behind a mutex fires all of these timers on one thread, which takes \
    {burst; 1,000,000 due at once; Mutex<cascading wheel>, a shard a core; cpu} of processor time. Ours takes \
    {burst; 1,000,000 due at once; engine, own workers; cpu}, since it claims each timer and finds it elsewhere in \
    memory than its ticket. It divides this time between several threads: the thread that takes the tickets out of \
    the wheel, and the threads that fire them in batches. With handlers that run inline one thread does all: it \
    takes {burst; 1,000,000 due at once; engine, inline; cpu}, and the last timer fires after \
    {burst; 1,000,000 due at once; engine, inline; last}. The claim alone is not the reason: Netty's one thread \
    claims each timer by a compare-and-swap as well, and its last timer fires after \
    {burst; 1,000,000 due at once; Netty, HashedWheelTimer; last}. `src/DESIGN.md`, \"One expiry\", has the \
    instructions and the cache lines of each step.";
pub(super) const EACH_CLAIMED: &str = "A thread that holds a lock owns all due timers behind it at once. A due timer \
    of ours is claimed by a compare-and-swap before its handler runs, because any thread may cancel it at that \
    moment, and the timer is elsewhere in memory than its ticket. `src/DESIGN.md`, \"One expiry\", has the \
    instructions and the cache lines of each step, beside those of such a wheel.";
pub(super) const TWO_WAKE_UPS: &str = "A shard's thread that wakes up may wait until a computing thread has used up \
    its scheduler slice.";
pub(super) const PREEMPTED: &str = "Our shards' threads are pinned. A thread's timers are at the shard of the core \
    on which the thread first used the engine, and in each tick in which something is due the shard's thread takes \
    that core for a moment. At 100,000 operations a second the thread that plays the load had no core for \
    {mixed; 100,000 operations a second; engine, own workers; waited} in three thousand ticks, by the scheduler's \
    account. These waits explain the p99 of an operation, \
    {mixed; 100,000 operations a second; engine, own workers; op_p99}: with shards that may move, the thread had no \
    core for {mixed; 100,000 operations a second; engine, own workers, unpinned; waited}, and the p99 is \
    {mixed; 100,000 operations a second; engine, own workers, unpinned; op_p99}. They do not explain all of the \
    p99.9. With shards that may move the p99.9 is \
    {mixed; 100,000 operations a second; engine, own workers, unpinned; op_p999}, and with `Mutex<cascading wheel>`, \
    whose threads are not pinned, it is \
    {mixed; 100,000 operations a second; Mutex<cascading wheel>, a shard a core; op_p999}; the rounds of both rows \
    are far apart. The longest gap of the default is {mixed; 100,000 operations a second; engine, own workers; gap}, \
    much longer than the mean wait in a tick. Other contestants have such gaps as well, and their cause was not \
    traced in this run. At a million operations a second the thread had no core for \
    {mixed; 1,000,000 operations a second; engine, own workers; waited}, with a longest gap of \
    {mixed; 1,000,000 operations a second; engine, own workers; gap}. With shards that may move it had none for \
    {mixed; 1,000,000 operations a second; engine, own workers, unpinned; waited}, and the p99.9 is \
    {mixed; 1,000,000 operations a second; engine, own workers, unpinned; op_p999}. Neither the system's slice nor \
    handlers that run inline change the p99.9 by more than the rounds differ: at 100,000 operations a second it is \
    {mixed; 100,000 operations a second; engine, own workers, the system's slice; op_p999} and \
    {mixed; 100,000 operations a second; engine, inline; op_p999}. Only one thread schedules here, so that a mutex \
    is always free. Since this run a shard leaves the core of a busy thread if another is free (`src/DESIGN.md`, \
    \"Punctual on a busy machine\").";
pub(super) const QUEUE_OF_ALL: &str = "A task that a thread outside of the runtime wakes waits in the queue that all \
    workers share, and the engine's threads are outside of it. tokio fires its timers on a worker, which puts the \
    tasks into its own queue. The task of the runtime that turns the timers of `tourbillon::time` does so, too, and \
    the lateness is then {proxy; 1,000 connections; engine, by tokio's names; late_p99}.";
pub(super) const ALSO_A_TASK: &str = "The task that turns the shard is one of the runtime's: it waits for its turn \
    among the tasks that are ready. It sleeps by tokio's timer, so that each moment is rounded up to tokio's \
    millisecond as well as to the engine's tick. How much each of the two adds has not been measured.";
pub(super) const LINKS: &str = "An intrusive wheel keeps its links in the timer and nothing elsewhere. Each of our \
    timers has a word on which threads race, and a ticket in a shard's wheel. The tickets have come through the \
    thread's lane, which keeps the blocks that it has needed once: up to 65,536 tickets of the million.";
pub(super) const NOT_POLLED_YET: &str = "async-io reads no clock and makes no timer until the inner future is \
    pending, and the future of this workload is ready at once. The same is true of ours, which has more words to write \
    when it is made. tokio's reads the clock when it is made ({timeout; a ready future; tokio, timeout; t1} from one \
    thread).";
pub(super) const NO_TICK: &str = "The original's thread wakes for each deadline, and takes \
    {dropins; 100,000 waits, 8 threads; futures-timer; cpu} of processor time for it. The drop-in has the engine's tick \
    of 1 ms, and takes {dropins; 100,000 waits, 8 threads; futures-timer, the drop-in; cpu}.";
pub(super) const KEY_MISSES: &str = "Each step misses the cache: the key's bucket, the old timer's slot and the new \
    one's. A queue behind a mutex moves its timer and keeps the entry. This is less work as long as no other thread \
    wants the lock.";
pub(super) const GUARDED: &str = "Each run of our tasks is claimed by a compare-and-swap, takes the lock of its task \
    several times and that of its closure once, and arms the timer anew. tokio's task is polled by the worker that \
    fired its timer, or by an idle worker that took the task from that worker's queue. The cost of each of these \
    steps has not been measured.";
pub(super) const SHARED: &str = "tokio-util's queue has one owner and no lock; behind a mutex of its own it takes \
    {queue; 100,000 items; tokio-util, DelayQueue behind a Mutex; pair} a pair and \
    {queue; 100,000 items; tokio-util, DelayQueue behind a Mutex; last} to the last item. Any thread may use our \
    queue, which has a lock.";
pub(super) const LOCKED_PUSH: &str = "tokio-util's queue has one owner, who needs no lock to push. Any thread may \
    push to ours: each push takes and releases a lock, with a locked instruction each. A lock and an unlock of a \
    mutex that no other thread wants take {floor; one step; std::sync::Mutex, lock and unlock, alone; ns} here.";
pub(super) const NO_CASCADE: &str = "The Linux wheel fires up to an eighth of the delay late, and never moves a \
    timer from one level to another. A cascading wheel is precise and takes \
    {structures; 10,000 timers of 1 to 60 s; cascading wheel; expire}. Ours moves each ticket once to a finer level, \
    and moves a ticket of each cancelled timer with them. A wheel of a bounded span moves none and is precise: it \
    takes {structures; 10,000 timers of 1 to 60 s; simple wheel, bounded span; expire}.";
pub(super) const IN_ORDER: &str = "A tree stores its payloads side by side, in the order of their deadlines. Each \
    insert pays for this order: {structures; 1,000,000 timers of 1 to 60 s; BTreeMap; insert}, against \
    {structures; 1,000,000 timers of 1 to 60 s; wheel, radix 256; insert}.";
pub(super) const OWN_PLACE: &str = "A cancel of ours and of the heap touch the same memory: the timer's own entry in \
    a table, and the end of a list of free entries. The heap leaves the timer's place in the order, and ours leaves \
    its ticket in the wheel. Neither of them rebuilds or sweeps anything here, since no more than half of the timers \
    are cancelled. Ours changes one more number in the entry, which makes the ticket stale, and it composes the id \
    of the entry's present timer to compare ids. How much each of these takes has not been measured. With a million \
    timers of eight durations a cancel of ours takes \
    {structures; 1,000,000 timers of eight durations; wheel, radix 256; cancel}, and of the heap \
    {structures; 1,000,000 timers of eight durations; BinaryHeap, lazy cancel; cancel}. A wheel of lists unlinks the \
    timer, whose neighbours are in the cache if the timers are few. With a million timers the wheel on a delay queue \
    takes {structures; 1,000,000 timers of 1 to 60 s; wheel on a delay queue (Kafka); cancel}, and ours \
    {structures; 1,000,000 timers of 1 to 60 s; wheel, radix 256; cancel}.";
pub(super) const CHECKED_TOGETHER: &str = "A timeout of ours takes the timer that an earlier one has left, and mostly \
    posts nothing. The shard checks the timers of many timeouts at once. Each such check interrupts the threads of the \
    process (the system call `membarrier`), and the runtime's task that turns the \
    timers is woken for it. tokio's timeout links itself into a wheel behind a lock, and unlinks itself.";
pub(super) const READ_EACH_TIME: &str = "hyper makes a sleep for each request, and drops it with the header. Our sleep \
    for hyper asks for the runtime's engine twice and reads its clock twice: for the deadline, and at the first poll. \
    Our layer does the same for a request. The sleep for silence reads the clock at the first poll after each move. \
    tokio's sleeps read the system's clock once each, and not when they are polled.";
