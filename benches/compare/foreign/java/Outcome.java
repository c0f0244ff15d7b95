import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.stream.Collectors;
import java.util.stream.Stream;

/** The figures of a turn; as a string, a JSON object. The names are ours and need no escapes. */
final class Outcome {
    private final Map<String, Double> numbers = new LinkedHashMap<>();
    private final Map<String, double[]> series = new LinkedHashMap<>();

    Outcome number(String name, double value) {
        numbers.put(name, value);
        return this;
    }

    Outcome series(String name, double... values) {
        series.put(name, values);
        return this;
    }

    @Override
    public String toString() {
        Stream<String> one = numbers.entrySet().stream().map(entry -> field(entry.getKey(), text(entry.getValue())));
        Stream<String> many = series.entrySet().stream().map(entry -> field(entry.getKey(), array(entry.getValue())));
        return "{\"numbers\": " + object(one) + ", \"series\": " + object(many) + "}";
    }

    private static String object(Stream<String> fields) {
        return fields.collect(Collectors.joining(", ", "{", "}"));
    }

    private static String field(String name, String value) {
        return "\"" + name + "\": " + value;
    }

    private static String array(double[] values) {
        return Arrays.stream(values).mapToObj(Outcome::text).collect(Collectors.joining(", ", "[", "]"));
    }

    /** JSON has no NaN and no infinities. */
    private static String text(double value) {
        Broken.unless(Double.isFinite(value), "a figure is not a number");
        return Double.toString(value);
    }
}
