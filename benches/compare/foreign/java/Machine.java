import com.sun.management.OperatingSystemMXBean;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.lang.management.ManagementFactory;
import java.lang.management.MemoryType;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.util.List;
import java.util.Set;

/** Figures of this process from the system and from the virtual machine. */
final class Machine {
    private static final Path SELF = Path.of("/proc/self");

    private Machine() {}

    /** User and system time of all threads, the collector's and the compiler's among them. In steps of 10 ms on Linux. */
    static long cpuNanos() {
        return ((OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime();
    }

    /**
     * The live part of the heap; resident memory would be the heap's configured size. It is the size after a collection, since
     * the buffer that a thread takes from the heap thereafter counts as used, and may be tens of megabytes.
     */
    static long heapInUse() {
        System.gc();
        System.gc();
        return ManagementFactory.getMemoryPoolMXBeans().stream()
                .filter(pool -> pool.getType() == MemoryType.HEAP && pool.getCollectionUsage() != null)
                .mapToLong(pool -> pool.getCollectionUsage().getUsed())
                .sum();
    }

    /** Voluntary context switches of all threads but this one and the first one, which waits for the virtual machine. */
    static long switches() {
        try {
            return switchesWithout(
                    Set.of(SELF.toRealPath().getFileName(), Path.of("/proc/thread-self").toRealPath().getFileName()));
        } catch (IOException failure) {
            throw new UncheckedIOException(failure);
        }
    }

    /** Voluntary context switches of all present threads. */
    static long allSwitches() {
        try {
            return switchesWithout(Set.of());
        } catch (IOException failure) {
            throw new UncheckedIOException(failure);
        }
    }

    private static long switchesWithout(Set<Path> others) throws IOException {
        long switches = 0;
        try (DirectoryStream<Path> tasks = Files.newDirectoryStream(SELF.toRealPath().resolve("task"))) {
            for (Path task : tasks) {
                if (!others.contains(task.getFileName())) {
                    switches += switchesOf(task);
                }
            }
        }
        return switches;
    }

    private static long switchesOf(Path task) throws IOException {
        List<String> lines;
        try {
            lines = Files.readAllLines(task.resolve("status"));
        } catch (NoSuchFileException ended) {
            return 0;
        }
        String name = "voluntary_ctxt_switches:";
        return lines.stream()
                .filter(line -> line.startsWith(name))
                .mapToLong(line -> Long.parseLong(line.substring(name.length()).strip()))
                .sum();
    }

    static void sleep(long millis) {
        try {
            Thread.sleep(millis);
        } catch (InterruptedException interrupted) {
            throw new IllegalStateException(interrupted);
        }
    }
}
