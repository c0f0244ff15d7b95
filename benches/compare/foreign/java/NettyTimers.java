import io.netty.util.HashedWheelTimer;
import io.netty.util.Timeout;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

/** Netty's hashed wheel: a queue for new timeouts, one for cancelled ones, a thread that takes from both at every tick. */
final class NettyTimers implements Timers {
    /** For a precision of a millisecond; the default is 100 ms. */
    private static final long TICK_MILLIS = 1;

    /**
     * The default is 512, with the advice to take a larger wheel "if you are going to schedule a lot of timeouts": every tick
     * walks through its whole bucket, timers of all rounds included. With 65,536 buckets, which is 65.5 s a round, a tick walks
     * through a timer of 10 to 60 s once, when it is due. A million timers make 15 a bucket; 512 buckets would have 2,000 each.
     */
    private static final int TICKS_PER_WHEEL = 65_536;

    private static final boolean LEAK_DETECTION = false;
    private static final long UNLIMITED = -1;

    private final HashedWheelTimer wheel = new HashedWheelTimer(
            Timers.daemons(), TICK_MILLIS, TimeUnit.MILLISECONDS, TICKS_PER_WHEEL, LEAK_DETECTION, UNLIMITED);

    @Override
    public Object schedule(long delayNanos, Task task) {
        return wheel.newTimeout(task, delayNanos, TimeUnit.NANOSECONDS);
    }

    @Override
    public boolean cancel(Object handle) {
        return ((Timeout) handle).cancel();
    }

    @Override
    public long pending() {
        return wheel.pendingTimeouts();
    }

    /**
     * The queue of new timeouts is first in, first out, and a tick takes 100,000 at most: when this timeout fires, no earlier
     * one is in the queue.
     */
    @Override
    public void settle() {
        CountDownLatch fired = new CountDownLatch(1);
        wheel.newTimeout(timeout -> fired.countDown(), 0, TimeUnit.NANOSECONDS);
        try {
            Broken.unless(fired.await(60, TimeUnit.SECONDS), "the wheel does not turn");
        } catch (InterruptedException interrupted) {
            throw new IllegalStateException(interrupted);
        }
    }

    @Override
    public void close() {
        wheel.stop();
    }
}
