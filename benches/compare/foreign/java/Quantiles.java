import java.util.Arrays;

/** The quantiles of a sample by nearest rank: the smallest value that at least this part of all values does not exceed. */
final class Quantiles {
    /** The quantiles in the series of a distribution. */
    static final double[] OF_SERIES = {0.5, 0.9, 0.99, 0.999, 0.9999, 1};

    private final long[] sorted;

    Quantiles(long[] sample) {
        sorted = sample.clone();
        Arrays.parallelSort(sorted);
    }

    boolean isEmpty() {
        return sorted.length == 0;
    }

    /** A quantile, in units of so many nanoseconds. */
    double at(double quantile, double unit) {
        int rank = (int) Math.ceil(quantile * sorted.length);
        return sorted[Math.max(rank, 1) - 1] / unit;
    }

    double[] series(double unit) {
        return Arrays.stream(OF_SERIES).map(quantile -> at(quantile, unit)).toArray();
    }
}
