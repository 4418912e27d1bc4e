import java.nio.charset.StandardCharsets;
import java.util.List;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * A member of a consumer group: GroupMember NAMES TOPIC GROUP MEMBER concurrent|orderly. For each message it prints the
 * queue, the body, and when (ms) it began and ended with it. It stops in order when its standard input ends.
 */
public class GroupMember {
  static final long WORK_MS = 2;

  public static void main(String[] words) throws Exception {
    DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(words[2]);
    consumer.setNamesrvAddr(words[0]);
    consumer.setInstanceName(words[3]);
    consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
    consumer.subscribe(words[1], "*");
    if (words[4].equals("orderly")) {
      consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
        take(messages, WORK_MS);
        return ConsumeOrderlyStatus.SUCCESS;
      });
    } else {
      consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
        take(messages, 0);
        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
      });
    }
    consumer.start();
    say("{\"started\": " + System.currentTimeMillis() + "}");
    while (System.in.read() >= 0) {
      continue;
    }
    consumer.shutdown();
    System.exit(0);
  }

  static void take(List<MessageExt> messages, long work) {
    for (MessageExt message : messages) {
      long begun = System.currentTimeMillis();
      if (work > 0) {
        try {
          Thread.sleep(work);
        } catch (InterruptedException error) {
          Thread.currentThread().interrupt();
        }
      }
      String body = new String(message.getBody(), StandardCharsets.UTF_8);
      say("{\"queue\": " + message.getQueueId() + ", \"body\": \"" + body + "\", \"begun\": " + begun
          + ", \"ended\": " + System.currentTimeMillis() + "}");
    }
  }

  static synchronized void say(String line) {
    System.out.println(line);
    System.out.flush();
  }
}
