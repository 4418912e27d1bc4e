import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.LongAdder;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * How fast an unmodified client is at a broker: ClientSpeed NAMES PREFIX. It reads lines and answers each with one.
 *
 * sync THREADS SECONDS, async WINDOW SECONDS, batch THREADS SECONDS, fill COUNT, push COUNT, latency COUNT: the answer
 * is {"messages", "seconds", "errors"}, and for latency {"p50", "p99"} in milliseconds.
 */
public class ClientSpeed {
  static final int BATCH = 32;
  static final byte[] BODY = new byte[100];
  static String names;
  static String prefix;
  static DefaultMQProducer producer;

  public static void main(String[] words) throws Exception {
    names = words[0];
    prefix = words[1];
    Arrays.fill(BODY, (byte) 'x');
    producer = newProducer("speed");
    for (String kind : new String[] {"single", "batch", "push", "latency"}) {
      begin(prefix + kind);
    }
    BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
    System.out.println("{}");
    for (String line = lines.readLine(); line != null; line = lines.readLine()) {
      String[] asked = line.split(" ");
      int number = Integer.parseInt(asked[1]);
      switch (asked[0]) {
        case "fill": fill(number); break;
        case "push": push(number); break;
        case "latency": latency(number); break;
        default: send(asked[0], number, Double.parseDouble(asked[2]));
      }
    }
    producer.shutdown();
    System.exit(0);
  }

  static DefaultMQProducer newProducer(String name) throws Exception {
    DefaultMQProducer made = new DefaultMQProducer(prefix + name);
    made.setNamesrvAddr(names);
    made.setSendMsgTimeout(10_000);
    made.setInstanceName(prefix + name + System.nanoTime());
    made.start();
    return made;
  }

  /** Send until the topic is there. */
  static void begin(String topic) throws Exception {
    for (int left = 20; ; left--) {
      try {
        producer.send(new Message(topic, "0".getBytes()));
        return;
      } catch (Exception error) {
        if (left == 0) {
          throw error;
        }
        Thread.sleep(500);
      }
    }
  }

  static List<Message> batch(String topic) {
    List<Message> found = new ArrayList<>();
    for (int i = 0; i < BATCH; i++) {
      found.add(new Message(topic, BODY));
    }
    return found;
  }

  static void say(long messages, double seconds, long errors) {
    System.out.println("{\"messages\": " + messages + ", \"seconds\": " + seconds + ", \"errors\": " + errors + "}");
  }

  static void send(String kind, int number, double seconds) throws Exception {
    LongAdder sent = new LongAdder();
    LongAdder errors = new LongAdder();
    Semaphore window = new Semaphore(number);
    long begun = System.nanoTime();
    long end = begun + (long) (seconds * 1e9);
    List<Thread> threads = new ArrayList<>();
    for (int i = 0; i < (kind.equals("async") ? 1 : number); i++) {
      Thread thread = new Thread(() -> {
        while (System.nanoTime() < end) {
          try {
            if (kind.equals("sync")) {
              producer.send(new Message(prefix + "single", BODY));
              sent.increment();
            } else if (kind.equals("batch")) {
              producer.send(batch(prefix + "batch"));
              sent.add(BATCH);
            } else {
              window.acquire();
              producer.send(new Message(prefix + "single", BODY), new SendCallback() {
                public void onSuccess(SendResult result) {
                  sent.increment();
                  window.release();
                }

                public void onException(Throwable error) {
                  errors.increment();
                  window.release();
                }
              });
            }
          } catch (Exception error) {
            errors.increment();
          }
        }
      });
      threads.add(thread);
      thread.start();
    }
    for (Thread thread : threads) {
      thread.join();
    }
    window.tryAcquire(number, 10, TimeUnit.SECONDS);
    say(sent.sum(), (System.nanoTime() - begun) / 1e9, errors.sum());
  }

  static void fill(int count) throws Exception {
    long begun = System.nanoTime();
    for (int sent = 0; sent < count; sent += BATCH) {
      producer.send(batch(prefix + "push"));
    }
    say(count, (System.nanoTime() - begun) / 1e9, 0);
  }

  static DefaultMQPushConsumer consumer(String topic, MessageListenerConcurrently listener) throws Exception {
    DefaultMQPushConsumer made = new DefaultMQPushConsumer(prefix + "group" + System.nanoTime());
    made.setNamesrvAddr(names);
    made.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
    made.subscribe(topic, "*");
    made.setConsumeMessageBatchMaxSize(BATCH);
    made.setPullBatchSize(BATCH);
    made.registerMessageListener(listener);
    return made;
  }

  static void push(int count) throws Exception {
    LongAdder taken = new LongAdder();
    AtomicLong first = new AtomicLong();
    DefaultMQPushConsumer consumer = consumer(prefix + "push", (messages, context) -> {
      first.compareAndSet(0, System.nanoTime());
      taken.add(messages.size());
      return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
    });
    consumer.start();
    long limit = System.nanoTime() + 60_000_000_000L;
    while (taken.sum() < count && System.nanoTime() < limit) {
      Thread.sleep(2);
    }
    say(taken.sum(), (System.nanoTime() - first.get()) / 1e9, taken.sum() < count ? 1 : 0);
    consumer.shutdown();
  }

  /** The time from a send to the listener, one message each 10 ms. */
  static void latency(int count) throws Exception {
    List<Long> taken = Collections.synchronizedList(new ArrayList<>());
    DefaultMQPushConsumer consumer = consumer(prefix + "latency", (messages, context) -> {
      long now = System.nanoTime();
      for (MessageExt message : messages) {
        long sent = Long.parseLong(new String(message.getBody()));
        if (sent > 0) {
          taken.add(now - sent);
        }
      }
      return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
    });
    consumer.start();
    Thread.sleep(3000);
    taken.clear();
    for (int i = 0; i < count; i++) {
      producer.send(new Message(prefix + "latency", Long.toString(System.nanoTime()).getBytes()));
      Thread.sleep(10);
    }
    Thread.sleep(500);
    consumer.shutdown();
    List<Long> sorted = new ArrayList<>(taken);
    Collections.sort(sorted);
    double half = sorted.get(sorted.size() / 2) / 1e6;
    double most = sorted.get(sorted.size() * 99 / 100) / 1e6;
    System.out.println("{\"messages\": " + sorted.size() + ", \"p50\": " + half + ", \"p99\": " + most + "}");
  }
}
