import java.io.File;
import java.io.FileOutputStream;
import java.io.OutputStreamWriter;
import java.io.Writer;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.*;
import java.util.*;
import org.apache.rocketmq.common.*;
import org.apache.rocketmq.common.message.*;
import org.apache.rocketmq.remoting.Configuration;
import org.apache.rocketmq.store.*;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.plugin.MessageStorePluginContext;
import org.apache.rocketmq.store.stats.BrokerStatsManager;
import org.apache.rocketmq.tieredstore.TieredMessageStore;
import org.apache.rocketmq.tieredstore.file.FlatMessageFile;

/** STORE TIER OUT.json cfg.json: what the real tiered store answers about a tier alone, and about the store and its tier as one. */
public class TierTruth {

    public static void main(String[] a) throws Exception {
        int status = 1;
        try { run(a); status = 0; } catch (Throwable t) { t.printStackTrace(); System.err.flush(); }
        Runtime.getRuntime().halt(status);
    }
    static void run(String[] a) throws Exception {
        Map<String, Object> cfg = Truth5.castMap(Truth5.parse(Truth5.read(new File(a[3]))));
        Path tmp = Files.createTempDirectory(Paths.get(System.getProperty("java.io.tmpdir")), "tier-");
        Map<String, Object> r = new TreeMap<>();
        r.put("read_by", Truth5.readBy);
        r.put("config", cfg);
        r.put("clean_shutdown", !new File(a[0], "abort").exists());
        tier(r, opened(a, cfg, tmp.resolve("a"), false));
        r.put("asOne", asOne(opened(a, cfg, tmp.resolve("b"), true)));
        new ProcessBuilder("rm", "-rf", tmp.toString()).start().waitFor();
        try (Writer w = new OutputStreamWriter(new FileOutputStream(a[2]), StandardCharsets.UTF_8)) { Truth5.Js.write(w, r, 0); w.write("\n"); }
    }

    /** A copy of both, opened. Without local: the store below is empty, so that every answer is of the tier. */
    static TieredMessageStore opened(String[] a, Map<String, Object> cfg, Path to, boolean local) throws Exception {
        Files.createDirectories(to);
        File store = Truth5.copy(new File(a[0]), to.resolve("store").toFile()), tier = Truth5.copy(new File(a[1]), to.resolve("tier").toFile());
        Properties p = new Properties();
        for (Map.Entry<String, Object> e : cfg.entrySet()) p.setProperty(e.getKey(), "" + e.getValue());
        p.setProperty("storePathRootDir", store.getPath());
        p.setProperty("tieredStoreFilePath", tier.getPath());
        p.setProperty("tieredStoreFileReservedTime", "2000000"); // nothing is too old
        p.setProperty("tieredStorageLevel", local ? "NOT_IN_DISK" : "FORCE");
        p.remove("storePathCommitLog");
        BrokerConfig bc = new BrokerConfig();
        MixAll.properties2Object(p, bc);
        File root = local ? store : new File(to.toFile(), "empty");
        MessageStoreConfig mc = Truth5.msc(cfg, root);
        mc.setStorePathRootDir(root.getPath());
        mc.setStorePathCommitLog(root.getPath() + "/commitlog");
        mc.setDeleteWhen("99");
        mc.setFileReservedTime(2000000);
        Configuration configuration = new Configuration(org.apache.rocketmq.logging.org.slf4j.LoggerFactory.getLogger("tier"), bc, mc);
        configuration.registerConfig(p);
        DefaultMessageStore next = Truth5.open(root, mc, cfg);
        if (!next.load()) throw new IllegalStateException("the store does not load");
        next.start();
        MessageStorePluginContext context = new MessageStorePluginContext(mc, new BrokerStatsManager("tier", false), (topic, queueId, logicOffset, tagsCode, ts, bm, pr) -> { }, bc, configuration);
        TieredMessageStore s = new TieredMessageStore(context, next);
        if (!s.getFlatFileStore().load()) throw new IllegalStateException("the tier does not load"); // load() of s would go on copying messages
        s.getIndexService().start();
        Thread.sleep(500);
        return s;
    }

