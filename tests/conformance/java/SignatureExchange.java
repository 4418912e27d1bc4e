import java.io.*;
import java.nio.ByteBuffer;
import java.util.*;
import org.apache.rocketmq.acl.common.*;
import org.apache.rocketmq.remoting.protocol.*;

/** sign OUT COUNT SEED KEY SECRET: frames of requests that the real client hook signed. check IN OUT SECRET: of each frame, whether its signature is what the real classes compute. */
public class SignatureExchange {
    public static void main(String[] a) throws Exception {
        if (a[0].equals("sign")) sign(a[1], Integer.parseInt(a[2]), Long.parseLong(a[3]), a[4], a[5]); else check(a[1], a[2], a[3]);
        System.exit(0);
    }

    static void sign(String out, int count, long seed, String key, String secret) throws Exception {
        AclClientRPCHook hook = new AclClientRPCHook(new SessionCredentials(key, secret));
        Random dice = new Random(seed);
        try (DataOutputStream frames = new DataOutputStream(new BufferedOutputStream(new FileOutputStream(out)))) {
            for (int n = 0; n < count; n++) {
                RemotingCommand c = RemotingCommand.createRequestCommand(dice.nextInt(400), null);
                for (int i = 1 + dice.nextInt(8); i > 0; i--) c.addExtField(text(dice, 1), text(dice, 0));
                if (dice.nextInt(4) == 0) c.addExtField("_UNIQUE_KEY_QUERY", "true");
                byte[] body = new byte[dice.nextInt(60)];
                dice.nextBytes(body);
                c.setBody(body);
                c.setSerializeTypeCurrentRPC(dice.nextBoolean() ? SerializeType.JSON : SerializeType.ROCKETMQ);
                hook.doBeforeRequest("127.0.0.1:10911", c);
                ByteBuffer frame = c.encode();
                byte[] bytes = new byte[frame.remaining()];
                frame.get(bytes);
                frames.write(bytes);
            }
        }
    }

    static void check(String in, String out, String secret) throws Exception {
        try (DataInputStream frames = new DataInputStream(new BufferedInputStream(new FileInputStream(in))); PrintWriter lines = new PrintWriter(out, "UTF-8")) {
            for (;;) {
                int length;
                try { length = frames.readInt(); } catch (EOFException e) { return; }
                byte[] frame = new byte[length];
                frames.readFully(frame);
                RemotingCommand c = RemotingCommand.decode(frame);
                byte[] content = AclUtils.combineRequestContent(c, new TreeMap<>(c.getExtFields()));
                lines.println(AclUtils.calSignature(content, secret).equals(c.getExtFields().get("Signature")));
            }
        }
    }

    static String text(Random dice, int least) {
        StringBuilder text = new StringBuilder();
        for (int i = least + dice.nextInt(10); i > 0; i--) text.appendCodePoint(dice.nextInt(6) == 0 ? new int[] {1, 2, 34, 92, 0xe9, 0x4e2d}[dice.nextInt(6)] : 33 + dice.nextInt(94));
        return text.toString();
    }
}
