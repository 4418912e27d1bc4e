import java.io.*;
import java.lang.reflect.Field;
import java.nio.charset.StandardCharsets;
import java.util.*;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.*;
import org.apache.rocketmq.client.producer.*;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.*;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/** NAMES: runs commands of mqadmin, one per line of the standard input, words separated by tabs, in one process, and
 *  prints for each what it printed, as a JSON line. A line that begins with # is for a client of its own: it makes the
 *  history that the commands are about. {id:KEY} and {offsetId:KEY} are the ids of the message with that key. */
public class AdminCommands {
  static final int PATIENCE_SECONDS = 60;
  final String names;
  final PrintStream out = System.out;
  final Map<String, SendResult> sent = new HashMap<>();
  final Map<String, DefaultMQPushConsumer> members = new HashMap<>();
  DefaultMQProducer producer;
  DefaultMQAdminExt admin;

  AdminCommands(String names) {
    this.names = names;
  }

  public static void main(String[] words) throws Exception {
    AdminCommands commands = new AdminCommands(words[0]);
    BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line; (line = lines.readLine()) != null; ) {
      commands.run(line);
    }
    System.exit(0);
  }

  void run(String line) throws Exception {
    String[] words = line.split("\t");
    for (int i = 0; i < words.length; i++) {
      for (Map.Entry<String, SendResult> one : sent.entrySet()) {
        words[i] = words[i].replace("{id:" + one.getKey() + "}", one.getValue().getMsgId());
        words[i] = words[i].replace("{offsetId:" + one.getKey() + "}", one.getValue().getOffsetMsgId());
      }
    }
    ByteArrayOutputStream printed = new ByteArrayOutputStream();
    PrintStream screen = new PrintStream(printed, true, "UTF-8");
    PrintStream errors = System.err;
    System.setOut(screen);
    System.setErr(screen);
    try {
      if (words[0].startsWith("#")) {
        act(words);
      } else {
        List<String> command = new ArrayList<>(Arrays.asList(words));
        command.add("-n");
        command.add(names);
        forget();
        MQAdminStartup.main0(command.toArray(new String[0]), null);
      }
    } catch (Throwable error) {
      error.printStackTrace(screen);
    } finally {
      System.setOut(out);
      System.setErr(errors);
    }
    out.println(J.str(J.m("out", printed.toString("UTF-8"))));
    out.flush();
  }

  /** Commands keep their clients, which have ended with the first use: a process of its own has new ones each time. */
  static void forget() throws Exception {
    for (Field field : MQAdminStartup.class.getDeclaredFields()) {
      if (Collection.class.isAssignableFrom(field.getType())) {
        field.setAccessible(true);
        ((Collection<?>) field.get(null)).clear();
      }
    }
  }

  // ---------------------------------------------------------------- the history
  void act(String[] words) throws Exception {
    switch (words[0]) {
      case "#route": route(words[1]); break;
      case "#send": send(words); break;
      case "#consume": consume(words[1], words[2], Integer.parseInt(words[3])); break;
      case "#refuse": refuse(words[1], words[2], Integer.parseInt(words[3])); break;
      case "#pause": Thread.sleep(Integer.parseInt(words[1]) * 1000L); break;
      case "#leave": members.remove(words[1]).shutdown(); break;
      case "#show": show(words[1]); break;
      case "#status": System.out.println(new TreeMap<>(admin().getConsumeStatus(words[2], words[1], ""))); break;
      case "#timespan": System.out.println(admin().queryConsumeTimeSpan(words[2], words[1]).size()); break;
      default: throw new IllegalArgumentException(words[0]);
    }
  }

  DefaultMQAdminExt admin() throws Exception {
    if (admin == null) {
      admin = new DefaultMQAdminExt(10_000);
      admin.setNamesrvAddr(names);
      admin.setInstanceName("admin");
      admin.start();
    }
    return admin;
  }

  void route(String topic) throws Exception {
    for (int i = 0; i < PATIENCE_SECONDS * 10; i++) {
      try {
        admin().examineTopicRouteInfo(topic);
        return;
      } catch (Exception missing) {
        Thread.sleep(100);
      }
    }
    throw new IllegalStateException("no route of " + topic);
  }

  void send(String[] words) throws Exception {
    if (producer == null) {
      producer = new DefaultMQProducer("Sellers");
      producer.setNamesrvAddr(names);
      producer.setInstanceName("seller");
      producer.start();
    }
    Message message = new Message(words[1], words[4], words[3], words[5].getBytes(StandardCharsets.UTF_8));
    int queue = Integer.parseInt(words[2]);
    SendResult result = producer.send(message, (queues, m, id) -> queues.get(queue), null);
    sent.put(words[3], result);
    System.out.println(result.getSendStatus() + " " + result.getMessageQueue().getQueueId() + " " + result.getQueueOffset());
  }

  DefaultMQPushConsumer member(String group, String topic) throws Exception {
    DefaultMQPushConsumer member = new DefaultMQPushConsumer(group);
    member.setNamesrvAddr(names);
    member.setInstanceName("member");
    member.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
    member.subscribe(topic, "*");
    members.put(group, member);
    return member;
  }

  void consume(String group, String topic, int count) throws Exception {
    CountDownLatch left = new CountDownLatch(count);
    DefaultMQPushConsumer member = member(group, topic);
    member.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
      for (int i = 0; i < messages.size(); i++) {
        left.countDown();
      }
      return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
    });
    member.start();
    settle(member, topic, left);
  }

  /** Refuses each message once; the copies that come back are consumed. */
  void refuse(String group, String topic, int count) throws Exception {
    CountDownLatch left = new CountDownLatch(2 * count);
    DefaultMQPushConsumer member = member(group, topic);
    member.setConsumeMessageBatchMaxSize(1);
    member.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
      left.countDown();
      context.setDelayLevelWhenNextConsume(1);
      boolean again = messages.get(0).getReconsumeTimes() > 0;
      return again ? ConsumeConcurrentlyStatus.CONSUME_SUCCESS : ConsumeConcurrentlyStatus.RECONSUME_LATER;
    });
    member.start();
    settle(member, topic, left);
  }

  void settle(DefaultMQPushConsumer member, String topic, CountDownLatch left) throws Exception {
    boolean done = left.await(PATIENCE_SECONDS, TimeUnit.SECONDS);
    Thread.sleep(500);
    member.getDefaultMQPushConsumerImpl().persistConsumerOffset();
    Thread.sleep(500);
    System.out.println(done ? "consumed" : "not consumed");
  }

  void show(String path) throws Exception {
    List<File> files = new ArrayList<>(Arrays.asList(new File(path)));
    for (int i = 0; i < files.size(); i++) {
      File one = files.get(i);
      if (one.isDirectory()) {
        File[] found = one.listFiles();
        Arrays.sort(found);
        files.addAll(Arrays.asList(found));
      } else {
        System.out.println(one.getName());
        System.out.println(new String(java.nio.file.Files.readAllBytes(one.toPath()), StandardCharsets.UTF_8));
      }
    }
  }
}
