import static java.util.Map.entry;

import java.util.Map;
import java.util.function.Supplier;

/** Runs one case of one workload with one contestant, and prints its figures: {@code turn WORKLOAD CONTESTANT CASE}. */
final class Turn {
    private static final int BROKEN = 1;
    private static final int MISUSED = 2;
    private static final int CANNOT = 3;

    private static final Map<String, Supplier<Timers>> CONTESTANTS =
            Map.of("netty", NettyTimers::new, "jdk", JdkTimers::new);

    private static final Map<String, Workload> WORKLOADS = Map.ofEntries(
            entry("pair", new Pair()),
            entry("growth", new Growth()),
            entry("refresh", new Refresh()),
            entry("rearm", new Rearm()),
            entry("expiry", new Expiry()),
            entry("burst", new Burst()),
            entry("busy", new Busy()),
            entry("memory", new Memory()),
            entry("storm", new Storm()),
            entry("idle", new Idle()),
            entry("mixed", new Mixed()));

    private Turn() {}

    public static void main(String[] arguments) {
        System.exit(run(arguments));
    }

    private static int run(String[] arguments) {
        if (arguments.length != 4 || !arguments[0].equals("turn")) {
            return failed(MISUSED, "usage: turn WORKLOAD CONTESTANT CASE");
        }
        Workload workload = WORKLOADS.get(arguments[1]);
        if (workload == null) {
            return failed(CANNOT, "no such workload here: " + arguments[1]);
        }
        Supplier<Timers> contestant = CONTESTANTS.get(arguments[2]);
        if (contestant == null) {
            return failed(CANNOT, "no such contestant here: " + arguments[2]);
        }
        try {
            System.out.println(workload.run(Case.parse(arguments[3]), contestant));
            return 0;
        } catch (Case.Malformed malformed) {
            return failed(MISUSED, malformed.getMessage());
        } catch (Broken broken) {
            return failed(BROKEN, "broken: " + broken.getMessage());
        } catch (Throwable other) {
            other.printStackTrace();
            return failed(BROKEN, "broken: " + other);
        }
    }

    private static int failed(int status, String message) {
        System.err.println(message);
        return status;
    }
}
