import java.nio.charset.StandardCharsets;
import java.util.*;
import java.util.concurrent.*;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.ToIntFunction;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.consumer.*;
import org.apache.rocketmq.client.consumer.listener.*;
import org.apache.rocketmq.client.producer.*;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.*;
/*4*/import org.apache.rocketmq.common.protocol.heartbeat.MessageModel;
/*5*/import org.apache.rocketmq.remoting.protocol.heartbeat.MessageModel;
/*5*/import org.apache.rocketmq.remoting.RPCHook;

/** NAMES PREFIX JOURNEY...: what an unmodified client does at a broker, and what it sees there, as JSON lines. Journeys go side by side, each with
 *  topics and groups of its own that begin with PREFIX. Lines tagged /*4* / or /*5* / are for that generation of the client. */
public class ClientJourneys {
    static final int QUEUES = 4, SIDE_BY_SIDE = 5, PATIENCE_MS = 60_000, GRACE_MS = 2_000;
    static final long SUSPEND_MS = 2_000;
    final String names, name, topic, group;
    final List<Runnable> ends = new ArrayList<>();

    ClientJourneys(String names, String prefix, String name) { this.names = names; this.name = name; topic = prefix + name; group = prefix + name + "_group"; }

    public static void main(String[] a) throws Exception {
        ExecutorService pool = Executors.newFixedThreadPool(SIDE_BY_SIDE);
        for (int i = 2; i < a.length; i++) {
            ClientJourneys journey = new ClientJourneys(a[0], a[1], a[i]);
            pool.execute(journey::all);
        }
        pool.shutdown();
        pool.awaitTermination(900, TimeUnit.SECONDS);
        System.exit(0);
    }

    void all() {
        try { getClass().getDeclaredMethod(name).invoke(this); }
        catch (java.lang.reflect.InvocationTargetException e) { say("failed", "why", "" + e.getCause()); e.getCause().printStackTrace(); }
        catch (Throwable e) { say("failed", "why", "" + e); }
        for (Runnable end : ends) try { end.run(); } catch (Throwable e) { say("failed", "why", "at its end: " + e); }
        say("end");
    }

    // ---------------------------------------------------------------- what is said
    void say(String what, Object... pairs) {
        Map<String, Object> line = J.m(pairs);
        line.put("journey", name);
        line.put("what", what);
        synchronized (System.out) { System.out.println(J.str(line)); System.out.flush(); }
    }
    static byte[] bytes(String text) { return text.getBytes(StandardCharsets.UTF_8); }
    Map<String, Object> message(MessageExt m) {
        return J.m("topic", m.getTopic(), "queueId", m.getQueueId(), "queueOffset", m.getQueueOffset(), "keys", m.getKeys(), "tags", m.getTags(), "reconsumeTimes", m.getReconsumeTimes(),
            "body", m.getBody() == null ? "" : m.getBody().length > 100 ? J.sha(m.getBody()) : new String(m.getBody(), StandardCharsets.UTF_8), "sysFlag", m.getSysFlag(), "flag", m.getFlag(),
            "preparedTransactionOffset", m.getPreparedTransactionOffset(), "storeSize", m.getStoreSize(), "properties", new TreeMap<>(m.getProperties()),
            "bornHost", m.getBornHostString(), "hasOffsetId", m instanceof MessageClientExt && ((MessageClientExt) m).getOffsetMsgId().length() == 32);
    }
    void say(String what, String member, MessageExt m, Object... more) {
        Map<String, Object> line = message(m);
        line.putAll(J.m(more));
        line.put("member", member);
        say(what, line.entrySet().stream().flatMap(e -> java.util.stream.Stream.of(e.getKey(), e.getValue())).toArray());
    }
    void sent(String label, SendResult r) {
        say("sent", "label", label, "status", r.getSendStatus().name(), "queueId", r.getMessageQueue().getQueueId(), "queueOffset", r.getQueueOffset(), "brokerName", r.getMessageQueue().getBrokerName(),
            "ids", r.getMsgId().split(",").length, "hasOffsetId", r.getOffsetMsgId() != null, "region", r.getRegionId(), "trace", r.isTraceOn());
    }

