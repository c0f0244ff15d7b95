import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.BrokenBarrierException;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;

/** Threads that start together. */
final class Together {
    /** The number of operations of a thread, and their time. */
    record Share(long operations, long nanos) {}

    /** The work of a thread: it prepares, waits for the others, and measures. */
    interface Work {
        Share run(int thread, Runnable start);
    }

    private Together() {}

    /** Returns nanoseconds for an operation and thread. */
    static double run(int threads, Work work) {
        CyclicBarrier barrier = new CyclicBarrier(threads);
        Runnable start = () -> await(barrier);
        ExecutorService pool = Executors.newFixedThreadPool(threads, Timers.daemons());
        try {
            List<Future<Share>> running = new ArrayList<>();
            for (int at = 0; at < threads; at++) {
                int thread = at;
                running.add(pool.submit(() -> {
                    try {
                        return work.run(thread, start);
                    } catch (Throwable broken) {
                        // The other threads would wait for ever.
                        barrier.reset();
                        throw broken;
                    }
                }));
            }
            long operations = 0;
            long nanos = 0;
            for (Future<Share> one : running) {
                Share share = one.get();
                operations += share.operations;
                nanos += share.nanos;
            }
            return (double) nanos / operations;
        } catch (ExecutionException failed) {
            throw new Broken("a thread: " + failed.getCause());
        } catch (InterruptedException interrupted) {
            throw new IllegalStateException(interrupted);
        } finally {
            pool.shutdownNow();
        }
    }

    private static void await(CyclicBarrier barrier) {
        try {
            barrier.await();
        } catch (InterruptedException | BrokenBarrierException failed) {
            throw new Broken("another thread failed");
        }
    }
}
