import java.io.*;
import java.lang.reflect.*;
import java.nio.charset.StandardCharsets;
import java.util.*;
import java.util.concurrent.*;
import java.util.concurrent.atomic.*;
import java.util.jar.*;
import org.apache.rocketmq.remoting.protocol.RemotingSerializable;

/**
 * write OUT NAME...: an object of each class by that simple name, every field filled, as the real classes write it. read IN OUT: each line a
 * name and JSON; what the real class writes again of what it read.
 */
public class BodyExchange {
    static final Map<String, Class<?>> CLASSES = new HashMap<>();

    public static void main(String[] a) throws Exception {
        for (String path : System.getProperty("java.class.path").split(File.pathSeparator))
            if (path.matches(".*rocketmq-(common|remoting)-[0-9.]+\\.jar")) try (JarFile jar = new JarFile(path)) {
                for (JarEntry e : Collections.list(jar.entries())) {
                    String n = e.getName();
                    if (!n.endsWith(".class")) continue;
                    try { Class<?> c = Class.forName(n.substring(0, n.length() - 6).replace('/', '.'), false, BodyExchange.class.getClassLoader()); CLASSES.putIfAbsent(n.replaceAll(".*[/$]", "").replace(".class", ""), c); }
                    catch (Throwable t) { continue; }
                }
            }
        if (a[0].equals("write")) write(a[1], Arrays.asList(a).subList(2, a.length)); else read(a[1], a[2]);
        System.exit(0);
    }

    static void write(String out, List<String> names) throws Exception {
        try (PrintWriter lines = new PrintWriter(out, "UTF-8")) {
            for (String name : names) {
                Class<?> c = CLASSES.get(name);
                if (c == null) { lines.println(name + "\tabsent"); continue; }
                lines.println(name + "\t" + RemotingSerializable.toJson(filled(c, 0), false));
            }
        }
    }

    static void read(String in, String out) throws Exception {
        try (BufferedReader given = new BufferedReader(new InputStreamReader(new FileInputStream(in), StandardCharsets.UTF_8)); PrintWriter lines = new PrintWriter(out, "UTF-8")) {
            for (String line; (line = given.readLine()) != null; ) {
                String[] words = line.split("\t", 2);
                Object value = RemotingSerializable.decode(words[1].getBytes(StandardCharsets.UTF_8), CLASSES.get(words[0]));
                lines.println(words[0] + "\t" + RemotingSerializable.toJson(value, false));
            }
        }
    }

    static Object filled(Class<?> c, int depth) throws Exception {
        Constructor<?> made = Arrays.stream(c.getDeclaredConstructors()).min(Comparator.comparingInt(Constructor::getParameterCount)).get();
        made.setAccessible(true);
        Object[] given = new Object[made.getParameterCount()];
        for (int i = 0; i < given.length; i++) given[i] = value(made.getGenericParameterTypes()[i], depth + 1);
        Object o = made.newInstance(given);
        for (Class<?> k = c; k != Object.class; k = k.getSuperclass()) for (Field f : k.getDeclaredFields()) {
            if (Modifier.isStatic(f.getModifiers()) || Modifier.isTransient(f.getModifiers()) || f.getName().startsWith("this")) continue;
            f.setAccessible(true);
            Object v = value(f.getGenericType(), depth + 1);
            if (v == null) continue;
            if (Modifier.isFinal(f.getModifiers())) {
                Object old = f.get(o);
                if (old instanceof Map && v instanceof Map) ((Map) old).putAll((Map) v);
                else if (old instanceof Collection && v instanceof Collection) ((Collection) old).addAll((Collection) v);
                continue;
            }
            f.set(o, v);
        }
        return o;
    }

    static Object value(Type t, int depth) throws Exception {
        if (depth > 9) return null;
        if (t instanceof ParameterizedType) {
            ParameterizedType p = (ParameterizedType) t;
            Class<?> raw = (Class<?>) p.getRawType();
            Type[] of = p.getActualTypeArguments();
            if (Map.class.isAssignableFrom(raw)) {
                Map<Object, Object> m = raw.isInterface() ? (ConcurrentMap.class.isAssignableFrom(raw) ? new ConcurrentHashMap<>() : new LinkedHashMap<Object, Object>()) : (Map<Object, Object>) raw.getDeclaredConstructor().newInstance();
                Object k = value(of[0], depth + 1), v = value(of[1], depth + 1);
                if (k != null && v != null) m.put(k, v);
                return m;
            }
            if (Collection.class.isAssignableFrom(raw)) {
                Collection<Object> l = !raw.isInterface() ? (Collection<Object>) raw.getDeclaredConstructor().newInstance() : Set.class.isAssignableFrom(raw) ? new HashSet<>() : new ArrayList<>();
                Object v = value(of[0], depth + 1);
                if (v != null) l.add(v);
                return l;
            }
            return null;
        }
        if (!(t instanceof Class)) return null;
        Class<?> c = (Class<?>) t;
        if (c == String.class) return "a\"b\u0001c\u4e2d";
        if (c == int.class || c == Integer.class) return 7;
        if (c == long.class || c == Long.class) return 1L << 40;
        if (c == short.class) return (short) 3;
        if (c == byte.class) return (byte) 3;
        if (c == boolean.class || c == Boolean.class) return true;
        if (c == double.class || c == Double.class) return 1.5;
        if (c == AtomicLong.class) return new AtomicLong(9);
        if (c == AtomicInteger.class) return new AtomicInteger(9);
        if (c == BitSet.class) { BitSet b = new BitSet(); b.set(1); b.set(9); return b; }
        if (c.isEnum()) return c.getEnumConstants()[0];
        if (c.isArray() || c.isInterface() || Modifier.isAbstract(c.getModifiers()) || c.getName().startsWith("java")) return null;
        return filled(c, depth);
    }
}
