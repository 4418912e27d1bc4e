import static org.junit.jupiter.api.Assertions.assertEquals;

import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.junit.jupiter.api.Test;

/** A test as users write it: it names no broker, the client finds it in NAMESRV_ADDR. */
class OrdersTest {
  @Test
  void anOrderArrives() throws Exception {
    BlockingQueue<String> taken = new LinkedBlockingQueue<>();
    DefaultMQProducer producer = new DefaultMQProducer("shop");
    DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("warehouse");
    producer.start();
    try {
      assertEquals(SendStatus.SEND_OK, producer.send(new Message("Orders", "paid", "order-4711".getBytes())).getSendStatus());
      consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
      consumer.subscribe("Orders", "paid");
      consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
        messages.forEach(message -> taken.add(new String(message.getBody())));
        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
      });
      consumer.start();
      assertEquals(System.getProperty("expected", "order-4711"), taken.poll(30, TimeUnit.SECONDS));
    } finally {
      consumer.shutdown();
      producer.shutdown();
    }
  }
}
