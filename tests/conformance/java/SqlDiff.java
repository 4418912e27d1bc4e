import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Base64;
import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.stream.Collectors;
import org.apache.rocketmq.filter.FilterFactory;
import org.apache.rocketmq.filter.expression.EvaluationContext;
import org.apache.rocketmq.filter.expression.Expression;
import org.apache.rocketmq.filter.util.BloomFilter;

/**
 * Asks the real classes about selectors, tag expressions and numbers. A line is a question, separated by tabs, its texts in
 * Base64 of UTF-8:
 *   S expression [name value]...   compile, keep              -> ok | refused
 *   P [name value]...              evaluate the kept selector -> T | F | U (null) | X (thrown)
 *   G expression                   build a tag subscription   -> refused | all | some [tag in Base64]... [code]...
 *   B group#topic                  bits of a bloom filter     -> [position]...
 *   D text, I text, L text         Double, Integer, Long.valueOf -> the value (doubles as bits) | X
 */
public class SqlDiff {
    static final class Properties implements EvaluationContext {
        final Map<String, Object> values = new HashMap<>();

        public Object get(String name) {
            return values.get(name);
        }

        public Map<String, Object> keyValues() {
            return values;
        }
    }

    static String text(String word) {
        return new String(Base64.getDecoder().decode(word), StandardCharsets.UTF_8);
    }

    static String evaluate(Expression selector, String[] words) {
        Properties properties = new Properties();
        for (int i = 1; i + 1 < words.length; i += 2) {
            properties.values.put(text(words[i]), text(words[i + 1]));
        }
        try {
            Object found = selector.evaluate(properties);
            return found == null ? "U" : (Boolean) found ? "T" : "F";
        } catch (Throwable thrown) {
            return "X";
        }
    }

    /** The class lies elsewhere in each generation. */
    static Method subscription() throws Exception {
        String rest = "filter.FilterAPI";
        Class<?> found;
        try {
            found = Class.forName("org.apache.rocketmq.remoting.protocol." + rest);
        } catch (ClassNotFoundException absent) {
            found = Class.forName("org.apache.rocketmq.common." + rest);
        }
        return found.getMethod("buildSubscriptionData", String.class, String.class);
    }

    static String tags(String expression) {
        try {
            Object data = subscription().invoke(null, "topic", expression);
            if (data.getClass().getMethod("getSubString").invoke(data).equals("*")) {
                return "all";
            }
            StringBuilder found = new StringBuilder("some");
            for (Object tag : new TreeSet<Object>((Set<?>) data.getClass().getMethod("getTagsSet").invoke(data))) {
                byte[] bytes = ((String) tag).getBytes(StandardCharsets.UTF_8);
                found.append('\t').append(Base64.getEncoder().encodeToString(bytes));
            }
            for (Object code : new TreeSet<Object>((Set<?>) data.getClass().getMethod("getCodeSet").invoke(data))) {
                found.append('\t').append(code);
            }
            return found.toString();
        } catch (Throwable thrown) {
            return "refused";
        }
    }

    static String number(char kind, String text) {
        try {
            switch (kind) {
                case 'D':
                    return Long.toString(Double.doubleToLongBits(Double.valueOf(text)));
                case 'I':
                    return Integer.valueOf(text).toString();
                default:
                    return Long.valueOf(text).toString();
            }
        } catch (NumberFormatException thrown) {
            return "X";
        }
    }

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        PrintStream out = new PrintStream(new java.io.FileOutputStream(java.io.FileDescriptor.out), false, "US-ASCII");
        Expression selector = null;
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split("\t", -1);
            char kind = words[0].charAt(0);
            if (kind == 'S') {
                try {
                    selector = FilterFactory.INSTANCE.get("SQL92").compile(text(words[1]));
                    out.println("ok");
                } catch (Throwable thrown) {
                    selector = null;
                    out.println("refused");
                }
            } else if (kind == 'P') {
                out.println(evaluate(selector, words));
            } else if (kind == 'B') {
                int[] positions = BloomFilter.createByFn(20, 32).generate(text(words[1])).getBitPos();
                out.println(Arrays.stream(positions).mapToObj(Integer::toString).collect(Collectors.joining("\t")));
            } else if (kind == 'G') {
                out.println(tags(text(words[1])));
            } else {
                out.println(number(kind, text(words[1])));
            }
        }
        out.flush();
    }
}
