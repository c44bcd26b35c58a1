import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.FileOutputStream;
import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.List;

/** What to count, from the command line; how an event is read; and how counts and their cost are told. */
public class Task {
    private static final JsonFactory FACTORY = new ObjectMapper().getFactory();

    public final String bootstrap, topic, out;
    public final List<Integer> partitions = new ArrayList<>();
    public final long events, start, interval;
    public final int timestamps, columns;

    public Task(String text) throws IOException {
        JsonNode task = new ObjectMapper().readTree(text);
        bootstrap = task.get("bootstrap").asText();
        topic = task.get("topic").asText();
        out = task.get("out").asText();
        task.get("partitions").forEach(one -> partitions.add(one.asInt()));
        events = task.get("events").asLong();
        start = task.get("start").asLong();
        interval = task.get("interval").asLong();
        timestamps = task.get("timestamps").asInt();
        columns = task.get("columns").asInt();
    }

    /** An event. */
    public static class Event {
        public String user, column;
        public long time;
    }

    /** Read an event by Jackson's streaming parser, its fastest way that stays with its strings. */
    public static Event read(byte[] value) throws IOException {
        Event event = new Event();
        try (JsonParser parser = FACTORY.createParser(value)) {
            parser.nextToken();
            String field;
            while ((field = parser.nextFieldName()) != null) {
                switch (field) {
                    case "user": event.user = parser.nextTextValue(); break;
                    case "column": event.column = parser.nextTextValue(); break;
                    case "time": event.time = parser.nextLongValue(0); break;
                    default: parser.nextToken(); parser.skipChildren();
                }
            }
        }
        return event;
    }

    /** Seconds of processor time of this process. */
    public static double cpu() {
        var system = (com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        return system.getProcessCpuTime() / 1e9;
    }

    /** Write the counts, say what they took, and end the process. */
    public void finish(long[][] counts, double begun, long clock) throws IOException {
        double used = cpu() - begun, took = (System.nanoTime() - clock) / 1e9;
        ByteBuffer written = ByteBuffer.allocate(8 * timestamps * columns).order(ByteOrder.LITTLE_ENDIAN);
        for (long[] row : counts) for (long count : row) written.putLong(count);
        try (var file = new FileOutputStream(out)) { file.write(written.array()); }
        System.out.println("{\"cpu\":" + used + ",\"wall\":" + took + "}");
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }
}
