import java.io.*;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.*;
import org.apache.rocketmq.remoting.protocol.*;

/** read IN OUT: decodes the frames of a file and writes what they say. write OUT COUNT SEED: encodes commands of its own, and writes what they say. */
public class FrameExchange {
    public static void main(String[] a) throws Exception {
        if (a[0].equals("read")) read(a[1], a[2]); else write(a[1], Integer.parseInt(a[2]), Long.parseLong(a[3]));
        System.exit(0);
    }

    static String b64(byte[] bytes) { return bytes == null || bytes.length == 0 ? "-" : Base64.getEncoder().encodeToString(bytes); }
    static String b64(String text) { return text == null ? "-" : "=" + Base64.getEncoder().encodeToString(text.getBytes(StandardCharsets.UTF_8)); }

    static String told(RemotingCommand c) {
        StringBuilder line = new StringBuilder();
        line.append(c.getCode()).append('\t').append(c.getLanguage()).append('\t').append(c.getVersion()).append('\t').append(c.getOpaque()).append('\t')
            .append(c.getFlag()).append('\t').append(c.getSerializeTypeCurrentRPC()).append('\t').append(b64(c.getRemark())).append('\t').append(b64(c.getBody()));
        Map<String, String> fields = c.getExtFields() == null ? Collections.emptyMap() : new TreeMap<>(c.getExtFields());
        for (Map.Entry<String, String> e : fields.entrySet()) line.append('\t').append(b64(e.getKey())).append(' ').append(b64(e.getValue()));
        return line.toString();
    }

    static void read(String in, String out) throws Exception {
        try (DataInputStream frames = new DataInputStream(new BufferedInputStream(new FileInputStream(in))); PrintWriter lines = new PrintWriter(out, "UTF-8")) {
            for (;;) {
                int length;
                try { length = frames.readInt(); } catch (EOFException e) { return; }
                byte[] frame = new byte[length];
                frames.readFully(frame);
                String line;
                try { line = told(RemotingCommand.decode(frame)); } catch (Throwable t) { line = "failed\t" + t; }
                lines.println(line);
            }
        }
    }

    static void write(String out, int count, long seed) throws Exception {
        Random dice = new Random(seed);
        try (DataOutputStream frames = new DataOutputStream(new BufferedOutputStream(new FileOutputStream(out))); PrintWriter lines = new PrintWriter(out + ".tsv", "UTF-8")) {
            for (int n = 0; n < count; n++) {
                RemotingCommand c = RemotingCommand.createRequestCommand(dice.nextInt(0x8000), null);
                c.setOpaque(dice.nextInt());
                c.setVersion(dice.nextInt(700));
                c.setLanguage(LanguageCode.values()[dice.nextInt(LanguageCode.values().length)]);
                if (dice.nextBoolean()) c.markOnewayRPC();
                if (dice.nextBoolean()) c.markResponseType();
                if (dice.nextBoolean()) c.setRemark(text(dice, 1));
                for (int i = dice.nextInt(6); i > 0; i--) c.addExtField(text(dice, 1), text(dice, dice.nextBoolean() ? 0 : 1));
                if (dice.nextBoolean()) { byte[] body = new byte[dice.nextInt(50)]; dice.nextBytes(body); c.setBody(body); }
                c.setSerializeTypeCurrentRPC(dice.nextBoolean() ? SerializeType.JSON : SerializeType.ROCKETMQ);
                ByteBuffer frame = c.encode();
                byte[] bytes = new byte[frame.remaining()];
                frame.get(bytes);
                frames.write(bytes);
                lines.println(told(c));
            }
        }
    }

    static String text(Random dice, int least) {
        StringBuilder text = new StringBuilder();
        for (int i = least + dice.nextInt(12); i > 0; i--) text.appendCodePoint(dice.nextInt(4) == 0 ? new int[] {1, 2, 9, 34, 92, 0x7f, 0xe9, 0x2028, 0x4e2d, 0x1f600}[dice.nextInt(10)] : 32 + dice.nextInt(95));
        return text.toString();
    }
}
