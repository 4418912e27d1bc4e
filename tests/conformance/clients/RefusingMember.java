import java.nio.charset.StandardCharsets;
import java.util.TreeMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * NAMES TOPIC GROUP refuse|take COUNT: a member of a group that makes dead letters of all messages it gets, or consumes
 * them. It prints each as a JSON line and ends after COUNT of them.
 */
public class RefusingMember {
  static final int DEAD_LETTER = -1, PATIENCE_SECONDS = 60, GRACE_MS = 2_000;

  public static void main(String[] words) throws Exception {
    boolean refuses = words[3].equals("refuse");
    CountDownLatch left = new CountDownLatch(Integer.parseInt(words[4]));
    DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(words[2]);
    consumer.setNamesrvAddr(words[0]);
    consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
    consumer.setConsumeMessageBatchMaxSize(1);
    consumer.subscribe(words[1], "*");
    consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
      for (MessageExt message : messages) {
        say(message);
        left.countDown();
      }
      context.setDelayLevelWhenNextConsume(DEAD_LETTER);
      return refuses ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
    });
    consumer.start();
    boolean done = left.await(PATIENCE_SECONDS, TimeUnit.SECONDS);
    Thread.sleep(GRACE_MS); // what comes beyond them is seen too, and the dead letters are stored
    consumer.shutdown();
    System.exit(done ? 0 : 1);
  }

  static synchronized void say(MessageExt message) {
    String body = new String(message.getBody(), StandardCharsets.UTF_8);
    System.out.println(J.str(J.m("topic", message.getTopic(), "body", body, "keys", message.getKeys(), "tags",
        message.getTags(), "flag", message.getFlag(), "reconsumeTimes", message.getReconsumeTimes(), "id",
        message.getMsgId(), "queueId", message.getQueueId(), "properties", new TreeMap<>(message.getProperties()))));
    System.out.flush();
  }
}