    static void tier(Map<String, Object> r, TieredMessageStore s) throws Exception {
        List<Object> messages = new ArrayList<>();
        Map<String, Object> queues = new TreeMap<>();
        Set<String> asked = new LinkedHashSet<>();
        List<Object> byTime = new ArrayList<>();
        for (FlatMessageFile f : files(s)) {
            MessageQueue mq = f.getMessageQueue();
            long min = f.getConsumeQueueMinOffset(), max = f.getConsumeQueueCommitOffset();
            List<Object> units = new ArrayList<>();
            TreeSet<Long> times = new TreeSet<>();
            for (long o = min; o < max; o++) {
                ByteBuffer unit = f.getConsumeQueueAsync(o).join();
                units.add(Arrays.asList(unit.getLong(0), unit.getInt(8), unit.getLong(12)));
                GetMessageResult g = s.getMessage("truth", mq.getTopic(), mq.getQueueId(), o, 1, null);
                if (g.getMessageCount() != 1) throw new IllegalStateException(mq + " " + o + " " + g.getStatus());
                byte[] record = bytes(g.getMessageMapedList().get(0).getByteBuffer());
                if (unit.getLong(0) != ByteBuffer.wrap(record).getLong(28)) throw new IllegalStateException(mq + " " + o + ": another offset in its unit");
                Map<String, Object> m = Truth5.message(ByteBuffer.wrap(record), unit.getLong(0), 0, record.length, ByteBuffer.wrap(record).getInt(4));
                m.put("tagsCodeInQueue", unit.getLong(12));
                messages.add(m);
                times.add((Long) m.get("storeTimestamp"));
                asked.add(mq.getTopic() + "\n" + m.get("uniqKey"));
                if (m.get("keys") != null) for (String k : ((String) m.get("keys")).split(" ")) asked.add(mq.getTopic() + "\n" + k);
            }
            Map<String, Object> q = Truth5.castMap(queues.computeIfAbsent(mq.getTopic(), k -> new TreeMap<String, Object>()));
            q.put("" + mq.getQueueId(), J.m("minOffset", min, "maxOffset", max, "units", units, "logMin", f.getCommitLogMinOffset(), "logMax", f.getCommitLogCommitOffset()));
            if (times.isEmpty()) continue;
            for (long t : Arrays.asList(times.first() - 1, times.first(), (times.first() + times.last()) / 2, times.last(), times.last() + 1))
                for (BoundaryType b : BoundaryType.values())
                    byTime.add(J.m("topic", mq.getTopic(), "queueId", mq.getQueueId(), "timestamp", t, "boundary", b.name(), "offset", s.getOffsetInQueueByTime(mq.getTopic(), mq.getQueueId(), t, b)));
        }
        List<Object> found = new ArrayList<>();
        int i = 0;
        for (String one : asked) {
            if (i++ % 7 != 0) continue; // a sample
            String[] x = one.split("\n");
            QueryMessageResult g = s.queryMessageAsync(x[0], x[1], 64, 0, Long.MAX_VALUE - 1).join();
            TreeSet<String> places = new TreeSet<>();
            for (SelectMappedBufferResult b : g.getMessageMapedList()) { ByteBuffer z = ByteBuffer.wrap(bytes(b.getByteBuffer())); places.add(z.getInt(12) + "@" + z.getLong(20)); }
            found.add(J.m("topic", x[0], "key", x[1], "places", new ArrayList<>(places)));
        }
        r.put("messages", messages);
        r.put("queues", queues);
        r.put("queryMessage", found);
        r.put("offsetByTime", byTime);
    }

    static Map<String, Object> asOne(TieredMessageStore s) throws Exception {
        Map<String, Object> r = new TreeMap<>();
        MessageStore next = s.getDefaultStore();
        TreeMap<String, TreeSet<Integer>> all = new TreeMap<>();
        for (FlatMessageFile f : files(s)) all.computeIfAbsent(f.getMessageQueue().getTopic(), k -> new TreeSet<>()).add(f.getMessageQueue().getQueueId());
        for (Map.Entry<String, ? extends Map<Integer, ?>> e : ((DefaultMessageStore) next).getConsumeQueueTable().entrySet())
            if (!org.apache.rocketmq.common.topic.TopicValidator.isSystemTopic(e.getKey())) all.computeIfAbsent(e.getKey(), k -> new TreeSet<>()).addAll(e.getValue().keySet());
        for (Map.Entry<String, TreeSet<Integer>> e : all.entrySet()) for (int q : e.getValue()) {
            String t = e.getKey();
            long min = s.getMinOffsetInQueue(t, q), max = s.getMaxOffsetInQueue(t, q);
            List<Object> got = new ArrayList<>();
            for (long o = min; o < max; o++) {
                GetMessageResult g = s.getMessage("truth", t, q, o, 1, null);
                if (g.getMessageCount() != 1) { got.add(Arrays.asList(o, g.getStatus().name())); continue; }
                ByteBuffer b = ByteBuffer.wrap(bytes(g.getMessageMapedList().get(0).getByteBuffer()));
                MessageExt m = MessageDecoder.decode(b, true, true, false);
                got.add(Arrays.asList(m.getQueueOffset(), m.getProperty("UNIQ_KEY"), Truth5.sha(m.getBody())));
                g.release();
            }
            Map<String, Object> of = Truth5.castMap(r.computeIfAbsent(t, k -> new TreeMap<String, Object>()));
            of.put("" + q, J.m("minOffset", min, "maxOffset", max, "localMin", next.getMinOffsetInQueue(t, q), "messages", got));
        }
        return r;
    }

    static byte[] bytes(ByteBuffer b) { ByteBuffer d = b.duplicate(); byte[] r = new byte[d.getInt(d.position())]; d.get(r); return r; }

    static List<FlatMessageFile> files(TieredMessageStore s) {
        TreeMap<String, FlatMessageFile> r = new TreeMap<>();
        for (FlatMessageFile f : s.getFlatFileStore().deepCopyFlatFileToList()) r.put(f.getMessageQueue().getTopic() + "\n" + String.format("%06d", f.getMessageQueue().getQueueId()), f);
        return new ArrayList<>(r.values());
    }
}
