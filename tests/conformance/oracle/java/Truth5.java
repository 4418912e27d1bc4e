import java.io.*;
import java.lang.reflect.*;
import java.net.*;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.*;
import java.security.MessageDigest;
import java.util.*;
import java.util.concurrent.*;
import org.apache.rocketmq.common.*;
import org.apache.rocketmq.common.message.*;
import org.apache.rocketmq.common.sysflag.MessageSysFlag;
import org.apache.rocketmq.remoting.protocol.filter.FilterAPI;
import org.apache.rocketmq.remoting.protocol.body.TopicConfigSerializeWrapper;
import org.apache.rocketmq.remoting.protocol.heartbeat.SubscriptionData;
import org.apache.rocketmq.store.*;
import org.apache.rocketmq.store.config.*;
import org.apache.rocketmq.store.index.*;
import org.apache.rocketmq.store.queue.*;
import org.apache.rocketmq.store.stats.BrokerStatsManager;
import org.apache.rocketmq.store.timer.*;
import org.rocksdb.*;

/** truth STORE_DIR OUT.json --config cfg.json [--queries q.json] [--set k=v]: what the real 5.x classes say about a store. */
public class Truth5 {
    static final int BLANK = -875286124;
    static String readBy = MQVersion.getVersionDesc(MQVersion.CURRENT_VERSION).toLowerCase().replace("v", "").replace('_', '.');

