import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.parser.Feature;
import java.io.File;
import java.net.*;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.*;
import java.util.*;
import java.util.concurrent.ConcurrentMap;
import java.util.stream.*;
import org.apache.rocketmq.common.filter.FilterAPI;
import org.apache.rocketmq.common.message.*;
import org.apache.rocketmq.common.protocol.heartbeat.SubscriptionData;
import org.apache.rocketmq.store.*;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.index.*;

/**
 * truth STORE_DIR OUT.json [--config cfg.json] [--queries q.json] [--meta meta.json] [--before] [--no-recover] [key=value ...]
 * Opens a COPY of STORE_DIR with the real DefaultMessageStore and writes what it answers.
 */
public class Truth49 {
    static boolean put;
    static String ver() {
        String s = DefaultMessageStore.class.getProtectionDomain().getCodeSource().getLocation().getPath();
        return s.replaceAll(".*rocketmq-store-", "").replaceAll("\\.jar$", "");
    }
    public static void main(String[] a) throws Exception {
        Open49.quietLogs();
        List<String> pos = new ArrayList<>();
        Map<String, Object> cfg = new TreeMap<>();
        String queries = null, meta = null;
        boolean before = false;
        for (int i = 0; i < a.length; i++) {
            if (a[i].equals("--config")) {
                Map<String, Object> c = JSON.parseObject(rd(a[++i]));
                if (c.get("config") instanceof Map) c = (Map<String, Object>) c.get("config");
                cfg.putAll(c);
            }
            else if (a[i].equals("--queries")) queries = a[++i];
            else if (a[i].equals("--meta")) meta = a[++i];
            else if (a[i].equals("--before")) before = true;
            else if (a[i].equals("--put")) put = true;
            else if (a[i].contains("=") && !a[i].startsWith("/")) cfg.put(a[i].substring(0, a[i].indexOf('=')), a[i].substring(a[i].indexOf('=') + 1));
            else pos.add(a[i]);
        }
        if (pos.size() > 2) queries = pos.get(2);
        String src = new File(pos.get(0)).getCanonicalPath();
        Path tmp = Files.createTempDirectory(Paths.get(System.getProperty("java.io.tmpdir")), "truth49-");
        Map<String, Object> out = new TreeMap<>();
        int rc = 0;
        try {
            boolean abort = Files.exists(Paths.get(src, "abort"));
            if (meta != null) out.putAll(JSON.parseObject(rd(meta)));
            out.put("read_by", ver());
            out.put("config", typed(cfg));
            out.put("clean_shutdown", !abort);
            Map<String, Object> q = queries == null ? null : JSON.parseObject(rd(queries));
            out.put("fileMtimes", mtimes(src));
            out.put("configFiles", configFiles(src));
            if (abort || before) {
                Map<String, Object> raw = new TreeMap<>();
                String r = tmp + "/raw";
                Open49.copy(src, r);
                rawDump(r, cfg, raw);
                out.putAll(raw);
                Map<String, Object> qq = q != null && q.get("after_recovery") instanceof Map ? (Map<String, Object>) q.get("after_recovery") : q;
                Map<String, Object> after = new TreeMap<>();
                opened(src, tmp + "/store", cfg, after, qq);
                // names of index files made during recovery are wall-clock times of this run
                Set<String> had = new HashSet<>();
                for (Object o : (List<?>) raw.get("index_files")) had.add((String) ((Map<?, ?>) o).get("name"));
                for (Object o : (List<?>) after.get("index_files")) { Map<String, Object> x = (Map<String, Object>) o; if (!had.contains(x.get("name"))) x.put("name", "(new)"); }
                out.put("after_recovery", after);
                out.put("before", diff(raw, after));
            } else {
                opened(src, tmp + "/store", cfg, out, q);
            }
        } catch (Throwable t) {
            t.printStackTrace();
            StringBuilder sb = new StringBuilder();
            for (Throwable x = t; x != null; x = x.getCause()) sb.append(x).append(" | ");
            out.put("error", sb.toString());
            rc = 3;
        }
        J.write(Paths.get(pos.get(1)), out);
        Open49.rm(tmp.toString());
        Runtime.getRuntime().halt(rc);
    }
    static String rd(String p) throws Exception { return new String(Files.readAllBytes(Paths.get(p)), StandardCharsets.UTF_8); }
    static Map<String, Object> typed(Map<String, Object> cfg) {
        Map<String, Object> t = new TreeMap<>();
        for (Map.Entry<String, Object> e : cfg.entrySet()) {
            Object v = e.getValue();
            if (v instanceof String && ((String) v).matches("-?\\d{1,18}") && !e.getKey().equals("deleteWhen")) v = Long.parseLong((String) v);
            else if ("true".equals(v) || "false".equals(v)) v = Boolean.valueOf((String) v);
            t.put(e.getKey(), v);
        }
        return t;
    }
    static Map<String, Object> mtimes(String root) throws Exception {
        Map<String, Object> t = new TreeMap<>();
        try (Stream<Path> s = Files.walk(Paths.get(root))) {
            for (Path p : s.filter(Files::isRegularFile).collect(Collectors.toList()))
                t.put(Paths.get(root).relativize(p).toString(), Arrays.asList(p.toFile().length(), p.toFile().lastModified()));
        }
        return t;
    }
    static Map<String, Object> configFiles(String root) throws Exception {
        Map<String, Object> t = new TreeMap<>();
        File[] fs = new File(root, "config").listFiles();
        if (fs == null) return t;
        for (File f : fs) {
            if (!f.isFile()) continue;
            String s = rd(f.getPath());
            try { t.put(f.getName(), s.isEmpty() ? null : JSON.parse(s, Feature.OrderedField)); } catch (Exception e) { t.put(f.getName(), J.m("unparsable", e.toString())); }
        }
        return t;
    }

