import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.AllocateMessageQueueStrategy;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMachineRoomNearby;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragelyByCircle;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueByMachineRoom;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueConsistentHash;
import org.apache.rocketmq.client.consumer.store.LocalFileOffsetStore;
import org.apache.rocketmq.client.consumer.store.ReadOffsetType;
import org.apache.rocketmq.client.impl.factory.MQClientInstance;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * What the real client does with queues and offsets: GroupAnswers MODE QUESTIONS ANSWERS [ARGUMENT]. Questions are lines of
 * words between tabs; answers go to a file, because loggers write to the console.
 */
public class GroupAnswers {
    public static void main(String[] arguments) throws Exception {
        List<String[]> questions = new ArrayList<>();
        for (String line : Files.readAllLines(Paths.get(arguments[1]), StandardCharsets.UTF_8)) {
            questions.add(line.split("\t"));
        }
        Path answers = Paths.get(arguments[2]);
        String argument = arguments.length > 3 ? arguments[3] : "";
        switch (arguments[0]) {
            case "allocate": write(answers, allocate(questions)); break;
            case "save-local": saveLocal(questions, argument); break;
            case "load-local": write(answers, loadLocal(questions, argument)); break;
            default: throw new IllegalArgumentException(arguments[0]);
        }
        System.exit(0);
    }

    static void write(Path path, String text) throws Exception {
        Files.write(path, text.getBytes(StandardCharsets.UTF_8));
    }

    static Map<String, AllocateMessageQueueStrategy> strategies() {
        Map<String, AllocateMessageQueueStrategy> found = new HashMap<>();
        found.put("AVG", new AllocateMessageQueueAveragely());
        found.put("AVG_BY_CIRCLE", new AllocateMessageQueueAveragelyByCircle());
        found.put("CONSISTENT_HASH", new AllocateMessageQueueConsistentHash());
        AllocateMessageQueueByMachineRoom byRoom = new AllocateMessageQueueByMachineRoom();
        byRoom.setConsumeridcs(new HashSet<>(Arrays.asList("r1", "r2")));
        found.put("MACHINE_ROOM", byRoom);
        found.put("MACHINE_ROOM_NEARBY", new AllocateMachineRoomNearby(new AllocateMessageQueueAveragely(),
            new AllocateMachineRoomNearby.MachineRoomResolver() {
                @Override public String brokerDeployIn(MessageQueue queue) {
                    return before(queue.getBrokerName(), '@');
                }
                @Override public String consumerDeployIn(String client) {
                    return before(client, '-');
                }
            }));
        return found;
    }

    static String before(String name, char mark) {
        int at = name.indexOf(mark);
        return at < 0 ? "r0" : name.substring(0, at);
    }

    /** strategy, queues as broker:id between blanks, members between blanks → one line for each member. */
    static String allocate(List<String[]> questions) {
        StringBuilder out = new StringBuilder();
        for (String[] words : questions) {
            List<MessageQueue> queues = new ArrayList<>();
            for (String word : words[1].split(" ")) {
                int colon = word.lastIndexOf(':');
                queues.add(new MessageQueue("T", word.substring(0, colon), Integer.parseInt(word.substring(colon + 1))));
            }
            List<String> members = Arrays.asList(words[2].split(" "));
            for (String member : members) {
                List<String> texts = new ArrayList<>();
                for (MessageQueue queue : strategies().get(words[0]).allocate("g", member, queues, members)) {
                    texts.add(queue.getBrokerName() + ":" + queue.getQueueId());
                }
                out.append(String.join(" ", texts)).append('\n');
            }
        }
        return out.toString();
    }

    static MQClientInstance client() {
        ClientConfig config = new ClientConfig();
        config.setNamesrvAddr("127.0.0.1:1");
        return new MQClientInstance(config, 0, "10.0.0.1@DEFAULT");
    }

    /** group, topic, broker, queue, offset; of a group named twice each run of lines is a life of its own. */
    static void saveLocal(List<String[]> questions, String directory) throws Exception {
        System.setProperty("rocketmq.client.localOffsetStoreDir", directory);
        String group = "";
        LocalFileOffsetStore store = null;
        Set<MessageQueue> queues = new LinkedHashSet<>();
        for (String[] words : questions) {
            if (!words[0].equals(group)) {
                if (store != null) {
                    store.persistAll(queues);
                }
                group = words[0];
                queues.clear();
                store = new LocalFileOffsetStore(client(), group.replaceAll("#.*", ""));
                store.load();
            }
            if (words.length > 1) {
                MessageQueue queue = new MessageQueue(words[1], words[2], Integer.parseInt(words[3]));
                queues.add(queue);
                store.updateOffset(queue, Long.parseLong(words[4]), false);
            } else {
                queues.add(new MessageQueue("T", "b", 0));
            }
        }
        store.persistAll(queues);
    }

    /** group, topic, broker, queue → the offset. */
    static String loadLocal(List<String[]> questions, String directory) throws Exception {
        System.setProperty("rocketmq.client.localOffsetStoreDir", directory);
        StringBuilder out = new StringBuilder();
        for (String[] words : questions) {
            LocalFileOffsetStore store = new LocalFileOffsetStore(client(), words[0]);
            store.load();
            MessageQueue queue = new MessageQueue(words[1], words[2], Integer.parseInt(words[3]));
            out.append(store.readOffset(queue, ReadOffsetType.READ_FROM_STORE)).append('\n');
        }
        return out.toString();
    }
}
