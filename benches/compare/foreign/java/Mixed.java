import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.List;
import java.util.function.Supplier;

/** An open loop: operations come at their planned moments, whether or not the timer keeps up. */
final class Mixed implements Workload {
    private static final double MS = 1e6;
    private static final double US = 1e3;
    private static final long COMPILING_TIME = 400_000_000L;
    /** The time from the start of a plan in which nothing is recorded. */
    private static final long WARM_UP_TIME = 200_000_000L;

    @Override
    public Outcome run(Case of, Supplier<Timers> contestant) {
        long rate = of.number("rate");
        Plan compiling = new Plan(rate, COMPILING_TIME);
        try (Timers timers = contestant.get()) {
            WarmUp.untilCompiled(() -> new Drive(timers, compiling).run());
        }
        Plan plan = new Plan(rate, of.nanos("time_ms"));
        try (Timers timers = contestant.get()) {
            Pending.settle(timers, of.number("settle_ms", 0));
            Drive drive = new Drive(timers, plan);
            drive.run();
            double cpuSeconds = (Machine.cpuNanos() - drive.cpu) / 1e9;
            Quantiles operations = new Quantiles(
                    Arrays.copyOfRange(drive.latency, plan.warmUpOperations, drive.latency.length));
            Quantiles all = new Quantiles(drive.arrivals.lateness());
            Broken.unless(!all.isEmpty(), "nothing fired");
            Broken.unless(all.at(0, MS) >= 0, "a timer fired " + -all.at(0, MS) + " ms early");
            Quantiles late = new Quantiles(drive.arrivals.latenessFrom(plan.warmUpTimers));
            return new Outcome()
                    .number("op_p50", operations.at(0.5, US))
                    .number("op_p99", operations.at(0.99, US))
                    .number("op_p999", operations.at(0.999, US))
                    .number("op_max", operations.at(1, US))
                    .number("late_p50", late.at(0.5, MS))
                    .number("late_p99", late.at(0.99, MS))
                    .number("late_p999", late.at(0.999, MS))
                    .number("late_max", late.at(1, MS))
                    .number("missed", drive.missed)
                    .number("cpu", cpuSeconds)
                    .number("behind", drive.behind() / MS)
                    .series("quantile", Quantiles.OF_SERIES)
                    .series("op_us", operations.series(US))
                    .series("late_ms", late.series(MS));
        }
    }

    /**
     * The plan: operations and their moments, from the start on. An operation that schedules is its timer's number, one that
     * cancels is the complement of the number.
     */
    private static final class Plan {
        private static final double OPERATIONS_A_TIMER = 1.95;

        final long[] deadlines;
        final long[] times;
        final int[] operations;
        final int warmUpOperations;
        final int warmUpTimers;

        private record Operation(long time, int what) {}

        Plan(long rate, long recorded) {
            long time = WARM_UP_TIME + recorded;
            int timers = (int) (rate * (time / 1e9) / OPERATIONS_A_TIMER);
            Chance chance = new Chance(7);
            deadlines = new long[timers];
            List<Operation> plan = new ArrayList<>(2 * timers);
            int before = 0;
            for (int timer = 0; timer < timers; timer++) {
                double jitter = chance.within(0, 1 << 20) / (double) (1 << 20);
                long arrival = (long) ((timer + jitter) * time / timers);
                plan.add(new Operation(arrival, timer));
                before += arrival < WARM_UP_TIME ? 1 : 0;
                if (chance.within(0, 100) < 95) {
                    plan.add(new Operation(arrival + chance.within(1_000_000, 40_000_000), ~timer));
                }
                deadlines[timer] = arrival + chance.within(50_000_000, 200_000_000);
            }
            plan.sort(Comparator.comparingLong(Operation::time));
            times = plan.stream().mapToLong(Operation::time).toArray();
            operations = plan.stream().mapToInt(Operation::what).toArray();
            warmUpTimers = before;
            warmUpOperations = (int) plan.stream().filter(one -> one.time < WARM_UP_TIME).count();
        }
    }

    private static final class Drive {
        private final Timers timers;
        private final Plan plan;
        private final long[] deadlines;
        private final Object[] handles;
        final long[] latency;
        final Arrivals arrivals;
        int missed;
        /** The processor time at the end of the warm-up. */
        long cpu;
        private int cancelled;

        Drive(Timers timers, Plan plan) {
            this.timers = timers;
            this.plan = plan;
            deadlines = plan.deadlines.clone();
            handles = new Object[deadlines.length];
            latency = new long[plan.operations.length];
            // Touched beforehand, like the other arrays.
            Arrays.fill(latency, 1);
            arrivals = new Arrivals(deadlines);
        }

        void run() {
            long start = System.nanoTime();
            for (int timer = 0; timer < deadlines.length; timer++) {
                deadlines[timer] += start;
            }
            for (int at = 0; at < latency.length; at++) {
                if (at == plan.warmUpOperations) {
                    cpu = Machine.cpuNanos();
                }
                latency[at] = operate(plan.operations[at], start + plan.times[at]);
            }
            int fired = deadlines.length - cancelled;
            arrivals.expectAtLeast(fired);
            Pending.expect(timers, 0);
            if (timers.knowsWhoWon()) {
                arrivals.expect(fired);
            }
        }

        /** The time of each operation from its planned moment to its end. */
        private long operate(int operation, long planned) {
            long now = System.nanoTime();
            while (now < planned) {
                now = System.nanoTime();
            }
            if (operation >= 0) {
                handles[operation] = timers.schedule(Math.max(deadlines[operation] - now, 0), arrivals.task(operation));
            } else if (timers.cancel(handles[~operation])) {
                cancelled++;
            } else {
                missed++;
            }
            return System.nanoTime() - planned;
        }

        /** The delay of the last operation. */
        long behind() {
            return latency[latency.length - 1];
        }
    }
}