    // ---------------------------------------------------------------- messages
    static String host(SocketAddress s) {
        InetSocketAddress i = (InetSocketAddress) s;
        return i.getAddress().getHostAddress() + ":" + i.getPort();
    }
    static Map<String, Object> msg(ByteBuffer rec) {
        int magic = rec.getInt(4);
        MessageExt raw = MessageDecoder.decode(rec.duplicate(), true, false);
        MessageExt m = MessageDecoder.decode(rec.duplicate(), true, true);
        if (raw == null) return null;
        byte[] sb = raw.getBody() == null ? new byte[0] : raw.getBody();
        byte[] db = m == null ? null : m.getBody() == null ? new byte[0] : m.getBody();
        Map<String, Object> x = J.m(
            "commitLogOffset", raw.getCommitLogOffset(), "storeSize", raw.getStoreSize(), "magic", "0x" + Integer.toHexString(magic),
            "topic", raw.getTopic(), "queueId", raw.getQueueId(), "queueOffset", raw.getQueueOffset(), "flag", raw.getFlag(), "sysFlag", raw.getSysFlag(),
            "bornTimestamp", raw.getBornTimestamp(), "bornHost", host(raw.getBornHost()), "storeTimestamp", raw.getStoreTimestamp(), "storeHost", host(raw.getStoreHost()),
            "reconsumeTimes", raw.getReconsumeTimes(), "preparedTransactionOffset", raw.getPreparedTransactionOffset(), "bodyCRC", raw.getBodyCRC(),
            "storedBodyLength", sb.length, "storedBodySha256", J.sha(sb), "bodyLength", db == null ? null : db.length, "bodySha256", db == null ? null : J.sha(db),
            "properties", raw.getProperties() == null ? new TreeMap<String, String>() : new TreeMap<>(raw.getProperties()), "tags", raw.getTags(), "keys", raw.getKeys(), "uniqKey", raw.getProperty("UNIQ_KEY"),
            "offsetMsgId", raw.getMsgId());
        // which id a client sees: MessageExt.getMsgId of a client decode (UNIQ_KEY when there is one)
        x.put("recordSha256", J.sha(bytes(rec)));
        return x;
    }
    static byte[] bytes(ByteBuffer b) { byte[] r = new byte[b.remaining()]; b.duplicate().get(r); return r; }

