/** SplitMix64. */
final class Chance {
    private long state;

    Chance(long seed) {
        state = seed;
    }

    long next() {
        state += 0x9e3779b97f4a7c15L;
        long mixed = state;
        mixed = (mixed ^ (mixed >>> 30)) * 0xbf58476d1ce4e5b9L;
        mixed = (mixed ^ (mixed >>> 27)) * 0x94d049bb133111ebL;
        return mixed ^ (mixed >>> 31);
    }

    /** A number from {@code from} on, below {@code to}. */
    long within(long from, long to) {
        return from + unsignedMultiplyHigh(next(), to - from);
    }

    /** The delay of a timer that is not due in a turn: 10 to 60 s. */
    long farDelay() {
        return within(10_000_000_000L, 60_000_000_000L);
    }

    /**
     * The upper half of an unsigned product, which {@link Math} has from 18 on. A negative factor counts for 2^64 less, which
     * the correction adds again.
     */
    private static long unsignedMultiplyHigh(long one, long other) {
        return Math.multiplyHigh(one, other) + ((one >> 63) & other) + ((other >> 63) & one);
    }
}
