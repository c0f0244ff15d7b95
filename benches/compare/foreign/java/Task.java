import io.netty.util.Timeout;
import io.netty.util.TimerTask;

/** The task of a timer, in the forms of both contestants, so that neither pays for an adapter. */
abstract class Task implements Runnable, TimerTask {
    @Override
    public final void run(Timeout timeout) {
        run();
    }
}
