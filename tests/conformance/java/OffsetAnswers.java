import java.lang.reflect.Constructor;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentMap;
import org.apache.rocketmq.broker.offset.ConsumerOffsetManager;
import org.apache.rocketmq.broker.offset.LmqConsumerOffsetManager;

/**
 * What the real broker makes of the progress of groups: OffsetAnswers MODE QUESTIONS ANSWERS CLASS. Questions are lines
 * of words between tabs; answers go to a file, because loggers write to the console.
 */
public class OffsetAnswers {
    public static void main(String[] arguments) throws Exception {
        List<String[]> questions = new ArrayList<>();
        for (String line : Files.readAllLines(Paths.get(arguments[1]), StandardCharsets.UTF_8)) {
            questions.add(line.split("\t"));
        }
        boolean save = arguments[0].equals("save");
        String answer = save ? save(questions, arguments[3]) : load(questions, arguments[3]);
        Files.write(Paths.get(arguments[2]), answer.getBytes(StandardCharsets.UTF_8));
        System.exit(0);
    }

    static ConsumerOffsetManager manager(String name) throws Exception {
        Class<?> type = Class.forName("org.apache.rocketmq.broker.offset." + name);
        Constructor<?> constructor =
            type.getDeclaredConstructor(Class.forName("org.apache.rocketmq.broker.BrokerController"));
        return (ConsumerOffsetManager) constructor.newInstance((Object) null);
    }

    /** topic, group, queue, offset → the file. A commit would ask the broker for its settings. */
    static String save(List<String[]> questions, String name) throws Exception {
        ConsumerOffsetManager manager = manager(name);
        for (String[] words : questions) {
            String key = words[0] + "@" + words[1];
            long offset = Long.parseLong(words[3]);
            if (name.startsWith("Lmq") && words[1].startsWith("%LMQ%")) {
                ((LmqConsumerOffsetManager) manager)
                    .getLmqOffsetTable().put(key, offset);
                continue;
            }
            ConcurrentMap<Integer, Long> queues = manager.getOffsetTable().get(key);
            if (queues == null) {
                queues = new ConcurrentHashMap<>(32);
                manager.getOffsetTable().put(key, queues);
            }
            queues.put(Integer.parseInt(words[2]), offset);
        }
        try {
            Object version = manager.getClass().getMethod("getDataVersion").invoke(manager);
            version.getClass().getMethod("setTimestamp", long.class).invoke(version, 1700000000000L);
        } catch (NoSuchMethodException none) {
            // 4.9 has no such field.
        }
        return manager.encode(true);
    }

    /** One line with a path → topic@group, queue, offset of everything that is loaded from it. */
    static String load(List<String[]> questions, String name) throws Exception {
        ConsumerOffsetManager manager = manager(name);
        byte[] text = Files.readAllBytes(Paths.get(questions.get(0)[0]));
        manager.decode(new String(text, StandardCharsets.UTF_8));
        StringBuilder out = new StringBuilder();
        for (Map.Entry<String, ConcurrentMap<Integer, Long>> entry : new TreeMap<>(manager.getOffsetTable()).entrySet()) {
            for (Map.Entry<Integer, Long> queue : new TreeMap<>(entry.getValue()).entrySet()) {
                out.append(entry.getKey() + "\t" + queue.getKey() + "\t" + queue.getValue() + "\n");
            }
        }
        return out.toString();
    }
}