    // ---------------------------------------------------------------- clients
    DefaultMQProducer ready(DefaultMQProducer p) throws Exception {
        p.setNamesrvAddr(names);
        p.setInstanceName(group + "-producer" + ends.size());
        p.setDefaultTopicQueueNums(QUEUES);
        p.setSendMsgTimeout(PATIENCE_MS);
        p.setMqClientApiTimeout(PATIENCE_MS);
        p.start();
        ends.add(p::shutdown);
        return p;
    }
    DefaultMQProducer producer() throws Exception { return ready(new DefaultMQProducer(group + "_p")); }
    DefaultMQPushConsumer consumer(String member) throws Exception {
        DefaultMQPushConsumer c = new DefaultMQPushConsumer(group);
        c.setNamesrvAddr(names);
        c.setInstanceName(group + "-" + member);
        c.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        c.setSuspendCurrentQueueTimeMillis(500);
        c.setPollNameServerInterval(2000);
        c.setMqClientApiTimeout(PATIENCE_MS);
        ends.add(c::shutdown);
        return c;
    }
    DefaultMQPullConsumer puller() throws Exception {
        DefaultMQPullConsumer c = new DefaultMQPullConsumer(group);
        c.setNamesrvAddr(names);
        c.setInstanceName(group + "-pull" + ends.size());
        c.setBrokerSuspendMaxTimeMillis(SUSPEND_MS);
        c.setMqClientApiTimeout(PATIENCE_MS);
        c.start();
        ends.add(c::shutdown);
        return c;
    }
    static MessageQueue queue(List<MessageQueue> queues, Message m, Object id) { return queues.stream().filter(q -> id.equals(q.getQueueId())).findFirst().get(); }
    Message message(int i) {
        Message m = new Message(topic, "Tag" + "ABC".charAt(i % 3), "k" + i, bytes("body " + i));
        m.putUserProperty("n", "" + i);
        return m;
    }
    /** Sends messages to the queues in turn. */
    DefaultMQProducer fill(int count) throws Exception {
        DefaultMQProducer p = producer();
        for (int i = 0; i < count; i++) p.send(message(i), ClientJourneys::queue, i % QUEUES);
        return p;
    }

    /** Counts deliveries. A delivery beyond those that are due is waited for, too. */
    final class Due {
        final CountDownLatch left;
        Due(int count) { left = new CountDownLatch(count); }
        void await() throws Exception { if (!left.await(PATIENCE_MS, TimeUnit.MILLISECONDS)) say("missing", "deliveries", left.getCount()); Thread.sleep(GRACE_MS); }
    }
    /** Consumes concurrently; ``fails`` says how often a message is refused before it is taken. */
    void concurrently(DefaultMQPushConsumer c, String member, Due due, ToIntFunction<MessageExt> fails) {
        c.registerMessageListener((MessageListenerConcurrently) (ms, x) -> {
            boolean ok = true;
            for (MessageExt m : ms) {
                boolean taken = m.getReconsumeTimes() >= fails.applyAsInt(m);
                say("got", member, m, "taken", taken, "waited", System.currentTimeMillis() - m.getBornTimestamp(), "queueTopic", x.getMessageQueue().getTopic());
                ok &= taken;
                due.left.countDown();
            }
            x.setDelayLevelWhenNextConsume(1);
            return ok ? ConsumeConcurrentlyStatus.CONSUME_SUCCESS : ConsumeConcurrentlyStatus.RECONSUME_LATER;
        });
    }
    void push(String member, int count, MessageSelector selector, ToIntFunction<MessageExt> fails) throws Exception {
        Due due = new Due(count);
        DefaultMQPushConsumer c = consumer(member);
        c.subscribe(topic, selector);
        concurrently(c, member, due, fails);
        c.start();
        due.await();
    }
    void stored(DefaultMQPullConsumer c, String topic, int count) throws Exception {
        Set<MessageQueue> queues = new TreeSet<>();
        for (long end = System.currentTimeMillis() + PATIENCE_MS; queues.isEmpty() && System.currentTimeMillis() < end; Thread.sleep(200))
            try { queues.addAll(c.fetchSubscribeMessageQueues(topic)); } catch (org.apache.rocketmq.client.exception.MQClientException e) { /* not yet */ }
        int found = 0;
        for (MessageQueue q : queues)
            for (PullResult r = c.pull(q, "*", 0, 32); r.getPullStatus() == PullStatus.FOUND; r = c.pull(q, "*", r.getNextBeginOffset(), 32))
                for (MessageExt m : r.getMsgFoundList()) { say("stored", "pull", m); found++; }
        if (found < count) say("missing", "stored", count - found);
    }

