import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** The task of a turn: one flat JSON object of integers, strings and arrays of integers. */
final class Case {
    private final Map<String, Object> fields;

    private Case(Map<String, Object> fields) {
        this.fields = fields;
    }

    static Case parse(String json) {
        return new Case(new Parser(json).object());
    }

    long number(String field) {
        if (fields.get(field) instanceof Long number) {
            return number;
        }
        throw new Malformed("the case has no number \"" + field + "\"");
    }

    long number(String field, long otherwise) {
        return fields.containsKey(field) ? number(field) : otherwise;
    }

    int count(String field) {
        return Math.toIntExact(number(field));
    }

    int[] counts(String field) {
        if (fields.get(field) instanceof long[] numbers) {
            int[] counts = new int[numbers.length];
            for (int at = 0; at < counts.length; at++) {
                counts[at] = Math.toIntExact(numbers[at]);
            }
            return counts;
        }
        throw new Malformed("the case has no array \"" + field + "\"");
    }

    /** A duration that is given in milliseconds, in nanoseconds. */
    long nanos(String field) {
        return Math.multiplyExact(number(field), 1_000_000L);
    }

    static final class Malformed extends RuntimeException {
        private static final long serialVersionUID = 1;

        Malformed(String message) {
            super(message);
        }
    }

    private static final class Parser {
        private final String text;
        private int at;

        Parser(String text) {
            this.text = text;
        }

        Map<String, Object> object() {
            Map<String, Object> fields = new HashMap<>();
            expect('{');
            if (!passed('}')) {
                do {
                    String name = string();
                    expect(':');
                    fields.put(name, value());
                } while (passed(','));
                expect('}');
            }
            if (next() != END) {
                throw wrong("the end");
            }
            return fields;
        }

        private Object value() {
            return switch (next()) {
                case '"' -> string();
                case '[' -> array();
                default -> number();
            };
        }

        private long[] array() {
            List<Long> numbers = new ArrayList<>();
            expect('[');
            if (!passed(']')) {
                do {
                    numbers.add(number());
                } while (passed(','));
                expect(']');
            }
            return numbers.stream().mapToLong(Long::longValue).toArray();
        }

        private long number() {
            next();
            int from = at;
            while (at < text.length() && (Character.isDigit(text.charAt(at)) || text.charAt(at) == '-')) {
                at++;
            }
            try {
                return Long.parseLong(text.substring(from, at));
            } catch (NumberFormatException none) {
                throw wrong("an integer");
            }
        }

        private String string() {
            expect('"');
            StringBuilder string = new StringBuilder();
            while (at < text.length() && text.charAt(at) != '"') {
                char one = text.charAt(at++);
                string.append(one == '\\' ? escaped() : one);
            }
            expect('"');
            return string.toString();
        }

        private char escaped() {
            if (at == text.length()) {
                throw wrong("an escape");
            }
            char one = text.charAt(at++);
            return switch (one) {
                case 'b' -> '\b';
                case 'f' -> '\f';
                case 'n' -> '\n';
                case 'r' -> '\r';
                case 't' -> '\t';
                case 'u' -> unit();
                default -> one;
            };
        }

        private char unit() {
            try {
                char unit = (char) Integer.parseInt(text.substring(at, at + 4), 16);
                at += 4;
                return unit;
            } catch (RuntimeException none) {
                throw wrong("four hexadecimal digits");
            }
        }

        private static final char END = '\0';

        private char next() {
            while (at < text.length() && Character.isWhitespace(text.charAt(at))) {
                at++;
            }
            return at < text.length() ? text.charAt(at) : END;
        }

        private boolean passed(char one) {
            boolean here = next() == one;
            if (here) {
                at++;
            }
            return here;
        }

        private void expect(char one) {
            if (!passed(one)) {
                throw wrong("'" + one + "'");
            }
        }

        private Malformed wrong(String expected) {
            return new Malformed("the case is malformed at " + at + ", expected " + expected + ": " + text);
        }
    }
}