    /** Walk: files = list of (fileFromOffset, buffer limited to the readable end). */
    static void walk(List<Object[]> files, List<Object> msgs, List<Object> blanks, List<Object> stops) {
        for (Object[] f : files) {
            long from = (Long) f[0];
            ByteBuffer b = ((ByteBuffer) f[1]).duplicate();
            int pos = 0, lim = b.limit();
            while (pos + 8 <= lim) {
                int size = b.getInt(pos), magic = b.getInt(pos + 4);
                if (magic == -875286124) { blanks.add(J.m("commitLogOffset", from + pos, "size", size)); break; }
                int off = 0;
                if (size == -1 && magic > 0 || (size == 1 && magic >= 48)) { // DLedger entry / blank: magic first, then size
                    if (size == -1) { blanks.add(J.m("commitLogOffset", from + pos, "size", magic, "dledger", true)); break; }
                    off = 48;
                    int tot = magic;
                    if (pos + tot > lim) { stops.add(J.m("offset", from + pos, "why", "entry beyond end")); break; }
                    Map<String, Object> e = J.m("entryPos", b.getLong(pos + 24), "entryIndex", b.getLong(pos + 8), "entryTerm", b.getLong(pos + 16), "entrySize", tot, "channel", b.getInt(pos + 32), "chainCrc", b.getInt(pos + 36), "bodyCrc", b.getInt(pos + 40));
                    ByteBuffer r = b.duplicate(); r.position(pos + 48); r.limit(pos + tot);
                    Map<String, Object> x = msg(r.slice());
                    x.put("dledger", e);
                    msgs.add(x);
                    pos += tot;
                    continue;
                }
                if (magic != -626843481) { stops.add(J.m("offset", from + pos, "size", size, "magic", "0x" + Integer.toHexString(magic))); break; }
                if (size < 91 || pos + (long) size > lim) { stops.add(J.m("offset", from + pos, "size", size, "why", "size out of file")); break; }
                ByteBuffer r = b.duplicate(); r.position(pos); r.limit(pos + size);
                Map<String, Object> x;
                try { x = msg(r.slice()); } catch (Throwable t) { x = null; }
                if (x == null) { stops.add(J.m("offset", from + pos, "size", size, "why", "decode failed")); break; }
                if ((Long) x.get("commitLogOffset") != from + pos) x.put("recordPosition", from + pos);
                msgs.add(x);
                pos += size;
            }
        }
    }
    static List<Object[]> rawFiles(List<File> dirs, int size) throws Exception {
        TreeMap<String, File> t = new TreeMap<>();
        for (File d : dirs) { File[] fs = d.listFiles(); if (fs != null) for (File f : fs) if (f.isFile() && f.length() > 0) t.put(f.getName(), f); }
        List<Object[]> r = new ArrayList<>();
        for (File f : t.values()) {
            MappedFile mf = new MappedFile(f.getPath(), (int) f.length());
            r.add(new Object[]{Long.parseLong(f.getName()), mf.getMappedByteBuffer()});
        }
        return r;
    }
    static List<File> clDirs(String root, Map<String, Object> cfg) {
        MessageStoreConfig c = Open49.config(root, cfg);
        List<File> r = new ArrayList<>();
        if (c.isEnableDLegerCommitLog()) r.add(new File(root + "/dledger-" + c.getdLegerSelfId() + "/data"));
        for (String s : c.getStorePathCommitLog().split(",")) r.add(new File(s.trim()));
        if (c.getReadOnlyCommitLogStorePaths() != null) for (String s : c.getReadOnlyCommitLogStorePaths().split(",")) r.add(new File(s.trim()));
        return r;
    }
    static Map<String, Object> cp(StoreCheckpoint c) {
        return J.m("physicMsgTimestamp", c.getPhysicMsgTimestamp(), "logicsMsgTimestamp", c.getLogicsMsgTimestamp(), "indexMsgTimestamp", c.getIndexMsgTimestamp(),
            "minTimestamp", c.getMinTimestamp(), "minTimestampIndex", c.getMinTimestampIndex());
    }
    static Map<String, Object> idx(IndexFile f) {
        IndexHeader h = (IndexHeader) Open49.field(f, "indexHeader");
        return J.m("name", new File(f.getFileName()).getName(), "beginTimestamp", h.getBeginTimestamp(), "endTimestamp", h.getEndTimestamp(),
            "beginPhyOffset", h.getBeginPhyOffset(), "endPhyOffset", h.getEndPhyOffset(), "hashSlotCount", h.getHashSlotCount().get(), "indexCount", h.getIndexCount());
    }
    static Map<String, Object> queue(ConsumeQueue cq) {
        long min = cq.getMinOffsetInQueue(), max = cq.getMaxOffsetInQueue();
        MappedFileQueue mfq = (MappedFileQueue) Open49.field(cq, "mappedFileQueue");
        long first = mfq.getMappedFiles().isEmpty() ? 0 : mfq.getMinOffset() / 20;
        List<Object> units = new ArrayList<>(), pre = new ArrayList<>(), ext = new ArrayList<>();
        for (long i = Math.max(0, first); i < max; ) {
            SelectMappedBufferResult r = cq.getIndexBuffer(i);
            if (r == null) { i++; continue; }
            try {
                for (int p = 0; p + 20 <= r.getSize(); p += 20, i++) {
                    long[] u = {r.getByteBuffer().getLong(p), r.getByteBuffer().getInt(p + 8), r.getByteBuffer().getLong(p + 12)};
                    (i < min ? pre : units).add(u);
                    if (cq.isExtAddr(u[2])) {
                        ConsumeQueueExt.CqExtUnit x = cq.getExt(u[2]);
                        ext.add(x == null ? J.m("queueOffset", i, "found", false) : J.m("queueOffset", i, "found", true, "size", x.getSize(), "tagsCode", x.getTagsCode(), "msgStoreTime", x.getMsgStoreTime(),
                            "filterBitMap", x.getFilterBitMap() == null ? null : J.hex(x.getFilterBitMap())));
                    }
                }
            } finally { r.release(); }
        }
        Map<String, Object> m = J.m("minOffset", min, "maxOffset", max, "units", units, "firstFileOffset", first, "unitsFrom", Math.max(min, first), "maxPhysicOffset", cq.getMaxPhysicOffset());
        if (!pre.isEmpty()) m.put("unitsBeforeMin", pre);
        if (!ext.isEmpty()) m.put("ext", ext);
        return m;
    }
    static void rawDump(String root, Map<String, Object> cfg, Map<String, Object> out) throws Exception {
        MessageStoreConfig c = Open49.config(root, cfg);
        List<Object> msgs = new ArrayList<>(), blanks = new ArrayList<>(), stops = new ArrayList<>();
        walk(rawFiles(clDirs(root, cfg), c.getMappedFileSizeCommitLog()), msgs, blanks, stops);
        out.put("messages", msgs); out.put("blanks", blanks); out.put("walkStops", stops);
        // consume queues: real ConsumeQueue load() + recover(), no cut against the commit log
        DefaultMessageStore s = new Open49.Store(c, new org.apache.rocketmq.common.BrokerConfig(), false, new Open49.Clock());
        Map<String, Object> qs = new TreeMap<>();
        File[] ts = new File(root, "consumequeue").listFiles();
        if (ts != null) for (File t : ts) {
            Map<String, Object> per = new TreeMap<>();
            File[] ids = t.listFiles();
            if (ids != null) for (File q : ids) {
                if (!q.getName().matches("\\d+")) continue;
                ConsumeQueue cq = new ConsumeQueue(t.getName(), Integer.parseInt(q.getName()), root + "/consumequeue", c.getMappedFileSizeConsumeQueue(), s);
                if (!cq.load()) { per.put(q.getName(), J.m("loadFailed", true)); continue; }
                cq.recover();
                per.put(q.getName(), queue(cq));
            }
            if (!per.isEmpty()) qs.put(t.getName(), per);
        }
        out.put("queues", qs);
        Path cpf = Paths.get(root, "checkpoint");
        out.put("checkpoint", Files.exists(cpf) ? cp(new StoreCheckpoint(cpf.toString())) : null);
        List<Object> ix = new ArrayList<>();
        File[] is = new File(root, "index").listFiles();
        if (is != null) {
            Arrays.sort(is);
            for (File f : is) { IndexFile x = new IndexFile(f.getPath(), c.getMaxHashSlotNum(), c.getMaxIndexNum(), 0, 0); x.load(); ix.add(idx(x)); }
        }
        out.put("index_files", ix);
        attachTags(msgs, qs);
        check(s, c, root, cfg, msgs);
    }
    /** the real record check (with CRC); only failures are noted */
    static void check(DefaultMessageStore s, MessageStoreConfig c, String root, Map<String, Object> cfg, List<Object> msgs) throws Exception {
        if (c.isEnableDLegerCommitLog()) return;
        TreeMap<Long, ByteBuffer> f = new TreeMap<>();
        for (Object[] x : rawFiles(clDirs(root, cfg), 0)) f.put((Long) x[0], (ByteBuffer) x[1]);
        for (Object o : msgs) {
            Map<String, Object> m = (Map<String, Object>) o;
            long off = m.containsKey("recordPosition") ? (Long) m.get("recordPosition") : (Long) m.get("commitLogOffset");
            Map.Entry<Long, ByteBuffer> e = f.floorEntry(off);
            ByteBuffer b = e.getValue().duplicate();
            b.position((int) (off - e.getKey()));
            DispatchRequest r = s.getCommitLog().checkMessageAndReturnSize(b, true, true);
            if (!r.isSuccess()) m.put("recordCheck", "failed, size " + r.getMsgSize());
        }
    }
    static void attachTags(List<Object> msgs, Map<String, Object> qs) {
        Map<String, Long> t = new HashMap<>();
        for (Map.Entry<String, Object> e : qs.entrySet())
            for (Map.Entry<String, Object> f : ((Map<String, Object>) e.getValue()).entrySet()) {
                Map<String, Object> q = (Map<String, Object>) f.getValue();
                for (String k : new String[]{"unitsBeforeMin", "units"})
                    if (q.get(k) != null) for (Object u : (List<Object>) q.get(k)) { long[] x = (long[]) u; t.put(e.getKey() + "@" + f.getKey() + "@" + x[0], x[2]); }
            }
        for (Object o : msgs) {
            Map<String, Object> m = (Map<String, Object>) o;
            m.put("tagsCodeInQueue", t.get(m.get("topic") + "@" + m.get("queueId") + "@" + m.get("commitLogOffset")));
        }
    }
    static Map<String, Object> diff(Map<String, Object> raw, Map<String, Object> after) {
        int a = ((List<?>) raw.get("messages")).size(), b = ((List<?>) after.get("messages")).size();
        Map<String, Object> q = new TreeMap<>();
        Map<String, Object> q1 = (Map<String, Object>) raw.get("queues"), q2 = (Map<String, Object>) after.get("queues");
        TreeSet<String> all = new TreeSet<>(q1.keySet()); all.addAll(q2.keySet());
        for (String t : all) {
            Map<String, Object> x = (Map<String, Object>) q1.getOrDefault(t, new TreeMap<String, Object>()), y = (Map<String, Object>) q2.getOrDefault(t, new TreeMap<String, Object>());
            TreeSet<String> ids = new TreeSet<>(x.keySet()); ids.addAll(y.keySet());
            for (String i : ids) {
                Object m1 = x.get(i) == null ? null : ((Map<?, ?>) x.get(i)).get("maxOffset"), m2 = y.get(i) == null ? null : ((Map<?, ?>) y.get(i)).get("maxOffset");
                if (!Objects.equals(m1, m2)) q.put(t + "@" + i, J.m("maxOffsetBefore", m1, "maxOffsetAfter", m2));
            }
        }
        TreeSet<String> n1 = new TreeSet<>(), n2 = new TreeSet<>();
        for (Object o : (List<?>) raw.get("index_files")) n1.add((String) ((Map<?, ?>) o).get("name"));
        for (Object o : (List<?>) after.get("index_files")) n2.add((String) ((Map<?, ?>) o).get("name"));
        return J.m("messagesBefore", a, "messagesAfter", b, "queuesChanged", q, "indexFilesBefore", n1, "indexFilesAfter", n2, "max_phy_after", after.get("max_phy"));
    }

