import io.netty.util.Timeout;
import io.netty.util.TimerTask;

/** What a timer runs, in the form of either contestant, so that neither pays for an adapter. */
abstract class Task implements Runnable, TimerTask {
    @Override
    public final void run(Timeout timeout) {
        run();
    }
}
