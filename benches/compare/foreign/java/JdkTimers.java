import java.util.concurrent.Future;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.TimeUnit;

/** The JDK's pool: a binary heap behind a lock, whose tasks know their places in it. */
final class JdkTimers implements Timers {
    private final ScheduledThreadPoolExecutor pool = new ScheduledThreadPoolExecutor(1, Timers.daemons());

    JdkTimers() {
        // Without it a cancelled timer stays in the heap until it is due.
        pool.setRemoveOnCancelPolicy(true);
        pool.prestartCoreThread();
    }

    @Override
    public Object schedule(long delayNanos, Task task) {
        return pool.schedule((Runnable) task, delayNanos, TimeUnit.NANOSECONDS);
    }

    @Override
    public boolean cancel(Object handle) {
        return ((Future<?>) handle).cancel(false);
    }

    /** A task that is running counts as not done: its cancel succeeds, too. */
    @Override
    public boolean knowsWhoWon() {
        return false;
    }

    @Override
    public long pending() {
        return pool.getQueue().size();
    }

    /** Does nothing: scheduling puts a timer in its place at once. */
    @Override
    public void settle() {}

    @Override
    public void close() {
        pool.shutdownNow();
    }
}