    // ---------------------------------------------------------------- opened store
    static void opened(String src, String root, Map<String, Object> cfg, Map<String, Object> out, Map<String, Object> q) throws Exception {
        Open49.copy(src, root);
        Path cpf = Paths.get(root, "checkpoint");
        if (Files.exists(cpf)) { StoreCheckpoint c = new StoreCheckpoint(cpf.toString()); out.put("checkpoint", cp(c)); c.shutdown(); } else out.put("checkpoint", null);
        DefaultMessageStore s = Open49.open(root, cfg, true, null);
        for (int i = 0; i < 300 && s.dispatchBehindBytes() > 0; i++) Thread.sleep(20);
        out.put("dispatchBehindBytes", s.dispatchBehindBytes());
        out.put("min_phy", s.getMinPhyOffset());
        out.put("max_phy", s.getMaxPhyOffset());
        boolean dl = s.getMessageStoreConfig().isEnableDLegerCommitLog();
        List<Object> msgs = new ArrayList<>(), blanks = new ArrayList<>(), stops = new ArrayList<>();
        List<Object[]> files = new ArrayList<>();
        if (dl) files = rawFiles(clDirs(root, cfg), 0);
        else for (MappedFile f : ((MappedFileQueue) Open49.field(s.getCommitLog(), "mappedFileQueue")).getMappedFiles()) {
            ByteBuffer b = f.sliceByteBuffer();
            b.limit(f.getReadPosition());
            files.add(new Object[]{f.getFileFromOffset(), b});
        }
        walk(files, msgs, blanks, stops);
        out.put("messages", msgs); out.put("blanks", blanks);
        if (!stops.isEmpty()) out.put("walkStops", stops);
        List<Object> fl = new ArrayList<>();
        for (Object[] f : files) fl.add(Arrays.asList(f[0], ((ByteBuffer) f[1]).limit()));
        out.put("commitLogFiles", fl);
        Map<String, Object> qs = new TreeMap<>();
        TreeSet<String> mem = new TreeSet<>();
        for (Map.Entry<String, ConcurrentMap<Integer, ConsumeQueue>> e : s.getConsumeQueueTable().entrySet()) {
            Map<String, Object> per = new TreeMap<>();
            for (Map.Entry<Integer, ConsumeQueue> f : e.getValue().entrySet()) {
                if (((MappedFileQueue) Open49.field(f.getValue(), "mappedFileQueue")).getMappedFiles().isEmpty()) { mem.add(e.getKey() + "@" + f.getKey()); continue; }
                Map<String, Object> x = queue(f.getValue());
                x.put("earliestMessageTime", s.getEarliestMessageTime(e.getKey(), f.getKey()));
                per.put(String.valueOf(f.getKey()), x);
            }
            if (!per.isEmpty()) qs.put(e.getKey(), per);
        }
        out.put("queues", qs);
        if (!mem.isEmpty()) out.put("queuesWithoutFiles", mem);
        attachTags(msgs, qs);
        out.put("topicQueueTable", new TreeMap<>(s.getCommitLog().getTopicQueueTable()));
        List<Object> ix = new ArrayList<>();
        for (Object f : new ArrayList<>((List<?>) Open49.field(Open49.field(s, "indexService"), "indexFileList"))) ix.add(idx((IndexFile) f));
        out.put("index_files", ix);
        // cross check: every record is found again by its physical offset
        List<Object> lost = new ArrayList<>();
        for (Object o : msgs) {
            Map<String, Object> m = (Map<String, Object>) o;
            MessageExt e = s.lookMessageByOffset((Long) m.get("commitLogOffset"));
            if (e == null || !e.getMsgId().equals(m.get("offsetMsgId"))) lost.add(m.get("commitLogOffset"));
        }
        if (!lost.isEmpty()) out.put("lookMessageByOffsetFails", lost);

        if (q == null) q = makeQueries(s, msgs, qs);
        List<Object> r1 = new ArrayList<>(), r2 = new ArrayList<>(), r3 = new ArrayList<>();
        for (Object o : (List<Object>) q.getOrDefault("queryMessage", new ArrayList<>())) {
            Map<String, Object> x = new TreeMap<>((Map<String, Object>) o);
            QueryMessageResult r = s.queryMessage((String) x.get("topic"), (String) x.get("key"), n(x, "maxNum").intValue(), n(x, "begin"), n(x, "end"));
            List<Object> ph = new ArrayList<>();
            for (ByteBuffer b : r.getMessageBufferList()) ph.add(b.getLong(b.position() + 28));
            x.put("phyOffsets", ph);
            x.put("indexLastUpdateTimestamp", r.getIndexLastUpdateTimestamp());
            x.put("indexLastUpdatePhyoffset", r.getIndexLastUpdatePhyoffset());
            r.release();
            r1.add(x);
        }
        for (Object o : (List<Object>) q.getOrDefault("offsetByTime", new ArrayList<>())) {
            Map<String, Object> x = new TreeMap<>((Map<String, Object>) o);
            x.put("offset", s.getOffsetInQueueByTime((String) x.get("topic"), n(x, "queueId").intValue(), n(x, "timestamp")));
            r2.add(x);
        }
        for (Object o : (List<Object>) q.getOrDefault("getMessage", new ArrayList<>())) {
            Map<String, Object> x = new TreeMap<>((Map<String, Object>) o);
            String sub = (String) x.get("subscription");
            MessageFilter f = null;
            if (sub != null) { SubscriptionData d = FilterAPI.buildSubscriptionData((String) x.get("topic"), sub); f = new DefaultMessageFilter(d); }
            GetMessageResult r = s.getMessage((String) x.get("group"), (String) x.get("topic"), n(x, "queueId").intValue(), n(x, "offset"), n(x, "maxMsgNums").intValue(), f);
            List<Object> ph = new ArrayList<>();
            for (SelectMappedBufferResult b : r.getMessageMapedList()) ph.add(b.getByteBuffer().getLong(b.getByteBuffer().position() + 28));
            x.put("phyOffsets", ph);
            x.put("status", r.getStatus().name());
            x.put("nextBeginOffset", r.getNextBeginOffset());
            x.put("minOffset", r.getMinOffset());
            x.put("maxOffset", r.getMaxOffset());
            x.put("suggestPullingFromSlave", r.isSuggestPullingFromSlave());
            r.release();
            r3.add(x);
        }
        out.put("queryMessage", r1); out.put("offsetByTime", r2); out.put("getMessage", r3);
        ids(msgs, out);
        if (!dl) check(s, s.getMessageStoreConfig(), root, cfg, msgs);
        if (put && !dl) putProbe(s, out);
        s.shutdown();
    }
    /** the real store appends one message to every queue and must find it again */
    static void putProbe(DefaultMessageStore s, Map<String, Object> out) throws Exception {
        List<Object> l = new ArrayList<>();
        TreeMap<String, Long> t = new TreeMap<>(s.getCommitLog().getTopicQueueTable());
        for (Map.Entry<String, Long> e : t.entrySet()) {
            int d = e.getKey().lastIndexOf('-');
            String topic = e.getKey().substring(0, d); int q = Integer.parseInt(e.getKey().substring(d + 1));
            if (topic.equals("SCHEDULE_TOPIC_XXXX")) continue;
            MessageExtBrokerInner m = new MessageExtBrokerInner();
            m.setTopic(topic); m.setQueueId(q); m.setBody("probe".getBytes()); m.setTags("Probe"); m.setKeys("probe-key");
            m.setBornHost(new InetSocketAddress("127.0.0.1", 1)); m.setStoreHost(new InetSocketAddress("127.0.0.1", 10911)); m.setBornTimestamp(1);
            m.setTagsCode("Probe".hashCode());
            m.setPropertiesString(MessageDecoder.messageProperties2String(m.getProperties()));
            PutMessageResult r = s.putMessage(m);
            Map<String, Object> x = J.m("topic", topic, "queueId", q, "expectedQueueOffset", e.getValue(), "status", r.getPutMessageStatus().name());
            if (r.isOk()) {
                x.put("queueOffset", r.getAppendMessageResult().getLogicsOffset()); x.put("commitLogOffset", r.getAppendMessageResult().getWroteOffset());
                for (int i = 0; i < 200 && s.dispatchBehindBytes() > 0; i++) Thread.sleep(5);
                GetMessageResult g = s.getMessage("truth", topic, q, e.getValue(), 1, null);
                x.put("readBack", g.getMessageCount() == 1 && g.getMessageMapedList().get(0).getByteBuffer().getLong(28) == r.getAppendMessageResult().getWroteOffset());
                QueryMessageResult k = s.queryMessage(topic, "probe-key", 4, 0, Long.MAX_VALUE);
                x.put("foundByKey", k.getMessageBufferList().size());
                g.release(); k.release();
            }
            l.add(x);
        }
        out.put("putProbe", l);
    }
    static Long n(Map<String, Object> m, String k) { return ((Number) m.get(k)).longValue(); }

