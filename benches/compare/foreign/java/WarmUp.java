import java.lang.management.CompilationMXBean;
import java.lang.management.ManagementFactory;

/** Runs short rounds of a workload until the just-in-time compiler has no more work for them. */
final class WarmUp {
    /** The time, which is shorter for runs whose figures mean nothing. */
    private static final long LEAST = Long.getLong("warmUpMillis", 1_000) * 1_000_000L;
    private static final long MOST = 4 * LEAST;
    private static final long QUIET = 300_000_000L;

    private WarmUp() {}

    static void untilCompiled(Runnable round) {
        CompilationMXBean compiler = ManagementFactory.getCompilationMXBean();
        long start = System.nanoTime();
        long compiled = compiler.getTotalCompilationTime();
        long quietSince = start;
        long now = start;
        while (now - start < LEAST || (now - quietSince < QUIET && now - start < MOST)) {
            round.run();
            now = System.nanoTime();
            long compiledNow = compiler.getTotalCompilationTime();
            if (compiledNow != compiled) {
                compiled = compiledNow;
                quietSince = now;
            }
        }
    }
}
