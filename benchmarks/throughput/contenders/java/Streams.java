import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.processor.PunctuationType;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.StoreBuilder;
import org.apache.kafka.streams.state.Stores;

/**
 * Kafka Streams, exactly once: `java Streams TASK EMIT ENDS...`, the ends of the partitions.
 *
 * Per partition the first event of each user and timestamp is counted, in stores in memory with changelogs; at
 * a partition's end its counts go to the topic EMIT in transactions, where this program adds them up as a
 * reader of what is committed. Counting ends with the last of them.
 */
public class Streams {
    static Task task;
    static long[] ends;
    static final Map<String, Integer> KNOWN = new HashMap<>();
    static final byte[] NOTHING = new byte[0];
    static volatile double begun = -1;
    static volatile long clock;

    static class Count implements Processor<byte[], byte[], byte[], byte[]> {
        private ProcessorContext<byte[], byte[]> context;
        private KeyValueStore<byte[], byte[]> seen, kept;
        private final long[][] open = new long[task.timestamps][task.columns];
        private final boolean[] changed = new boolean[task.timestamps];

        public void init(ProcessorContext<byte[], byte[]> given) {
            context = given;
            seen = given.getStateStore("seen");
            kept = given.getStateStore("kept");
            given.schedule(Duration.ofMillis(100), PunctuationType.WALL_CLOCK_TIME, now -> keep());
        }

        private void keep() {
            for (int timestamp = 0; timestamp < open.length; timestamp++) {
                if (changed[timestamp]) kept.put(key(timestamp), bytes(open[timestamp]));
                changed[timestamp] = false;
            }
        }

        public void process(Record<byte[], byte[]> record) {
            if (begun < 0) { begun = Task.cpu(); clock = System.nanoTime(); }
            Task.Event event;
            try { event = Task.read(record.value()); } catch (java.io.IOException error) { throw new RuntimeException(error); }
            int timestamp = (int) Math.floorDiv(event.time - task.start, task.interval);
            byte[] user = event.user.getBytes(StandardCharsets.UTF_8);
            byte[] place = ByteBuffer.allocate(user.length + 4).putInt(timestamp).put(user).array();
            if (seen.putIfAbsent(place, NOTHING) == null) {
                open[timestamp][KNOWN.get(event.column)]++;
                changed[timestamp] = true;
            }
            var metadata = context.recordMetadata().get();
            if (metadata.offset() == ends[metadata.partition()] - 1) {
                for (int one = 0; one < open.length; one++) context.forward(new Record<>(key(one), bytes(open[one]), record.timestamp()));
                context.commit();
            }
        }
    }

    static byte[] key(int timestamp) { return ByteBuffer.allocate(4).putInt(timestamp).array(); }

    static byte[] bytes(long[] counts) {
        ByteBuffer made = ByteBuffer.allocate(8 * counts.length);
        for (long count : counts) made.putLong(count);
        return made.array();
    }

    static StoreBuilder<KeyValueStore<byte[], byte[]>> store(String name) {
        return Stores.keyValueStoreBuilder(Stores.inMemoryKeyValueStore(name), Serdes.ByteArray(), Serdes.ByteArray());
    }

    static Properties settings(String folder) {
        Properties made = new Properties();
        made.put(StreamsConfig.APPLICATION_ID_CONFIG, task.topic + "-streams-" + System.nanoTime());
        made.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, task.bootstrap);
        made.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        made.put(StreamsConfig.STATE_DIR_CONFIG, folder);
        made.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, "1");
        made.put(StreamsConfig.REPLICATION_FACTOR_CONFIG, "1");
        made.put("auto.offset.reset", "earliest");
        made.put("consumer.max.poll.records", "10000");
        made.put("consumer.max.partition.fetch.bytes", "8388608");
        made.put("producer.linger.ms", "20");
        made.put("producer.batch.size", "900000");
        made.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, "0");
        return made;
    }

    public static void main(String[] arguments) throws Exception {
        task = new Task(arguments[0]);
        String emit = arguments[1];
        ends = Arrays.stream(arguments).skip(2).mapToLong(Long::parseLong).toArray();
        for (int column = 0; column < task.columns; column++) KNOWN.put("c" + column, column);
        var in = new ByteArrayDeserializer();
        var out = new ByteArraySerializer();
        Topology topology = new Topology();
        topology.addSource("raw", in, in, task.topic)
            .addProcessor("count", Count::new, "raw")
            .addStateStore(store("seen"), "count")
            .addStateStore(store("kept"), "count")
            .addSink("out", emit, out, out, "count");
        KafkaStreams streams = new KafkaStreams(topology, settings(task.out + ".streams"));
        streams.setUncaughtExceptionHandler(error -> { error.printStackTrace(); Runtime.getRuntime().halt(1); return null; });
        streams.start();
        add(emit, in);
    }

    /** Add up what was committed, until every partition has told its counts. */
    static void add(String emit, ByteArrayDeserializer bytes) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", task.bootstrap);
        settings.put("isolation.level", "read_committed");
        settings.put("auto.offset.reset", "earliest");
        var reader = new KafkaConsumer<byte[], byte[]>(settings, bytes, bytes);
        reader.assign(java.util.List.of(new TopicPartition(emit, 0)));
        long[][] counts = new long[task.timestamps][task.columns];
        int left = 0;
        for (long end : ends) left += end > 0 ? task.timestamps : 0;
        while (left > 0) {
            for (var record : reader.poll(Duration.ofMillis(100))) {
                long[] row = counts[ByteBuffer.wrap(record.key()).getInt()];
                ByteBuffer value = ByteBuffer.wrap(record.value());
                for (int column = 0; column < row.length; column++) row[column] += value.getLong();
                left--;
            }
        }
        task.finish(counts, begun, clock);
    }
}