    static void ids(List<Object> msgs, Map<String, Object> out) {
        List<Object> a = new ArrayList<>(), b = new ArrayList<>();
        Set<String> seen = new HashSet<>();
        int step = Math.max(1, msgs.size() / 60);
        for (int i = 0; i < msgs.size(); i++) {
            Map<String, Object> m = (Map<String, Object>) msgs.get(i);
            String h = (String) m.get("storeHost");
            if (i % step == 0 || seen.add(h)) {
                String id = (String) m.get("offsetMsgId");
                try { MessageId d = MessageDecoder.decodeMessageId(id); a.add(J.m("offsetMsgId", id, "host", host(d.getAddress()), "commitLogOffset", d.getOffset())); }
                catch (Exception e) { a.add(J.m("offsetMsgId", id, "error", e.toString())); }
            }
            String u = (String) m.get("uniqKey");
            if (u != null && (i % step == 0 || seen.add(u.substring(0, Math.min(20, u.length())))) && u.matches("[0-9A-Fa-f]{32}|[0-9A-Fa-f]{56}")) {
                try { b.add(J.m("uniqKey", u, "ip", MessageClientIDSetter.getIPStrFromID(u), "pid", MessageClientIDSetter.getPidFromID(u), "timestamp", MessageClientIDSetter.getNearlyTimeFromID(u).getTime(),
                    "counter", Integer.parseInt(u.substring(u.length() - 4), 16), "bornTimestamp", m.get("bornTimestamp"))); } catch (Exception e) { b.add(J.m("uniqKey", u, "error", e.toString())); }
            }
        }
        out.put("msgIds", a); out.put("uniqIds", b);
        out.put("decodedInTimeZone", TimeZone.getDefault().getID());
    }

