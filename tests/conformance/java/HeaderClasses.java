import java.io.*;
import java.lang.reflect.*;
import java.lang.annotation.Annotation;
import java.util.*;
import java.util.jar.*;
import java.util.regex.*;
import org.apache.rocketmq.remoting.CommandCustomHeader;

/** Writes every header class of a version to a file, by reflection: a line per class, a word per field, and the constants of the code tables. */
public class HeaderClasses {
    static final String[] TABLES = {"common.protocol.RequestCode", "remoting.protocol.RequestCode", "common.protocol.ResponseCode",
        "remoting.protocol.ResponseCode", "remoting.protocol.RemotingSysResponseCode", "remoting.protocol.LanguageCode", "common.MQVersion$Version"};

    public static void main(String[] a) throws Exception {
        try (PrintWriter out = new PrintWriter(a[0], "UTF-8")) {
            for (String table : TABLES) constants(out, table);
            for (String jar : System.getProperty("java.class.path").split(File.pathSeparator))
                if (jar.matches(".*rocketmq-(common|remoting)-[0-9.]+\\.jar")) classes(out, jar);
        }
        System.exit(0);
    }

    static void constants(PrintWriter out, String table) throws Exception {
        Class<?> c;
        try { c = Class.forName("org.apache.rocketmq." + table); } catch (ClassNotFoundException e) { return; }
        String name = table.replaceAll(".*[.$]", "");
        for (Field f : c.getFields()) {
            if (f.getType() == int.class || f.getType() == short.class) out.println("constant\t" + name + "\t" + f.getName() + "\t" + f.get(null));
            else if (f.isEnumConstant()) {
                Object value = f.get(null);
                out.println("constant\t" + name + "\t" + f.getName() + "\t" + (name.equals("LanguageCode") ? value.getClass().getMethod("getCode").invoke(value) : ((Enum<?>) value).ordinal()));
            }
        }
    }

    static void classes(PrintWriter out, String path) throws Exception {
        try (JarFile jar = new JarFile(path)) {
            for (JarEntry entry : Collections.list(jar.entries())) {
                String name = entry.getName();
                if (!name.endsWith(".class") || !name.contains("protocol")) continue;
                Class<?> c;
                try { c = Class.forName(name.substring(0, name.length() - 6).replace('/', '.')); } catch (Throwable t) { continue; }
                if (CommandCustomHeader.class.isAssignableFrom(c) && !c.isInterface() && !Modifier.isAbstract(c.getModifiers())) header(out, c);
            }
        }
    }

    static void header(PrintWriter out, Class<?> c) throws Exception {
        StringBuilder line = new StringBuilder("header\t" + c.getSimpleName() + "\t");
        boolean fast = false;
        for (Class<?> k = c; k != null; k = k.getSuperclass()) for (Class<?> i : k.getInterfaces()) fast |= i.getSimpleName().equals("FastCodesHeader");
        line.append(fast ? "fast" : "slow").append('\t').append(action(c));
        for (Class<?> k = c; k != Object.class; k = k.getSuperclass()) for (Field f : k.getDeclaredFields()) {
            if (Modifier.isStatic(f.getModifiers()) || Modifier.isTransient(f.getModifiers()) || f.getName().startsWith("this")) continue;
            boolean needed = false;
            String resource = "";
            for (Annotation an : f.getAnnotations()) {
                needed |= an.toString().contains("CFNotNull");
                Matcher m = Pattern.compile("RocketMQResource\\(.*value=([A-Z]+)").matcher(an.toString());
                if (m.find() || (m = Pattern.compile("RocketMQResource\\(([A-Z]+)\\)").matcher(an.toString())).find()) resource = m.group(1);
            }
            Object value = null;
            try { f.setAccessible(true); Constructor<?> made = c.getDeclaredConstructor(); made.setAccessible(true); value = f.get(made.newInstance()); } catch (ReflectiveOperationException e) { value = null; }
            line.append('\t').append(String.join(" ", f.getName(), f.getType().getSimpleName(), needed ? "needed" : "optional", value == null ? "null" : "=" + value, resource.isEmpty() ? "-" : resource, k == c ? "own" : "inherited"));
        }
        out.println(line);
    }

    static String action(Class<?> c) throws Exception {
        for (Annotation an : c.getAnnotations()) if (an.annotationType().getSimpleName().equals("RocketMQAction")) {
            Class<?> t = an.annotationType();
            return t.getMethod("value").invoke(an) + " " + t.getMethod("resource").invoke(an) + " " + Arrays.toString((Object[]) t.getMethod("action").invoke(an)).replaceAll("[\\[\\] ]", "");
        }
        return "-";
    }
}