    // ---------------------------------------------------------------- journeys
    void send() throws Exception {
        DefaultMQProducer p = producer();
        sent("first", p.send(message(0), ClientJourneys::queue, 0));
        CountDownLatch answered = new CountDownLatch(1);
        p.send(message(1), ClientJourneys::queue, 1, new SendCallback() {
            public void onSuccess(SendResult r) { sent("async", r); answered.countDown(); }
            public void onException(Throwable e) { say("failed", "why", "" + e); answered.countDown(); }
        });
        answered.await(PATIENCE_MS, TimeUnit.MILLISECONDS);
        p.sendOneway(message(2), ClientJourneys::queue, 2);
        MessageQueue last = p.fetchPublishMessageQueues(topic).stream().filter(q -> q.getQueueId() == 3).findFirst().get();
        sent("batch", p.send(Arrays.asList(message(3), message(4), message(5)), last));
        Message big = message(6);
        big.setBody(new byte[10_000]);
        sent("compressed", p.send(big, ClientJourneys::queue, 0));
        Message flagged = message(7);
        flagged.setFlag(5);
        flagged.setBuyerId("buyer");
        flagged.putUserProperty("übung", "日本");
        sent("flagged", p.send(flagged, ClientJourneys::queue, 1));
        int[] each = new int[QUEUES];
        for (int i = 8; i < 8 + 2 * QUEUES; i++) each[p.send(new Message(topic, bytes("any queue"))).getMessageQueue().getQueueId()]++;
        say("spread", "each", Arrays.toString(each));
        Thread.sleep(1000);
        stored(puller(), topic, 8 + 2 * QUEUES);
    }
    void push() throws Exception { fill(12); push("one", 12, MessageSelector.byTag("*"), m -> 0); }
    void tag() throws Exception { fill(12); push("one", 8, MessageSelector.byTag("TagA || TagB"), m -> 0); }
    void sql() throws Exception { fill(12); push("one", 4, MessageSelector.bySql("n > 5 AND TAGS <> 'TagC'"), m -> 0); }
/*5*/    void pop() throws Exception { pops(12, m -> 0); }
/*5*/    void unacked() throws Exception { pops(5, m -> m.getKeys().equals("k1") ? 1 : 0); }
/*5*/    /** Pops messages, as an administrator has it: the broker decides which queues a member takes. */
/*5*/    void pops(int count, ToIntFunction<MessageExt> fails) throws Exception {
/*5*/        DefaultMQProducer p = fill(count == 12 ? 12 : 4);
/*5*/        org.apache.rocketmq.client.impl.factory.MQClientInstance factory = p.getDefaultMQProducerImpl().getMqClientFactory();
/*5*/        factory.getMQClientAPIImpl().setMessageRequestMode(factory.findBrokerAddressInPublish(p.fetchPublishMessageQueues(topic).get(0).getBrokerName()),
/*5*/            topic, group, org.apache.rocketmq.common.message.MessageRequestMode.POP, 0, PATIENCE_MS);
/*5*/        Due due = new Due(count);
/*5*/        DefaultMQPushConsumer c = consumer("one");
/*5*/        c.setClientRebalance(false);
/*5*/        c.setConsumeMessageBatchMaxSize(1);
/*5*/        c.subscribe(topic, "*");
/*5*/        concurrently(c, "one", due, fails);
/*5*/        c.start();
/*5*/        due.await();
/*5*/    }
    void retry() throws Exception { fill(4); push("one", 10, MessageSelector.byTag("*"), m -> m.getKeys().equals("k0") ? 0 : 2); }
    void dead() throws Exception {
        fill(2);
        Due due = new Due(4);
        DefaultMQPushConsumer c = consumer("one");
        c.setMaxReconsumeTimes(1);
        c.subscribe(topic, "*");
        concurrently(c, "one", due, m -> 9);
        c.start();
        due.await();
        stored(puller(), "%DLQ%" + group, 2);
    }
    void orderly() throws Exception { inOrder(12, 0); }
    void suspended() throws Exception { inOrder(8, 2); }
    void inOrder(int count, int fails) throws Exception {
        fill(count);
        Due due = new Due(count + fails);
        AtomicInteger failed = new AtomicInteger();
        DefaultMQPushConsumer c = consumer("one");
        c.setConsumeMessageBatchMaxSize(1);
        c.subscribe(topic, "*");
        c.registerMessageListener((MessageListenerOrderly) (ms, x) -> {
            MessageExt m = ms.get(0);
            boolean taken = !m.getKeys().equals("k1") || failed.getAndIncrement() >= fails;
            say("got", "one", m, "taken", taken, "queueTopic", x.getMessageQueue().getTopic());
            due.left.countDown();
            return taken ? ConsumeOrderlyStatus.SUCCESS : ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT;
        });
        c.start();
        due.await();
    }
    void broadcast() throws Exception {
        fill(8);
        Due due = new Due(16);
        for (String member : new String[] {"one", "two"}) {
            DefaultMQPushConsumer c = consumer(member);
            c.setMessageModel(MessageModel.BROADCASTING);
            c.subscribe(topic, "*");
            concurrently(c, member, due, m -> 0);
            c.start();
        }
        due.await();
    }
    void delay() throws Exception {
        DefaultMQProducer p = producer();
        for (int i = 0; i < 2; i++) {
            Message m = message(i);
            m.setDelayTimeLevel(i + 1);
            sent("delayed", p.send(m, ClientJourneys::queue, i));
        }
        push("one", 2, MessageSelector.byTag("*"), m -> 0);
    }
/*5*/    void timer() throws Exception {
/*5*/        DefaultMQProducer p = producer();
/*5*/        Message later = message(0), at = message(1);
/*5*/        later.setDelayTimeMs(3_000);
/*5*/        sent("timed", p.send(later, ClientJourneys::queue, 0));
/*5*/        at.setDeliverTimeMs(System.currentTimeMillis() + 4_000);
/*5*/        sent("timed", p.send(at, ClientJourneys::queue, 1));
/*5*/        push("one", 2, MessageSelector.byTag("*"), m -> 0);
/*5*/    }
    void transaction() throws Exception {
        TransactionMQProducer p = new TransactionMQProducer(group + "_p");
        p.setTransactionListener(new TransactionListener() {
            public LocalTransactionState executeLocalTransaction(Message m, Object arg) { return LocalTransactionState.valueOf((String) arg); }
            public LocalTransactionState checkLocalTransaction(MessageExt m) {
                say("asked", "one", m, "hasTransactionId", m.getTransactionId() != null && m.getTransactionId().equals(m.getProperty("UNIQ_KEY")));
                return m.getKeys().equals("k2") ? LocalTransactionState.COMMIT_MESSAGE : LocalTransactionState.ROLLBACK_MESSAGE;
            }
        });
        ready(p);
        String[] decisions = {"COMMIT_MESSAGE", "ROLLBACK_MESSAGE", "UNKNOW", "UNKNOW"};
        p.setDefaultTopicQueueNums(1);
        for (int i = 0; i < decisions.length; i++) {
            TransactionSendResult r = p.sendMessageInTransaction(message(i), decisions[i]);
            say("half", "label", decisions[i], "status", r.getSendStatus().name(), "state", r.getLocalTransactionState().name(), "hasTransactionId", r.getTransactionId() != null);
        }
        push("one", 2, MessageSelector.byTag("*"), m -> 0);
        Thread.sleep(5000);
    }
    void query() throws Exception {
        DefaultMQProducer p = producer();
        SendResult[] results = new SendResult[3];
        for (int i = 0; i < 3; i++) { Message m = message(i); m.setKeys("same k" + i); results[i] = p.send(m, ClientJourneys::queue, 0); }
        Thread.sleep(2000);
        MessageQueue q = results[0].getMessageQueue();
        long now = System.currentTimeMillis();
        say("bounds", "max", p.maxOffset(q), "min", p.minOffset(q), "first", p.searchOffset(q, 0), "late", p.searchOffset(q, now + 60_000), "hasEarliest", Math.abs(p.earliestMsgStoreTime(q) - now) < 60_000);
        for (String key : new String[] {"same", "k1"})
            for (MessageExt m : sorted(p.queryMessage(topic, key, 10, 0, now + 60_000).getMessageList())) say("queried", key, m);
        say("viewed", "unique", p.viewMessage(topic, results[1].getMsgId()));
        say("viewed", "offset", p.viewMessage(topic, results[2].getOffsetMsgId()));
        try { say("queried", "nothing", p.queryMessage(topic, "no such key", 10, 0, now).getMessageList().get(0)); }
        catch (org.apache.rocketmq.client.exception.MQClientException e) { say("refused", "code", e.getResponseCode()); }
    }
    static List<MessageExt> sorted(List<MessageExt> l) { List<MessageExt> s = new ArrayList<>(l); s.sort(Comparator.comparing(m -> m.getQueueId() * 1000 + m.getQueueOffset())); return s; }
    void pull() throws Exception {
        fill(12);
        DefaultMQPullConsumer c = puller();
        MessageQueue first = null;
        for (MessageQueue q : new TreeSet<>(c.fetchSubscribeMessageQueues(topic))) {
            if (first == null) first = q;
            pulled("before", c, q, c.fetchConsumeOffset(q, false));
            PullResult r = c.pull(q, "TagA", 0, 32);
            pulled(r.getPullStatus().name(), c, q, r.getNextBeginOffset());
            if (r.getPullStatus() == PullStatus.FOUND) for (MessageExt m : r.getMsgFoundList()) say("got", "pull", m);
            c.updateConsumeOffset(q, r.getNextBeginOffset());
            c.getOffsetStore().persist(q);
        }
        for (long offset : new long[] {0, 3, 100}) { // there are three messages in the queue
            PullResult r = c.pull(first, "*", offset, 2);
            say("pulled", "at", offset, "status", r.getPullStatus().name(), "next", r.getNextBeginOffset(), "min", r.getMinOffset(), "max", r.getMaxOffset(), "found", r.getMsgFoundList() == null ? 0 : r.getMsgFoundList().size());
        }
        long begin = System.currentTimeMillis();
        PullResult r = c.pullBlockIfNotFound(first, "*", 3, 32);
        say("parked", "status", r.getPullStatus().name(), "next", r.getNextBeginOffset(), "waited", System.currentTimeMillis() - begin);
    }
    void pulled(String status, DefaultMQPullConsumer c, MessageQueue q, long offset) { say("progress", "status", status, "queueId", q.getQueueId(), "offset", offset); }
    void lite() throws Exception {
        fill(12);
        DefaultLitePullConsumer c = litePuller();
        c.subscribe(topic, "*");
        c.start();
        poll(c, 12);
    }
    void assign() throws Exception {
        fill(12);
        DefaultLitePullConsumer c = litePuller();
        c.setAutoCommit(false);
        c.start();
        Collection<MessageQueue> queues = new TreeSet<>(c.fetchMessageQueues(topic));
        c.assign(queues);
        for (MessageQueue q : queues) c.seek(q, q.getQueueId() == 0 ? 1 : 0);
        poll(c, 11);
/*4*/        c.commitSync();
/*5*/        c.commit();
        Thread.sleep(500);
        for (MessageQueue q : queues) say("progress", "queueId", q.getQueueId(), "time", c.offsetForTimestamp(q, 0L), "offset", c.committed(q));
        for (MessageQueue q : queues) c.seekToEnd(q);
        producer().send(message(12), ClientJourneys::queue, 0);
        poll(c, 1);
    }
    DefaultLitePullConsumer litePuller() {
        DefaultLitePullConsumer c = new DefaultLitePullConsumer(group);
        c.setNamesrvAddr(names);
        c.setInstanceName(group + "-lite");
        c.setMqClientApiTimeout(PATIENCE_MS);
        c.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        ends.add(c::shutdown);
        return c;
    }
    void poll(DefaultLitePullConsumer c, int count) {
        long end = System.currentTimeMillis() + PATIENCE_MS;
        int got = 0;
        while (got < count && System.currentTimeMillis() < end) for (MessageExt m : c.poll(500)) { say("got", "lite", m); got++; }
        for (MessageExt m : c.poll(GRACE_MS)) say("got", "lite", m);
        if (got < count) say("missing", "deliveries", count - got);
    }
    void reply() throws Exception {
        DefaultMQProducer asker = fill(1), answerer = producer();
        Due due = new Due(3);
        DefaultMQPushConsumer c = consumer("one");
        c.subscribe(topic, "*");
        c.registerMessageListener((MessageListenerConcurrently) (ms, x) -> {
            for (MessageExt m : ms) {
                say("got", "one", m);
                due.left.countDown();
                if (m.getProperty("REPLY_TO_CLIENT") != null)
                    try { sent("reply", answerer.send(MessageUtil.createReplyMessage(m, bytes("answer to " + m.getKeys())), PATIENCE_MS)); } catch (Exception e) { say("failed", "why", "" + e); }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        c.start();
        Thread.sleep(2000); // a broker knows whom to answer by heartbeats
        for (int i = 1; i < 3; i++) {
            String answer;
            try { answer = new String(asker.request(message(i), ClientJourneys::queue, i, 30_000).getBody(), StandardCharsets.UTF_8); }
            catch (org.apache.rocketmq.client.exception.RequestTimeoutException e) { answer = "gave up"; } // 5.3.1 to 5.3.3 do as soon as the request is sent: apache/rocketmq#9319
            say("answered", "body", answer);
        }
        due.await();
    }
    void trace() throws Exception {
/*4*/        DefaultMQProducer p = ready(new DefaultMQProducer(group + "_p", true));
/*5*/        DefaultMQProducer p = ready(new DefaultMQProducer(group + "_p", (RPCHook) null, true, null));
        SendResult r = p.send(message(0), ClientJourneys::queue, 0);
        sent("traced", r);
        DefaultMQPullConsumer c = puller();
        Map<String, Object> found = null;
        for (long end = System.currentTimeMillis() + PATIENCE_MS; found == null && System.currentTimeMillis() < end; Thread.sleep(500)) found = traced(c, r.getMsgId());
        say("trace", "fields", found);
    }
    Map<String, Object> traced(DefaultMQPullConsumer c, String id) throws Exception {
        Set<MessageQueue> queues;
        try { queues = c.fetchSubscribeMessageQueues("RMQ_SYS_TRACE_TOPIC"); } catch (org.apache.rocketmq.client.exception.MQClientException e) { return null; }
        for (MessageQueue q : queues)
            for (PullResult r = c.pull(q, "*", 0, 32); r.getPullStatus() == PullStatus.FOUND; r = c.pull(q, "*", r.getNextBeginOffset(), 32))
                for (MessageExt m : r.getMsgFoundList())
                    if (m.getKeys().contains(id)) {
                        String[] fields = new String(m.getBody(), StandardCharsets.UTF_8).split("\u0002")[0].split("\u0001");
                        return J.m("kind", fields[0], "region", fields[2], "topic", fields[4], "tags", fields[6], "keys", fields[7], "count", fields.length, "topicOfTrace", m.getTopic());
                    }
        return null;
    }
    void two() throws Exception {
        fill(12);
        Due first = new Due(12), all = new Due(24);
        DefaultMQPushConsumer[] members = new DefaultMQPushConsumer[2];
        for (int i = 0; i < 2; i++) {
            members[i] = consumer("member" + i);
            members[i].subscribe(topic, "*");
            concurrently(members[i], "any", all, m -> { first.left.countDown(); return 0; });
            if (i == 1) { // what is not committed when the other comes is delivered again
                first.await();
                committed(members[0], 12);
            }
            members[i].start();
            settled(i == 0 ? "alone" : "joined", members, i == 0 ? new int[] {4} : new int[] {2, 2});
        }
        DefaultMQProducer p = producer();
        for (int i = 12; i < 24; i++) p.send(message(i), ClientJourneys::queue, i % QUEUES);
        all.await();
        members[0].shutdown();
        settled("left", new DefaultMQPushConsumer[] {members[1]}, new int[] {4});
    }
    /** Commits the progress of a member when it has come so far: a message counts as taken before its listener has returned. */
    void committed(DefaultMQPushConsumer member, int wanted) throws Exception {
        org.apache.rocketmq.client.impl.consumer.DefaultMQPushConsumerImpl inside = member.getDefaultMQPushConsumerImpl();
        long end = System.currentTimeMillis() + PATIENCE_MS, progress = 0;
        while (progress != wanted && System.currentTimeMillis() < end) {
            Thread.sleep(20);
            progress = 0;
            for (MessageQueue q : inside.getRebalanceImpl().getProcessQueueTable().keySet())
                if (q.getTopic().equals(topic)) progress += Math.max(0, inside.getOffsetStore().readOffset(q, org.apache.rocketmq.client.consumer.store.ReadOffsetType.READ_FROM_MEMORY));
        }
        if (progress != wanted) say("missing", "progress", progress);
        inside.persistConsumerOffset();
        Thread.sleep(GRACE_MS); // it is sent, and not answered
    }
    /** Waits until each member has so many queues of the topic, of which there are four; says how long that took. */
    void settled(String label, DefaultMQPushConsumer[] members, int[] wanted) throws Exception {
        long begin = System.currentTimeMillis();
        for (;;) {
            List<Integer> have = new ArrayList<>();
            Set<Integer> queues = new TreeSet<>();
            for (int i = 0; i < wanted.length; i++) {
                List<Integer> mine = members[i].getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable().keySet().stream().filter(q -> q.getTopic().equals(topic)).map(MessageQueue::getQueueId).collect(Collectors.toList());
                have.add(mine.size());
                queues.addAll(mine);
            }
            long waited = System.currentTimeMillis() - begin;
            boolean is = have.equals(Arrays.stream(wanted).boxed().collect(Collectors.toList())) && queues.size() == QUEUES;
            if (is || waited > PATIENCE_MS) { say("settled", "label", label, "queues", have, "waited", waited); return; }
            Thread.sleep(20);
        }
    }
}
