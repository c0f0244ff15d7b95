import java.util.concurrent.ThreadFactory;

/** What a workload asks of a contestant. */
interface Timers extends AutoCloseable {
    /** Gives a handle to cancel it with. */
    Object schedule(long delayNanos, Task task);

    /** Whether it was cancelled: not when it has fired, or was cancelled before. */
    boolean cancel(Object handle);

    /** How many neither fired nor were cancelled; a cancel may take a moment to show here. */
    long pending();

    /** Waits until what was handed over to the timer's thread so far has been put in its place. */
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
