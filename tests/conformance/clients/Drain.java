import java.io.*;
import java.nio.charset.StandardCharsets;
import java.util.*;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Reads all queues of topics from brokers, one after another: a line of the standard input is drain|committed NAMES
 * TOPIC..., with tabs. For drain it prints the places of all messages as a JSON line, and commits the ends; for
 * committed it prints the committed offsets of the queues.
 */
public class Drain {
  static final int PULL = 32;
  static final long PATIENCE_MS = 30_000;

  public static void main(String[] args) throws Exception {
    BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    int count = 0;
    for (String line; (line = lines.readLine()) != null; ) {
      String[] words = line.split("\t");
      DefaultMQPullConsumer consumer = new DefaultMQPullConsumer("Drainers");
      consumer.setNamesrvAddr(words[1]);
      consumer.setInstanceName("drain-" + count++);
      consumer.setConsumerPullTimeoutMillis(PATIENCE_MS);
      consumer.setMqClientApiTimeout((int) PATIENCE_MS);
      consumer.start();
      Map<String, Object> said;
      try {
        List<String> topics = Arrays.asList(words).subList(2, words.length);
        said = words[0].equals("drain") ? drain(consumer, topics) : committed(consumer, topics);
      } catch (Exception error) {
        StringWriter text = new StringWriter();
        error.printStackTrace(new PrintWriter(text));
        said = J.m("error", text.toString());
      }
      consumer.shutdown();
      System.out.println(J.str(said));
      System.out.flush();
    }
    System.exit(0);
  }

  /** The queues of a topic; none of one that is only named in a damaged record. */
  static Collection<MessageQueue> queues(DefaultMQPullConsumer consumer, String topic) {
    try {
      return consumer.fetchSubscribeMessageQueues(topic);
    } catch (MQClientException noRoute) {
      return new ArrayList<>();
    }
  }

  static Map<String, Object> drain(DefaultMQPullConsumer consumer, List<String> topics) throws Exception {
    List<Object> places = new ArrayList<>();
    for (String topic : topics) {
      for (MessageQueue queue : queues(consumer, topic)) {
        long offset = consumer.minOffset(queue);
        long end = consumer.maxOffset(queue);
        while (offset < end) {
          PullResult pulled = consumer.pull(queue, "*", offset, PULL);
          if (pulled.getMsgFoundList() != null) {
            for (MessageExt message : pulled.getMsgFoundList()) {
              places.add(message.getTopic() + " " + message.getQueueId() + " " + message.getQueueOffset());
            }
          }
          if (pulled.getNextBeginOffset() <= offset) {
            throw new IllegalStateException(queue + " stays at " + offset + ": " + pulled);
          }
          offset = pulled.getNextBeginOffset();
        }
        consumer.getOffsetStore().updateConsumeOffsetToBroker(queue, offset, false);
      }
    }
    return J.m("places", places);
  }

  static Map<String, Object> committed(DefaultMQPullConsumer consumer, List<String> topics) throws Exception {
    Map<String, Object> offsets = new TreeMap<>();
    for (String topic : topics) {
      for (MessageQueue queue : queues(consumer, topic)) {
        offsets.put(topic + " " + queue.getQueueId(), consumer.fetchConsumeOffset(queue, true));
      }
    }
    return J.m("offsets", offsets);
  }
}