    public static void main(String[] a) throws Exception {
        try { main0(a); } catch (Throwable t) { t.printStackTrace(); System.err.flush(); Runtime.getRuntime().halt(1); }
    }
    static void main0(String[] a) throws Exception {
        int i = 0;
        if (a[0].equals("truth")) i = 1;
        File storeDir = new File(a[i++]);
        File out = new File(a[i++]);
        Map<String, Object> meta = new TreeMap<>();
        Map<String, Object> queries = null;
        boolean keep = false;
        for (; i < a.length; i++) {
            if (a[i].equals("--put")) { put = true; continue; }
            if (a[i].equals("--config")) {
                Map<String, Object> m = parse(read(new File(a[++i])));
                if (!(m.get("config") instanceof Map)) { Map<String, Object> w = new TreeMap<>(); w.put("config", m); m = w; }
                meta = m;
            } else if (a[i].equals("--queries")) queries = parse(read(new File(a[++i])));
            else if (a[i].equals("--keep")) keep = true;
            else queries = parse(read(new File(a[i])));
        }
        if (queries == null && meta.containsKey("getMessage")) queries = meta;
        Map<String, Object> r = run(storeDir, meta, queries, keep);
        try (Writer w = new OutputStreamWriter(new FileOutputStream(out), StandardCharsets.UTF_8)) { Js.write(w, r, 0); w.write("\n"); }
        System.out.println("truth " + out + " messages=" + ((List<?>) r.get("messages")).size() + " bytes=" + out.length());
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    static boolean put = false;

    /** the real store appends one message to every queue and must find it again */
    static void putProbe(DefaultMessageStore s, List<String[]> queues, Map<String, Object> out) throws Exception {
        List<Object> l = new ArrayList<>();
        for (String[] tq : queues) {
            String topic = tq[0]; int q = Integer.parseInt(tq[1]);
            if (topic.equals("SCHEDULE_TOPIC_XXXX") || topic.startsWith("%LMQ%")) continue;
            long expected = s.getMaxOffsetInQueue(topic, q);
            MessageExtBrokerInner m = new MessageExtBrokerInner();
            m.setTopic(topic); m.setQueueId(q); m.setBody("probe".getBytes()); m.setTags("Probe"); m.setKeys("probe-key");
            m.setBornHost(new java.net.InetSocketAddress("127.0.0.1", 1)); m.setStoreHost(new java.net.InetSocketAddress("127.0.0.1", 10911)); m.setBornTimestamp(1);
            m.setTagsCode("Probe".hashCode());
            m.setPropertiesString(MessageDecoder.messageProperties2String(m.getProperties()));
            PutMessageResult p = s.putMessage(m);
            Map<String, Object> x = map("topic", topic, "queueId", q, "expectedQueueOffset", expected, "status", p.getPutMessageStatus().name());
            if (p.isOk()) {
                x.put("queueOffset", p.getAppendMessageResult().getLogicsOffset()); x.put("commitLogOffset", p.getAppendMessageResult().getWroteOffset());
                for (int i = 0; i < 1000 && (s.dispatchBehindBytes() > 0 || s.getMaxOffsetInQueue(topic, q) <= expected); i++) Thread.sleep(5);
                GetMessageResult g = s.getMessage("truth", topic, q, expected, 1, null);
                x.put("readBack", g.getMessageCount() == 1 && g.getMessageMapedList().get(0).getByteBuffer().getLong(28) == p.getAppendMessageResult().getWroteOffset());
                QueryMessageResult k = s.queryMessage(topic, "probe-key", 4, 0, Long.MAX_VALUE);
                x.put("foundByKey", k.getMessageBufferList().size());
                g.release(); k.release();
            }
            l.add(x);
        }
        out.put("putProbe", l);
    }

    static Map<String, Object> run(File storeDir, Map<String, Object> meta, Map<String, Object> queries, boolean keep) throws Exception {
        Path tmp = Files.createTempDirectory(Paths.get(System.getProperty("java.io.tmpdir")), "truth5-");
        File A = copy(storeDir, new File(tmp.toFile(), "a"));
        File B = copy(storeDir, new File(tmp.toFile(), "b"));
        Map<String, Object> cfg = castMap(meta.get("config"));
        Map<String, Object> r = new TreeMap<>();
        for (String k : new String[] {"name", "purpose", "broker_version", "notes", "extra"}) if (meta.containsKey(k)) r.put(k, meta.get(k));
        if (!r.containsKey("name")) r.put("name", storeDir.getName());
        r.put("read_by", readBy);
        r.put("config", cfg);
        boolean clean = !new File(storeDir, "abort").exists();
        r.put("clean_shutdown", clean);
        MessageStoreConfig mscA = msc(cfg, A);
        statics(r, A, mscA, cfg);
        List<Map<String, Object>> messages = castList(r.get("messages"));
        if (clean) {
            dynamic(r, B, msc(cfg, B), cfg, queries, messages, true);
            fillTags(messages, castMap(r.get("queues")));
        } else {
            r.put("queues", rawQueues(A, mscA, cfg));
            fillTags(messages, castMap(r.get("queues")));
            Map<String, Object> after = new TreeMap<>();
            Map<String, Object> q2 = queries != null && queries.get("after_recovery") instanceof Map ? castMap(queries.get("after_recovery")) : queries;
            if (q2 != null && !q2.containsKey("getMessage")) q2 = null;
            dynamic(after, B, msc(cfg, B), cfg, q2, messages, false);
            r.put("after_recovery", after);
            r.put("min_phy", after.get("min_phy_raw"));
            r.put("max_phy", null);
            for (String k : new String[] {"queryMessage", "offsetByTime", "getMessage"}) r.put(k, new ArrayList<>());
        }
        if (!keep) { new ProcessBuilder("rm", "-rf", tmp.toString()).start().waitFor(); }
        return r;
    }

    static File copy(File from, File to) throws Exception {
        int rc = new ProcessBuilder("cp", "-a", "--sparse=always", from.getPath(), to.getPath()).inheritIO().start().waitFor();
        if (rc != 0) throw new IOException("cp failed");
        return to;
    }

    static MessageStoreConfig msc(Map<String, Object> cfg, File root) {
        MessageStoreConfig c = new MessageStoreConfig();
        c.setHaListenPort(0);
        Properties p = new Properties();
        for (Map.Entry<String, Object> e : cfg.entrySet()) p.setProperty(e.getKey(), String.valueOf(e.getValue()).replace("$ROOT", root.getPath()));
        MixAll.properties2Object(p, c);
        c.setStorePathRootDir(root.getPath());
        if (c.getStorePathCommitLog() == null || !cfg.containsKey("storePathCommitLog")) c.setStorePathCommitLog(root.getPath() + "/commitlog");
        return c;
    }

    static BrokerConfig bc(Map<String, Object> cfg) {
        BrokerConfig b = new BrokerConfig();
        Properties p = new Properties();
        for (Map.Entry<String, Object> e : cfg.entrySet()) p.setProperty(e.getKey(), String.valueOf(e.getValue()));
        MixAll.properties2Object(p, b);
        b.setEnableControllerMode(false);
        return b;
    }

    // ---------------------------------------------------------------- statics: files as they are on disk, no recovery
    static void statics(Map<String, Object> r, File root, MessageStoreConfig msc, Map<String, Object> cfg) throws Exception {
        List<Object> messages = new ArrayList<>(), blanks = new ArrayList<>();
        r.put("messages", messages);
        r.put("blanks", blanks);
        Map<String, Object> stop = walk(msc, Long.MAX_VALUE, messages, blanks, true);
        if (stop != null) r.put("walk_stopped", stop);
        File ck = new File(root, "checkpoint");
        Map<String, Object> c = new TreeMap<>();
        if (ck.exists()) checkpoint(c, ck);
        r.put("checkpoint", c);
        r.put("index_files", indexFiles(root, msc));
        r.put("configFiles", configFiles(root));
        File timer = new File(root, "timerwheel");
        if (timer.exists() || new File(root, "timerlog").exists()) r.put("timer", timer(root, msc));
        Map<String, Object> rdb = new TreeMap<>();
        rocks(root, root, rdb);
        if (!rdb.isEmpty()) r.put("rocksdb", rdb);
        Map<String, Object> comp = compaction(root, msc);
        if (comp != null) r.put("compaction", comp);
        File ep = new File(root, "epochFileCheckpoint");
        if (ep.exists()) {
            org.apache.rocketmq.store.ha.autoswitch.EpochFileCache efc = new org.apache.rocketmq.store.ha.autoswitch.EpochFileCache(ep.getPath());
            boolean ok = efc.initCacheFromFile();
            List<Object> l = new ArrayList<>();
            for (org.apache.rocketmq.remoting.protocol.EpochEntry e : efc.getAllEntries()) l.add(map("epoch", e.getEpoch(), "startOffset", e.getStartOffset(), "endOffset", e.getEndOffset()));
            r.put("epoch", map("loaded", ok, "entries", l));
        }
        // msgIds & uniqIds
        List<Object> ids = new ArrayList<>(), uids = new ArrayList<>();
        Set<String> seen = new HashSet<>();
        int n = 0;
        for (Object o : messages) {
            Map<String, Object> m = castMap(o);
            String id = (String) m.get("offsetMsgId");
            if (n++ % Math.max(1, messages.size() / 60) == 0) {
                MessageId mid = MessageDecoder.decodeMessageId(id);
                ids.add(map("offsetMsgId", id, "host", host(mid.getAddress()), "commitLogOffset", mid.getOffset()));
            }
            String u = (String) m.get("uniqKey");
            if (u != null && (u.length() == 32 || u.length() == 56) && u.matches("[0-9A-Fa-f]+") && seen.add(u) && uids.size() < 80) {
                try {
                    uids.add(map("uniqKey", u, "ip", MessageClientIDSetter.getIPStrFromID(u), "pid", MessageClientIDSetter.getPidFromID(u),
                        "timestamp", MessageClientIDSetter.getNearlyTimeFromID(u).getTime(), "counter", Integer.parseInt(u.substring(u.length() - 4), 16)));
                } catch (Throwable t) { uids.add(map("uniqKey", u, "error", t.toString())); }
            }
        }
        r.put("msgIds", ids);
        r.put("uniqIds", uids);
    }

    static List<File> logFiles(MessageStoreConfig msc) {
        List<File> l = new ArrayList<>();
        Set<String> dirs = new LinkedHashSet<>();
        String p = msc.getStorePathCommitLog();
        dirs.addAll(Arrays.asList(p.trim().split(MixAll.MULTI_PATH_SPLITTER)));
        if (msc.getReadOnlyCommitLogStorePaths() != null) dirs.addAll(Arrays.asList(msc.getReadOnlyCommitLogStorePaths().trim().split(MixAll.MULTI_PATH_SPLITTER)));
        for (String d : dirs) {
            File[] fs = new File(d).listFiles();
            if (fs != null) for (File f : fs) if (f.getName().matches("\\d{20}")) l.add(f);
        }
        l.sort(Comparator.comparing(File::getName));
        return l;
    }

    static Map<String, Object> walk(MessageStoreConfig msc, long limit, List<Object> messages, List<Object> blanks, boolean full) throws Exception {
        for (File f : logFiles(msc)) {
            long base = Long.parseLong(f.getName());
            ByteBuffer bb = ByteBuffer.wrap(Files.readAllBytes(f.toPath()));
            int pos = 0;
            while (pos + 8 <= bb.capacity()) {
                if (base + pos >= limit) return null;
                int size = bb.getInt(pos), magic = bb.getInt(pos + 4);
                if (size == 0 && magic == 0) return map("commitLogOffset", base + pos, "why", "zero");
                if (magic == BLANK) { blanks.add(map("commitLogOffset", base + pos, "size", size)); break; }
                if ((magic != MessageDecoder.MESSAGE_MAGIC_CODE && magic != MessageDecoder.MESSAGE_MAGIC_CODE_V2) || size <= 0 || pos + size > bb.capacity())
                    return map("commitLogOffset", base + pos, "why", "illegal size " + size + " magic " + Integer.toHexString(magic));
                messages.add(full ? message(bb, base, pos, size, magic) : (Object) (base + pos));
                pos += size;
            }
        }
        return null;
    }

    static Map<String, Object> message(ByteBuffer file, long base, int pos, int size, int magic) throws Exception {
        byte[] rec = new byte[size];
        System.arraycopy(file.array(), pos, rec, 0, size);
        Map<String, Object> m = new TreeMap<>();
        m.put("commitLogOffset", base + pos);
        m.put("storeSize", size);
        m.put("recordSha256", sha(rec));
        m.put("magic", "0x" + Integer.toHexString(magic));
        MessageExt raw = MessageDecoder.decode(ByteBuffer.wrap(rec), true, false, false);
        if (raw == null) { m.put("undecodable", true); return m; }
        MessageExt dec = MessageDecoder.decode(ByteBuffer.wrap(rec), true, true, false);
        if (raw.getCommitLogOffset() != base + pos) m.put("physicalOffsetInRecord", raw.getCommitLogOffset());
        m.put("topic", raw.getTopic());
        m.put("queueId", raw.getQueueId());
        m.put("queueOffset", raw.getQueueOffset());
        m.put("flag", raw.getFlag());
        m.put("sysFlag", raw.getSysFlag());
        m.put("bornTimestamp", raw.getBornTimestamp());
        m.put("bornHost", host(raw.getBornHost()));
        m.put("storeTimestamp", raw.getStoreTimestamp());
        m.put("storeHost", host(raw.getStoreHost()));
        m.put("reconsumeTimes", raw.getReconsumeTimes());
        m.put("preparedTransactionOffset", raw.getPreparedTransactionOffset());
        m.put("bodyCRC", raw.getBodyCRC());
        byte[] sb = raw.getBody() == null ? new byte[0] : raw.getBody();
        m.put("storedBodyLength", sb.length);
        m.put("storedBodySha256", sha(sb));
        if (dec != null) {
            byte[] db = dec.getBody() == null ? new byte[0] : dec.getBody();
            m.put("bodyLength", db.length);
            m.put("bodySha256", sha(db));
        } else { m.put("bodyLength", null); m.put("bodySha256", null); }
        m.put("properties", raw.getProperties() == null ? new TreeMap<String, Object>() : new TreeMap<String, Object>(raw.getProperties()));
        m.put("tags", raw.getTags());
        m.put("keys", raw.getKeys());
        m.put("uniqKey", raw.getProperty(MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX));
        m.put("offsetMsgId", raw.getMsgId());
        m.put("tagsCodeInQueue", null);
        if (MessageSysFlag.check(raw.getSysFlag(), MessageSysFlag.INNER_BATCH_FLAG) && dec != null) {
            List<MessageExt> inner = new ArrayList<>();
            try {
                MessageDecoder.decodeMessage(dec, inner);
                List<Object> l = new ArrayList<>();
                for (MessageExt e : inner) l.add(map("topic", e.getTopic(), "queueOffset", e.getQueueOffset(), "flag", e.getFlag(), "bodyLength", e.getBody().length, "bodySha256", sha(e.getBody()), "properties", e.getProperties() == null ? new TreeMap<String, Object>() : new TreeMap<String, Object>(e.getProperties())));
                m.put("inner", l);
            } catch (Throwable t) { m.put("innerError", t.toString()); }
        }
        return m;
    }

    static void checkpoint(Map<String, Object> c, File ck) throws Exception {
        StoreCheckpoint s = new StoreCheckpoint(ck.getPath());
        c.put("physicMsgTimestamp", s.getPhysicMsgTimestamp());
        c.put("logicsMsgTimestamp", s.getLogicsMsgTimestamp());
        c.put("indexMsgTimestamp", s.getIndexMsgTimestamp());
        c.put("masterFlushedOffset", s.getMasterFlushedOffset());
        c.put("confirmPhyOffset", s.getConfirmPhyOffset());
        c.put("minTimestamp", s.getMinTimestamp());
        c.put("minTimestampIndex", s.getMinTimestampIndex());
    }

    static List<Object> indexFiles(File root, MessageStoreConfig msc) throws Exception {
        List<Object> l = new ArrayList<>();
        File[] fs = new File(root, "index").listFiles();
        if (fs == null) return l;
        Arrays.sort(fs);
        for (File f : fs) {
            if (!f.isFile()) continue;
            IndexFile x = new IndexFile(f.getPath(), msc.getMaxHashSlotNum(), msc.getMaxIndexNum(), 0, 0);
            x.load();
            Field hf = IndexFile.class.getDeclaredField("indexHeader");
            hf.setAccessible(true);
            IndexHeader h = (IndexHeader) hf.get(x);
            l.add(map("name", f.getName(), "beginTimestamp", h.getBeginTimestamp(), "endTimestamp", h.getEndTimestamp(), "beginPhyOffset", h.getBeginPhyOffset(),
                "endPhyOffset", h.getEndPhyOffset(), "hashSlotCount", h.getHashSlotCount().get(), "indexCount", h.getIndexCount(), "full", x.isWriteFull()));
        }
        return l;
    }

    static Map<String, Object> configFiles(File root) throws Exception {
        Map<String, Object> m = new TreeMap<>();
        File[] fs = new File(root, "config").listFiles();
        if (fs == null) return m;
        for (File f : fs) {
            if (!f.isFile() || f.getName().equals("timercheck") || f.getName().equals("timercheck.bak")) continue;
            String s = read(f);
            if (s.isEmpty()) { m.put(f.getName(), null); continue; }
            try { m.put(f.getName(), norm(com.alibaba.fastjson.JSON.parse(s))); } catch (Throwable t) { m.put(f.getName(), map("_unparsable", t.toString())); }
        }
        return m;
    }

    static Map<String, Object> timer(File root, MessageStoreConfig msc) throws Exception {
        Map<String, Object> r = new TreeMap<>();
        File w = new File(root, "timerwheel");
        int prec = msc.getTimerPrecisionMs();
        if (w.exists()) {
            ByteBuffer bb = ByteBuffer.wrap(Files.readAllBytes(w.toPath()));
            int slots = bb.capacity() / Slot.SIZE;
            TimerWheel tw = new TimerWheel(copyFile(w).getPath(), slots / 2, prec);
            List<Object> l = new ArrayList<>();
            for (int i = 0; i < slots; i++) {
                long t = bb.getLong(i * 32);
                if (t == 0) continue;
                Slot s = tw.getRawSlot(t * prec);
                l.add(map("index", i, "rawTime", t, "timeMs", s.timeMs, "firstPos", s.firstPos, "lastPos", s.lastPos, "num", s.num, "magic", s.magic, "slotIndex", tw.getSlotIndex(t * prec)));
            }
            r.put("wheelBytes", w.length());
            r.put("slotsTotal", slots / 2);
            r.put("slots", l);
        }
        File d = new File(root, "timerlog");
        List<Object> log = new ArrayList<>();
        File[] fs = d.listFiles();
        if (fs != null) {
            Arrays.sort(fs);
            for (File f : fs) {
                long base = Long.parseLong(f.getName());
                ByteBuffer bb = ByteBuffer.wrap(Files.readAllBytes(f.toPath()));
                int p = 0;
                while (p + 16 <= bb.capacity()) {
                    int size = bb.getInt(p);
                    if (size == 0) break;
                    int mg = bb.getInt(p + 12);
                    if (mg == TimerLog.BLANK_MAGIC_CODE) { log.add(map("pos", base + p, "blank", true, "size", size, "magic", mg)); break; }
                    if (size != TimerLog.UNIT_SIZE || p + size > bb.capacity()) { log.add(map("pos", base + p, "illegalSize", size)); break; }
                    log.add(map("pos", base + p, "size", size, "prevPos", bb.getLong(p + 4), "magic", mg, "writeTime", bb.getLong(p + 16), "delay", bb.getInt(p + 24),
                        "offsetPy", bb.getLong(p + 28), "sizePy", bb.getInt(p + 36), "topicHash", bb.getInt(p + 40), "reserved", bb.getLong(p + 44)));
                    p += size;
                }
            }
        }
        r.put("log", log);
        File ck = new File(root, "config/timercheck");
        if (ck.exists()) {
            TimerCheckpoint t = new TimerCheckpoint(copyFile(ck).getPath());
            r.put("timercheck", map("lastReadTimeMs", t.getLastReadTimeMs(), "lastTimerLogFlushPos", t.getLastTimerLogFlushPos(), "lastTimerQueueOffset", t.getLastTimerQueueOffset(),
                "masterTimerQueueOffset", t.getMasterTimerQueueOffset(), "dataVersion", map("stateVersion", t.getDataVersion().getStateVersion(), "timestamp", t.getDataVersion().getTimestamp(), "counter", t.getDataVersion().getCounter().get())));
        }
        return r;
    }

    static Map<String, Object> compaction(File root, MessageStoreConfig msc) throws Exception {
        File base = new File(root, "compaction");
        if (!base.isDirectory()) return null;
        List<File> all = new ArrayList<>();
        files(base, all);
        Map<String, Object> m = new TreeMap<>();
        for (File f : all) {
            String rel = root.toPath().relativize(f.toPath()).toString();
            Map<String, Object> e = map("length", f.length());
            byte[] b = Files.readAllBytes(f.toPath());
            ByteBuffer bb = ByteBuffer.wrap(b);
            if (rel.contains("compactionCq/")) {
                List<Object> us = new ArrayList<>();
                for (int p = 0; p + 46 <= b.length; p += 46) {
                    if (bb.getLong(p) == 0 && bb.getInt(p + 8) == 0 && bb.getLong(p + 28) == 0 && bb.getShort(p + 36) == 0) break;
                    us.add(Arrays.asList(bb.getLong(p), bb.getInt(p + 8), bb.getLong(p + 12), bb.getLong(p + 20), bb.getLong(p + 28), (int) bb.getShort(p + 36), bb.getInt(p + 38), bb.getInt(p + 42)));
                }
                e.put("units", us);
            } else if (rel.contains("compactionLog/") && f.getName().matches("\\d{20}")) {
                List<Object> ms = new ArrayList<>();
                long fb = Long.parseLong(f.getName());
                for (int p = 0; p + 8 <= b.length; ) {
                    int size = bb.getInt(p), magic = bb.getInt(p + 4);
                    if (size <= 0 || p + size > b.length) break;
                    if (magic == BLANK) { e.put("blank", map("offset", fb + p, "size", size)); break; }
                    ms.add(message(bb, fb, p, size, magic));
                    p += size;
                }
                e.put("messages", ms);
            } else e.put("text", new String(b, StandardCharsets.UTF_8));
            m.put(rel, e);
        }
        return m;
    }

    static void files(File d, List<File> l) { File[] fs = d.listFiles(); if (fs == null) return; Arrays.sort(fs); for (File f : fs) if (f.isDirectory()) files(f, l); else l.add(f); }

    static void rocks(File root, File d, Map<String, Object> out) throws Exception {
        File[] fs = d.listFiles();
        if (fs == null) return;
        if (new File(d, "CURRENT").exists()) {
            RocksDB.loadLibrary();
            List<byte[]> cfs = RocksDB.listColumnFamilies(new Options(), d.getPath());
            List<ColumnFamilyDescriptor> ds = new ArrayList<>();
            for (byte[] c : cfs) ds.add(new ColumnFamilyDescriptor(c, new ColumnFamilyOptions()));
            List<ColumnFamilyHandle> hs = new ArrayList<>();
            Map<String, Object> m = new TreeMap<>();
            try (RocksDB db = RocksDB.openReadOnly(new DBOptions(), d.getPath(), ds, hs)) {
                for (int i = 0; i < hs.size(); i++) {
                    List<Object> kv = new ArrayList<>();
                    try (RocksIterator it = db.newIterator(hs.get(i), new ReadOptions().setTotalOrderSeek(true))) {
                        for (it.seekToFirst(); it.isValid(); it.next()) kv.add(Arrays.asList(hex(it.key()), hex(it.value())));
                    }
                    m.put(new String(cfs.get(i), StandardCharsets.UTF_8), kv);
                }
                for (ColumnFamilyHandle h : hs) h.close();
            } catch (Throwable t) { m.put("_error", t.toString()); }
            out.put(root.toPath().relativize(d.toPath()).toString(), m);
        }
        for (File f : fs) if (f.isDirectory()) rocks(root, f, out);
    }

    // ---------------------------------------------------------------- raw queue files (for stores with abort)
    static Map<String, Object> rawQueues(File root, MessageStoreConfig msc, Map<String, Object> cfg) throws Exception {
        Map<String, Object> r = new TreeMap<>();
        for (String kind : new String[] {"consumequeue", "batchconsumequeue"}) {
            int unit = kind.startsWith("b") ? 46 : 20;
            File[] ts = new File(root, kind).listFiles();
            if (ts == null) continue;
            for (File t : ts) {
                File[] qs = t.listFiles();
                if (!t.isDirectory() || qs == null) continue;
                Map<String, Object> tm = new TreeMap<>();
                for (File q : qs) {
                    if (!q.getName().matches("\\d+")) continue;
                    List<Object> units = new ArrayList<>();
                    File[] fs = q.listFiles();
                    Arrays.sort(fs);
                    long min = -1, max = 0;
                    for (File f : fs) {
                        ByteBuffer bb = ByteBuffer.wrap(Files.readAllBytes(f.toPath()));
                        long base = Long.parseLong(f.getName());
                        for (int p = 0; p + unit <= bb.capacity(); p += unit) {
                            if (bb.getInt(p + 8) <= 0) continue;
                            if (min < 0) min = (base + p) / unit;
                            max = (base + p) / unit + 1;
                            units.add(Arrays.asList(bb.getLong(p), bb.getInt(p + 8), bb.getLong(p + 12)));
                        }
                    }
                    tm.put(q.getName(), map("minOffset", Math.max(0, min), "maxOffset", max, "units", units, "raw", true));
                }
                r.put(t.getName(), tm);
            }
        }
        return r;
    }

    // ---------------------------------------------------------------- dynamic: real store opened
    static DefaultMessageStore open(File root, MessageStoreConfig msc, Map<String, Object> cfg) throws Exception {
        BrokerConfig bc = bc(cfg);
        BrokerStatsManager bsm = new BrokerStatsManager("TruthCluster", false);
        ConcurrentMap<String, TopicConfig> table = new ConcurrentHashMap<>();
        for (String fn : new String[] {"config/topics.json"}) {
            File tj = new File(root, fn);
            if (tj.exists()) {
                TopicConfigSerializeWrapper w = TopicConfigSerializeWrapper.fromJson(read(tj), TopicConfigSerializeWrapper.class);
                if (w != null && w.getTopicConfigTable() != null) table.putAll(w.getTopicConfigTable());
            }
        }
        MessageArrivingListener ml = (topic, queueId, logicOffset, tagsCode, ts, bm, pr) -> { };
        DefaultMessageStore s;
        if (msc.isEnableRocksDBStore()) s = new RocksDBMessageStore(msc, bsm, ml, bc, table);
        else {
            s = new DefaultMessageStore(msc, bsm, ml, bc, table);
            if (msc.isRocksdbCQDoubleWriteEnable()) try { s.getClass().getMethod("enableRocksdbCQWrite").invoke(s); } catch (NoSuchMethodException e) { }
        }
        return s;
    }

    static void dynamic(Map<String, Object> r, File root, MessageStoreConfig msc, Map<String, Object> cfg, Map<String, Object> queries, List<Map<String, Object>> messages, boolean clean) throws Exception {
        Set<String> origIndex = new HashSet<>();
        String[] on = new File(root, "index").list();
        if (on != null) origIndex.addAll(Arrays.asList(on));
        DefaultMessageStore s = open(root, msc, cfg);
        boolean ok = s.load();
        r.put("load_ok", ok);
        if (!ok) { r.put("min_phy", null); r.put("max_phy", null); r.put("queues", new TreeMap<>()); for (String k : new String[] {"queryMessage", "offsetByTime", "getMessage"}) r.put(k, new ArrayList<>()); return; }
        long afterLoad = s.getMaxPhyOffset();
        s.start();
        long t0 = System.currentTimeMillis();
        while (s.dispatchBehindBytes() > 0 && System.currentTimeMillis() - t0 < 60000) Thread.sleep(50);
        Thread.sleep(1500);
        r.put("min_phy", s.getMinPhyOffset());
        r.put("max_phy", s.getMaxPhyOffset());
        r.put("dispatchBehindBytes", s.dispatchBehindBytes());
        if (!clean) {
            List<Object> offs = new ArrayList<>(), bl = new ArrayList<>();
            walk(msc, s.getMaxPhyOffset(), offs, bl, false);
            r.put("messages", offs);
            r.put("blanks", bl);
            r.put("max_phy_after_load", afterLoad);
            List<Object> xf = indexFilesOpen(s);
            for (Object o : xf) { Map<String, Object> xm = castMap(o); if (!origIndex.contains(xm.get("name"))) { xm.put("name", null); xm.put("createdByRecovery", true); } }
            r.put("index_files", xf);
            Map<String, Object> c = new TreeMap<>();
            checkpoint(c, copyFile(new File(root, "checkpoint")));
            r.put("checkpoint_file_while_open", c);
        }
        // queues
        Map<String, Object> qs = new TreeMap<>();
        List<String[]> all = new ArrayList<>();
        for (String topic : topics(s, root, messages)) {
            TreeMap<Integer, Object> tm = new TreeMap<>();
            TreeSet<Integer> ids = new TreeSet<>();
            Map<Integer, ConsumeQueueInterface> t = s.getConsumeQueueTable() == null ? null : s.getConsumeQueueTable().get(topic);
            if (t != null) ids.addAll(t.keySet());
            for (Map<String, Object> m : messages) if (topic.equals(m.get("topic"))) ids.add(((Number) m.get("queueId")).intValue());
            for (int q : ids) {
                ConsumeQueueInterface cq = s.getConsumeQueue(topic, q);
                if (cq == null) continue;
                long min = cq.getMinOffsetInQueue(), max = cq.getMaxOffsetInQueue();
                boolean batch = cq.getCQType() == org.apache.rocketmq.common.attribute.CQType.BatchCQ;
                List<Object> us = new ArrayList<>();
                for (long o = min; o < max; ) {
                    CqUnit u = cq.get(o);
                    if (u == null) { us.add(null); o++; continue; }
                    if (batch) { us.add(Arrays.asList(u.getPos(), u.getSize(), u.getTagsCode(), u.getQueueOffset(), (int) u.getBatchNum())); o = u.getQueueOffset() + u.getBatchNum(); }
                    else { us.add(Arrays.asList(u.getPos(), u.getSize(), u.getTagsCode())); o++; }
                }
                Map<String, Object> qm = map("minOffset", min, "maxOffset", max, "units", us, "type", cq.getCQType().name(), "maxPhysicOffset", cq.getMaxPhysicOffset());
                qm.put("storeMinOffset", s.getMinOffsetInQueue(topic, q));
                qm.put("storeMaxOffset", s.getMaxOffsetInQueue(topic, q));
                if (max == 0 && t == null) continue;
                tm.put(q, qm);
                all.add(new String[] {topic, String.valueOf(q)});
            }
            if (!tm.isEmpty()) { Map<String, Object> x = new TreeMap<>(); for (Map.Entry<Integer, Object> e : tm.entrySet()) x.put(String.valueOf(e.getKey()), e.getValue()); qs.put(topic, x); }
        }
        r.put("queues", qs);
        if (queries == null) queries = makeQueries(messages, qs);
        List<Object> qm = new ArrayList<>();
        for (Map<String, Object> q : Truth5.<Map<String, Object>>castList(queries.get("queryMessage"))) {
            List<Object> offs = new ArrayList<>();
            QueryMessageResult x = s.queryMessage((String) q.get("topic"), (String) q.get("key"), num(q, "maxNum").intValue(), num(q, "begin").longValue(), num(q, "end").longValue());
            for (SelectMappedBufferResult b : x.getMessageMapedList()) offs.add(b.getByteBuffer().getLong(MessageDecoder.MESSAGE_PHYSIC_OFFSET_POSITION));
            Map<String, Object> e = map("topic", q.get("topic"), "key", q.get("key"), "maxNum", q.get("maxNum"), "begin", q.get("begin"), "end", q.get("end"), "phyOffsets", offs,
                "indexLastUpdateTimestamp", x.getIndexLastUpdateTimestamp(), "indexLastUpdatePhyoffset", x.getIndexLastUpdatePhyoffset());
            if (q.containsKey("why")) e.put("why", q.get("why"));
            x.release();
            qm.add(e);
        }
        r.put("queryMessage", qm);
        List<Object> ot = new ArrayList<>();
        for (Map<String, Object> q : Truth5.<Map<String, Object>>castList(queries.get("offsetByTime"))) {
            Map<String, Object> e = map("topic", q.get("topic"), "queueId", q.get("queueId"), "timestamp", q.get("timestamp"));
            Object o;
            try {
                if (q.get("boundary") == null) o = s.getOffsetInQueueByTime((String) q.get("topic"), num(q, "queueId").intValue(), num(q, "timestamp").longValue());
                else { o = s.getOffsetInQueueByTime((String) q.get("topic"), num(q, "queueId").intValue(), num(q, "timestamp").longValue(), org.apache.rocketmq.common.BoundaryType.valueOf((String) q.get("boundary"))); e.put("boundary", q.get("boundary")); }
                e.put("offset", o);
            } catch (Throwable t) { e.put("offset", null); e.put("error", t.toString()); }
            ot.add(e);
        }
        r.put("offsetByTime", ot);
        List<Object> gm = new ArrayList<>();
        for (Map<String, Object> q : Truth5.<Map<String, Object>>castList(queries.get("getMessage"))) {
            String sub = (String) q.get("subscription");
            MessageFilter f = null;
            if (sub != null) { SubscriptionData sd = FilterAPI.buildSubscriptionData((String) q.get("topic"), sub); f = new DefaultMessageFilter(sd); }
            Map<String, Object> e = map("group", q.get("group"), "topic", q.get("topic"), "queueId", q.get("queueId"), "offset", q.get("offset"), "maxMsgNums", q.get("maxMsgNums"), "subscription", sub);
            GetMessageResult g = s.getMessage((String) q.get("group"), (String) q.get("topic"), num(q, "queueId").intValue(), num(q, "offset").longValue(), num(q, "maxMsgNums").intValue(), f);
            if (g == null) e.put("status", null);
            else {
                e.put("status", g.getStatus().name());
                e.put("nextBeginOffset", g.getNextBeginOffset());
                e.put("minOffset", g.getMinOffset());
                e.put("maxOffset", g.getMaxOffset());
                List<Object> offs = new ArrayList<>();
                for (SelectMappedBufferResult b : g.getMessageMapedList()) offs.add(b.getByteBuffer().getLong(MessageDecoder.MESSAGE_PHYSIC_OFFSET_POSITION));
                e.put("phyOffsets", offs);
                e.put("queueOffsets", new ArrayList<Object>(g.getMessageQueueOffset()));
                g.release();
            }
            gm.add(e);
        }
        r.put("getMessage", gm);
        if (put) putProbe(s, all, r);
        if (!clean) {
            s.shutdown();
            Map<String, Object> c = new TreeMap<>();
            checkpoint(c, copyFile(new File(root, "checkpoint")));
            r.put("checkpoint", c);
        } else s.shutdown();
    }

    static List<Object> indexFilesOpen(DefaultMessageStore s) throws Exception {
        List<Object> l = new ArrayList<>();
        Field f = DefaultMessageStore.class.getDeclaredField("indexService");
        f.setAccessible(true);
        Field lf = IndexService.class.getDeclaredField("indexFileList");
        lf.setAccessible(true);
        Field hf = IndexFile.class.getDeclaredField("indexHeader");
        hf.setAccessible(true);
        for (Object x : (List<?>) lf.get(f.get(s))) {
            IndexHeader h = (IndexHeader) hf.get(x);
            l.add(map("name", new File(((IndexFile) x).getFileName()).getName(), "beginTimestamp", h.getBeginTimestamp(), "endTimestamp", h.getEndTimestamp(), "beginPhyOffset", h.getBeginPhyOffset(),
                "endPhyOffset", h.getEndPhyOffset(), "hashSlotCount", h.getHashSlotCount().get(), "indexCount", h.getIndexCount(), "full", ((IndexFile) x).isWriteFull()));
        }
        return l;
    }

    static Collection<String> topics(DefaultMessageStore s, File root, List<Map<String, Object>> messages) {
        TreeSet<String> t = new TreeSet<>();
        if (s.getConsumeQueueTable() != null) t.addAll(s.getConsumeQueueTable().keySet());
        for (Map<String, Object> m : messages) if (m.get("topic") != null) t.add((String) m.get("topic"));
        return t;
    }

    static void fillTags(List<Map<String, Object>> messages, Map<String, Object> queues) {
        Map<Long, Long> codes = new HashMap<>();
        Map<Long, String> home = new HashMap<>();
        for (Map.Entry<String, Object> t : queues.entrySet()) for (Map.Entry<String, Object> q : Truth5.castMap(t.getValue()).entrySet())
            for (Object u : Truth5.<Object>castList(castMap(q.getValue()).get("units"))) {
                if (u == null) continue;
                List<?> l = (List<?>) u;
                long p = ((Number) l.get(0)).longValue();
                codes.put(Long.valueOf(p), ((Number) l.get(2)).longValue());
            }
        for (Map<String, Object> m : messages) {
            Long c = codes.get(((Number) m.get("commitLogOffset")).longValue());
            m.put("tagsCodeInQueue", c);
        }
    }

    // ---------------------------------------------------------------- queries made from what is found
    static Map<String, Object> makeQueries(List<Map<String, Object>> messages, Map<String, Object> queues) {
        List<Object> qm = new ArrayList<>(), ot = new ArrayList<>(), gm = new ArrayList<>();
        long lo = Long.MAX_VALUE, hi = 0;
        TreeMap<String, List<Map<String, Object>>> byKey = new TreeMap<>();
        List<Map<String, Object>> uniq = new ArrayList<>();
        for (Map<String, Object> m : messages) {
            if (m.get("topic") == null) continue;
            long ts = ((Number) m.get("storeTimestamp")).longValue();
            lo = Math.min(lo, ts); hi = Math.max(hi, ts);
            String keys = (String) m.get("keys");
            if (keys != null) for (String k : keys.split(MessageConst.KEY_SEPARATOR)) if (!k.isEmpty()) byKey.computeIfAbsent(m.get("topic") + "\0" + k, z -> new ArrayList<>()).add(m);
            if (m.get("uniqKey") != null) uniq.add(m);
        }
        if (lo > hi) { lo = 0; hi = 0; }
        long day = 86400000L;
        List<String> ks = new ArrayList<>(byKey.keySet());
        // the keys with most messages first, then a spread of the others; keys whose slot hash is shared
        ks.sort((x, y) -> byKey.get(y).size() - byKey.get(x).size() != 0 ? byKey.get(y).size() - byKey.get(x).size() : x.compareTo(y));
        Map<Integer, List<String>> byHash = new TreeMap<>();
        for (String k : ks) byHash.computeIfAbsent((k.replace("\0", "#")).hashCode(), z -> new ArrayList<>()).add(k);
        LinkedHashSet<String> pick = new LinkedHashSet<>();
        for (List<String> l : byHash.values()) if (l.size() > 1) pick.addAll(l);
        for (int i = 0; i < ks.size() && i < 12; i++) pick.add(ks.get(i));
        for (int i = 0; i < ks.size(); i += Math.max(1, ks.size() / 30)) pick.add(ks.get(i));
        for (String k : pick) {
            String topic = k.substring(0, k.indexOf('\0')), key = k.substring(k.indexOf('\0') + 1);
            List<Map<String, Object>> ms = byKey.get(k);
            qm.add(map("topic", topic, "key", key, "maxNum", 32, "begin", 0, "end", hi + day, "why", "hit " + ms.size()));
            if (ms.size() > 1) {
                long f = ((Number) ms.get(0).get("storeTimestamp")).longValue(), l = ((Number) ms.get(ms.size() - 1).get("storeTimestamp")).longValue();
                long mid = ((Number) ms.get(ms.size() / 2).get("storeTimestamp")).longValue();
                qm.add(map("topic", topic, "key", key, "maxNum", 1, "begin", 0, "end", hi + day, "why", "maxNum 1"));
                qm.add(map("topic", topic, "key", key, "maxNum", 3, "begin", 0, "end", hi + day, "why", "maxNum 3"));
                qm.add(map("topic", topic, "key", key, "maxNum", 32, "begin", 0, "end", mid, "why", "end cuts"));
                qm.add(map("topic", topic, "key", key, "maxNum", 32, "begin", mid, "end", hi + day, "why", "begin cuts"));
                qm.add(map("topic", topic, "key", key, "maxNum", 32, "begin", mid, "end", mid, "why", "one instant"));
                qm.add(map("topic", topic, "key", key, "maxNum", 32, "begin", f + 1000, "end", l - 1000, "why", "both cut"));
            } else {
                long f = ((Number) ms.get(0).get("storeTimestamp")).longValue();
                qm.add(map("topic", topic, "key", key, "maxNum", 32, "begin", f, "end", f, "why", "one instant"));
                qm.add(map("topic", topic, "key", key, "maxNum", 32, "begin", hi + day, "end", hi + 2 * day, "why", "after all"));
            }
            if (qm.size() > 260) break;
        }
        for (int i = 0; i < uniq.size(); i += Math.max(1, uniq.size() / 25)) {
            Map<String, Object> m = uniq.get(i);
            qm.add(map("topic", m.get("topic"), "key", m.get("uniqKey"), "maxNum", 32, "begin", 0, "end", hi + day, "why", "UNIQ_KEY"));
        }
        if (!ks.isEmpty()) {
            String k = ks.get(0);
            qm.add(map("topic", k.substring(0, k.indexOf('\0')), "key", "no-such-key", "maxNum", 32, "begin", 0, "end", hi + day, "why", "miss"));
            qm.add(map("topic", "NoSuchTopic", "key", k.substring(k.indexOf('\0') + 1), "maxNum", 32, "begin", 0, "end", hi + day, "why", "wrong topic"));
            qm.add(map("topic", k.substring(0, k.indexOf('\0')), "key", k.substring(k.indexOf('\0') + 1), "maxNum", 32, "begin", 0, "end", lo - day, "why", "before all"));
            qm.add(map("topic", k.substring(0, k.indexOf('\0')), "key", k.substring(k.indexOf('\0') + 1), "maxNum", 1000, "begin", 0, "end", hi + day, "why", "maxNum over maxMsgsNumBatch"));
        }
        Map<Long, Map<String, Object>> byPhy = new HashMap<>();
        for (Map<String, Object> m : messages) byPhy.put(((Number) m.get("commitLogOffset")).longValue(), m);
        int nq = 0;
        for (Object v : queues.values()) nq += castMap(v).size();
        int many = nq > 40 ? 1 : nq > 15 ? 2 : 3;
        for (Map.Entry<String, Object> t : queues.entrySet()) for (Map.Entry<String, Object> q : castMap(t.getValue()).entrySet()) {
            String topic = t.getKey();
            int qid = Integer.parseInt(q.getKey());
            Map<String, Object> qq = castMap(q.getValue());
            long min = ((Number) qq.get("minOffset")).longValue(), max = ((Number) qq.get("maxOffset")).longValue();
            List<Long> ts = new ArrayList<>();
            TreeSet<String> tags = new TreeSet<>();
            for (Object u : Truth5.<Object>castList(qq.get("units"))) {
                if (u == null) continue;
                Map<String, Object> m = byPhy.get(((Number) ((List<?>) u).get(0)).longValue());
                if (m == null) continue;
                ts.add(((Number) m.get("storeTimestamp")).longValue());
                if (m.get("tags") != null && !((String) m.get("tags")).isEmpty()) tags.add((String) m.get("tags"));
            }
            LinkedHashSet<Long> at = new LinkedHashSet<>();
            if (!ts.isEmpty()) {
                long f = ts.get(0), l = ts.get(ts.size() - 1), mid = ts.get(ts.size() / 2);
                at.addAll(Arrays.asList(0L, f - 1000, f - 1, f, f + 1, mid - 1, mid, mid + 1, (f + l) / 2, l - 1, l, l + 1, l + day));
                if (many > 1) for (int i = 0; i < ts.size(); i += Math.max(1, ts.size() / (5 * many))) { at.add(ts.get(i)); at.add(ts.get(i) + 1); }
            } else at.addAll(Arrays.asList(0L, hi));
            for (long x : at) {
                ot.add(map("topic", topic, "queueId", qid, "timestamp", x));
                ot.add(map("topic", topic, "queueId", qid, "timestamp", x, "boundary", "UPPER"));
            }
            LinkedHashSet<Long> offs = new LinkedHashSet<>(Arrays.asList(-1L, 0L, min - 1, min, (min + max) / 2, max - 1, max, max + 1, max + 100));
            if (many > 1) for (int i = 1; i < 6; i++) offs.add(min + (max - min) * i / 6);
            for (long o : offs) gm.add(map("group", "G_TRUTH", "topic", topic, "queueId", qid, "offset", o, "maxMsgNums", 32, "subscription", null));
            gm.add(map("group", "G_TRUTH", "topic", topic, "queueId", qid, "offset", min, "maxMsgNums", 1, "subscription", "*"));
            gm.add(map("group", "G_TRUTH", "topic", topic, "queueId", qid, "offset", min, "maxMsgNums", 5, "subscription", "*"));
            gm.add(map("group", "G_TRUTH", "topic", topic, "queueId", qid, "offset", min, "maxMsgNums", 100, "subscription", null));
            gm.add(map("group", "G_TRUTH", "topic", topic, "queueId", qid, "offset", min, "maxMsgNums", 32, "subscription", "NoSuchTag"));
            List<String> tl = new ArrayList<>(tags);
            if (!tl.isEmpty()) {
                gm.add(map("group", "G_TRUTH", "topic", topic, "queueId", qid, "offset", min, "maxMsgNums", 32, "subscription", tl.get(0)));
                gm.add(map("group", "G_TRUTH", "topic", topic, "queueId", qid, "offset", (min + max) / 2, "maxMsgNums", 32, "subscription", tl.get(tl.size() - 1)));
                if (tl.size() > 1) gm.add(map("group", "G_TRUTH", "topic", topic, "queueId", qid, "offset", min, "maxMsgNums", 8, "subscription", tl.get(0) + " || " + tl.get(1)));
            }
        }
        gm.add(map("group", "G_TRUTH", "topic", "NoSuchTopic", "queueId", 0, "offset", 0, "maxMsgNums", 32, "subscription", null));
        if (!queues.isEmpty()) gm.add(map("group", "G_TRUTH", "topic", queues.keySet().iterator().next(), "queueId", 99, "offset", 0, "maxMsgNums", 32, "subscription", null));
        return map("queryMessage", qm, "offsetByTime", ot, "getMessage", gm);
    }

    // ---------------------------------------------------------------- helpers
    static File copyFile(File f) throws IOException { File t = File.createTempFile("truth5", f.getName()); t.deleteOnExit(); Files.copy(f.toPath(), t.toPath(), StandardCopyOption.REPLACE_EXISTING); return t; }
    static Number num(Map<String, Object> m, String k) { return (Number) m.get(k); }
    static String host(SocketAddress a) { if (!(a instanceof InetSocketAddress)) return null; InetSocketAddress i = (InetSocketAddress) a; String h = i.getAddress().getHostAddress(); return (h.contains(":") ? "[" + h + "]" : h) + ":" + i.getPort(); }
    static String sha(byte[] b) throws Exception { return hex(MessageDigest.getInstance("SHA-256").digest(b)); }
    static String hex(byte[] b) { StringBuilder s = new StringBuilder(); for (byte x : b) s.append(Character.forDigit((x >> 4) & 15, 16)).append(Character.forDigit(x & 15, 16)); return s.toString(); }
    static String read(File f) throws IOException { return new String(Files.readAllBytes(f.toPath()), StandardCharsets.UTF_8); }
    @SuppressWarnings("unchecked") static Map<String, Object> parse(String s) { return (Map<String, Object>) norm(com.alibaba.fastjson.JSON.parse(s)); }
    @SuppressWarnings("unchecked") static Map<String, Object> castMap(Object o) { return (Map<String, Object>) o; }
    @SuppressWarnings("unchecked") static <T> List<T> castList(Object o) { return o == null ? new ArrayList<T>() : (List<T>) o; }
    static Map<String, Object> map(Object... kv) { Map<String, Object> m = new TreeMap<>(); for (int i = 0; i < kv.length; i += 2) m.put((String) kv[i], kv[i + 1]); return m; }
    static Object norm(Object o) {
        if (o instanceof Map) { Map<String, Object> m = new TreeMap<>(); for (Map.Entry<?, ?> e : ((Map<?, ?>) o).entrySet()) m.put(String.valueOf(e.getKey()), norm(e.getValue())); return m; }
        if (o instanceof List) { List<Object> l = new ArrayList<>(); for (Object x : (List<?>) o) l.add(norm(x)); return l; }
        return o;
    }

    static class Js {
        static void write(Writer w, Object o, int d) throws IOException {
            if (o == null) w.write("null");
            else if (o instanceof Map) {
                w.write('{');
                boolean first = true;
                for (Map.Entry<?, ?> e : new TreeMap<>((Map<?, ?>) o).entrySet()) {
                    if (!first) w.write(',');
                    first = false;
                    if (d < 2) w.write('\n');
                    str(w, String.valueOf(e.getKey()));
                    w.write(':');
                    write(w, e.getValue(), d + 1);
                }
                w.write('}');
            } else if (o instanceof Collection) {
                w.write('[');
                boolean first = true;
                for (Object x : (Collection<?>) o) { if (!first) w.write(','); first = false; if (d < 2) w.write('\n'); write(w, x, d + 1); }
                w.write(']');
            } else if (o instanceof Number || o instanceof Boolean) w.write(o.toString());
            else str(w, o.toString());
        }
        static void str(Writer w, String s) throws IOException {
            w.write('"');
            for (int i = 0; i < s.length(); i++) {
                char c = s.charAt(i);
                if (c == '"' || c == '\\') { w.write('\\'); w.write(c); }
                else if (c < 32 || c == 127 || (c >= 0xd800 && c <= 0xdfff && !(Character.isHighSurrogate(c) && i + 1 < s.length() && Character.isLowSurrogate(s.charAt(i + 1))) && !(Character.isLowSurrogate(c) && i > 0 && Character.isHighSurrogate(s.charAt(i - 1)))))
                    w.write(String.format("\\u%04x", (int) c));
                else w.write(c);
            }
            w.write('"');
        }
    }
}
