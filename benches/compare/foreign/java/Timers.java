import java.util.concurrent.ThreadFactory;

/** A contestant, as a workload uses it. */
interface Timers extends AutoCloseable {
    /** Schedules a timer. Returns a handle by which to cancel it. */
    Object schedule(long delayNanos, Task task);

    /** Cancels a timer. Returns false if it has fired, or was cancelled before. */
    boolean cancel(Object handle);

    /** Whether a timer whose cancel succeeded never runs. */
    default boolean knowsWhoWon() {
        return true;
    }

    /** The number of timers that neither fired nor were cancelled; a cancel may take a moment to show here. */
    long pending();

    /** Waits until the timer's thread has put all earlier timers in their places. */
    void settle();

    @Override
    void close();

    /** The threads must not keep the process from ending. */
    static ThreadFactory daemons() {
        return run -> {
            Thread thread = new Thread(run, "timer");
            thread.setDaemon(true);
            return thread;
        };
    }
}
