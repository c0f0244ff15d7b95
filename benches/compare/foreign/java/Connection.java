/**
 * A connection with one timeout at a time. It is the task of that timeout itself, so that moving the timeout makes no new
 * task.
 */
final class Connection extends Payload {
    private Object timeout;

    Connection(long number) {
        super(number);
    }

    static Connection[] several(int count) {
        Connection[] connections = new Connection[count];
        for (int at = 0; at < count; at++) {
            connections[at] = new Connection(at);
        }
        return connections;
    }

    void arm(Timers timers, long delayNanos) {
        timeout = timers.schedule(delayNanos, this);
    }

    void disarm(Timers timers) {
        if (!timers.cancel(timeout)) {
            throw new Broken("a pending timer could not be cancelled");
        }
    }
}