    // ---------------------------------------------------------------- queries
    static Map<String, Object> makeQueries(DefaultMessageStore s, List<Object> msgs, Map<String, Object> qs) {
        List<Object> q1 = new ArrayList<>(), q2 = new ArrayList<>(), q3 = new ArrayList<>();
        TreeMap<String, List<Long>> hits = new TreeMap<>(); // topic \0 key -> store times
        Set<String> keySet = new TreeSet<>();
        for (Object o : msgs) {
            Map<String, Object> m = (Map<String, Object>) o;
            List<String> ks = new ArrayList<>();
            if (m.get("uniqKey") != null) ks.add((String) m.get("uniqKey"));
            if (m.get("keys") != null) for (String k : ((String) m.get("keys")).split(" ")) if (!k.isEmpty()) { ks.add(k); keySet.add(k); }
            for (String k : ks) hits.computeIfAbsent(m.get("topic") + "\0" + k, z -> new ArrayList<>()).add((Long) m.get("storeTimestamp"));
        }
        // groups of keys whose hash collides inside one topic
        Map<String, List<String>> byHash = new TreeMap<>();
        for (String tk : hits.keySet()) { String[] p = tk.split("\0"); byHash.computeIfAbsent(p[0] + "\0" + (p[0] + "#" + p[1]).hashCode(), z -> new ArrayList<>()).add(tk); }
        LinkedHashSet<String> pick = new LinkedHashSet<>();
        for (List<String> g : byHash.values()) if (g.size() > 1) pick.addAll(g);
        List<String> byCount = new ArrayList<>(hits.keySet());
        byCount.sort((x, y) -> hits.get(y).size() != hits.get(x).size() ? hits.get(y).size() - hits.get(x).size() : x.compareTo(y));
        for (int i = 0; i < Math.min(25, byCount.size()); i++) pick.add(byCount.get(i));
        List<String> all = new ArrayList<>(hits.keySet());
        int step = Math.max(1, all.size() / 90);
        for (int i = 0; i < all.size(); i += step) pick.add(all.get(i));
        int cnt = 0;
        for (String tk : pick) {
            String[] p = tk.split("\0");
            List<Long> ts = hits.get(tk);
            add1(q1, p[0], p[1], 32, 0, Long.MAX_VALUE);
            if (cnt++ < 30) {
                long f = ts.get(0), l = ts.get(ts.size() - 1), mid = ts.get(ts.size() / 2);
                add1(q1, p[0], p[1], 1, 0, Long.MAX_VALUE);
                if (ts.size() > 2) add1(q1, p[0], p[1], 2, 0, Long.MAX_VALUE);
                if (ts.size() > 32) { add1(q1, p[0], p[1], 64, 0, Long.MAX_VALUE); add1(q1, p[0], p[1], 100, 0, Long.MAX_VALUE); }
                add1(q1, p[0], p[1], 32, mid, mid);
                add1(q1, p[0], p[1], 32, mid - 1000, mid + 1000);
                add1(q1, p[0], p[1], 32, f, mid);
                add1(q1, p[0], p[1], 32, mid + 1, l);
                add1(q1, p[0], p[1], 32, l + 1001, Long.MAX_VALUE);
                add1(q1, p[0], p[1], 32, 0, f - 1);
                add1(q1, p[0], p[1], 3, 0, mid);
            }
        }
        String anyTopic = hits.isEmpty() ? "T" : hits.firstKey().split("\0")[0];
        add1(q1, anyTopic, "no-such-key", 32, 0, Long.MAX_VALUE);
        add1(q1, "NoSuchTopic", keySet.isEmpty() ? "k" : keySet.iterator().next(), 32, 0, Long.MAX_VALUE);
        add1(q1, anyTopic, "", 32, 0, Long.MAX_VALUE);
        int c2 = 0;
        for (String t : new TreeSet<>(qs.keySet())) { // same key asked in every topic
            if (c2++ > 12) break;
            int c3 = 0;
            for (String k : keySet) { if (c3++ % Math.max(1, keySet.size() / 4) != 0) continue; add1(q1, t, k, 32, 0, Long.MAX_VALUE); }
        }
        // by time and getMessage
        Map<String, TreeSet<String>> tags = new TreeMap<>();
        for (Object o : msgs) { Map<String, Object> m = (Map<String, Object>) o; if (m.get("tags") != null && tags.computeIfAbsent((String) m.get("topic"), z -> new TreeSet<>()).size() < 6) tags.get(m.get("topic")).add((String) m.get("tags")); }
        int nq = 0;
        for (Map.Entry<String, Object> e : qs.entrySet()) for (Map.Entry<String, Object> f : ((Map<String, Object>) e.getValue()).entrySet()) {
            if (nq++ > 40) continue;
            String t = e.getKey(); int qid = Integer.parseInt(f.getKey());
            Map<String, Object> qq = (Map<String, Object>) f.getValue();
            long min = (Long) qq.get("minOffset"), max = (Long) qq.get("maxOffset");
            TreeSet<Long> ts = new TreeSet<>(Arrays.asList(0L, 1L));
            List<Long> st = new ArrayList<>();
            for (long i = Math.max(0, min); i < max; i++) { long x = s.getMessageStoreTimeStamp(t, qid, i); if (x > 0) st.add(x); }
            if (!st.isEmpty()) {
                long a = st.get(0), z = st.get(st.size() - 1);
                ts.addAll(Arrays.asList(a - 1000, a - 1, a, a + 1, z - 1, z, z + 1, z + 60000, z + 86400000L));
                for (int k = 1; k < 6; k++) { long x = st.get(st.size() * k / 6); ts.add(x); ts.add(x + 1); ts.add(x - 1); int j = Math.min(st.size() - 1, st.size() * k / 6 + 1); ts.add((x + st.get(j)) / 2); }
            }
            for (long x : ts) q2.add(J.m("topic", t, "queueId", qid, "timestamp", x));
            LinkedHashSet<Long> offs = new LinkedHashSet<>(Arrays.asList(min, 0L, -1L, min - 1, (min + max) / 2, max - 1, max, max + 1, max + 100));
            for (long o : offs) for (int mm : new int[]{32}) add3(q3, t, qid, o, mm, null);
            add3(q3, t, qid, min, 1, null); add3(q3, t, qid, min, 5, null); add3(q3, t, qid, min, 64, null); add3(q3, t, qid, min, 800, null);
            add3(q3, t, qid, min, 32, "*");
            add3(q3, t, qid, (min + max) / 2, 32, "*");
            add3(q3, t, qid, min, 32, "NoSuchTag");
            if (tags.get(t) != null) {
                List<String> tg = new ArrayList<>(tags.get(t));
                for (String g : tg) if (!g.contains("||") && !g.trim().isEmpty()) { add3(q3, t, qid, min, 32, g); add3(q3, t, qid, min, 3, g); }
                if (tg.size() > 1) { add3(q3, t, qid, min, 32, tg.get(0) + " || " + tg.get(1)); add3(q3, t, qid, (min + max) / 2, 4, tg.get(0) + "||" + tg.get(tg.size() - 1) + " || NoSuchTag"); }
            }
        }
        add3(q3, "NoSuchTopic", 0, 0, 32, null);
        add3(q3, "NoSuchTopic", 0, 7, 32, null);
        q2.add(J.m("topic", "NoSuchTopic", "queueId", 0, "timestamp", 1L));
        return J.m("queryMessage", q1, "offsetByTime", q2, "getMessage", q3);
    }
    static void add1(List<Object> l, String t, String k, int n, long b, long e) { Map<String, Object> m = J.m("topic", t, "key", k, "maxNum", n, "begin", b, "end", e); if (!l.contains(m)) l.add(m); }
    static void add3(List<Object> l, String t, int q, long o, int n, String s) { Map<String, Object> m = J.m("group", "truth", "topic", t, "queueId", q, "offset", o, "maxMsgNums", n, "subscription", s); if (!l.contains(m)) l.add(m); }
}
