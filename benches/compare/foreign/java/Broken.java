/** A check that failed: there are no figures. */
final class Broken extends RuntimeException {
    private static final long serialVersionUID = 1;

    Broken(String message) {
        super(message);
    }

    static void unless(boolean holds, String message) {
        if (!holds) {
            throw new Broken(message);
        }
    }

    static void unlessEqual(long found, long expected, String what) {
        unless(found == expected, what + ": " + found + ", expected " + expected);
    }
}
