import java.time.Duration;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.AggregateFunction;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.serialization.DeserializationSchema;
import org.apache.flink.api.common.state.MapState;
import org.apache.flink.api.common.state.MapStateDescriptor;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.api.java.tuple.Tuple3;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.streaming.api.CheckpointingMode;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.streaming.api.functions.sink.RichSinkFunction;
import org.apache.flink.streaming.api.functions.windowing.ProcessWindowFunction;
import org.apache.flink.streaming.api.windowing.assigners.TumblingEventTimeWindows;
import org.apache.flink.streaming.api.windowing.windows.TimeWindow;
import org.apache.flink.util.Collector;

/**
 * Flink on its local cluster, with checkpoints each second: `java Flink TASK`. The first event of each user and
 * timestamp goes on, keyed by user; a window a timestamp counts them by column. It reads to the topic's end.
 */
public class Flink {
    static Task task;
    static long[][] counts;
    static volatile double begun = -1;
    static volatile long clock;

    public static class Read implements DeserializationSchema<Tuple3<String, String, Long>> {
        public Tuple3<String, String, Long> deserialize(byte[] value) throws java.io.IOException {
            if (begun < 0) { begun = Task.cpu(); clock = System.nanoTime(); }
            Task.Event event = Task.read(value);
            return Tuple3.of(event.user, event.column, event.time);
        }

        public boolean isEndOfStream(Tuple3<String, String, Long> event) { return false; }

        public TypeInformation<Tuple3<String, String, Long>> getProducedType() {
            return Types.TUPLE(Types.STRING, Types.STRING, Types.LONG);
        }
    }

    public static class First extends KeyedProcessFunction<String, Tuple3<String, String, Long>, Tuple2<String, Long>> {
        private final long interval;
        private transient MapState<Long, Boolean> seen;

        First(long interval) { this.interval = interval; }

        public void open(OpenContext context) {
            seen = getRuntimeContext().getMapState(new MapStateDescriptor<>("seen", Types.LONG, Types.BOOLEAN));
        }

        public void processElement(Tuple3<String, String, Long> event, Context context, Collector<Tuple2<String, Long>> out) throws Exception {
            long timestamp = Math.floorDiv(event.f2, interval);
            if (!seen.contains(timestamp)) {
                seen.put(timestamp, true);
                out.collect(Tuple2.of(event.f1, event.f2));
            }
        }
    }

    public static class Count implements AggregateFunction<Tuple2<String, Long>, Long, Long> {
        public Long createAccumulator() { return 0L; }
        public Long add(Tuple2<String, Long> event, Long sum) { return sum + 1; }
        public Long getResult(Long sum) { return sum; }
        public Long merge(Long one, Long other) { return one + other; }
    }

    public static class Emit extends ProcessWindowFunction<Long, Tuple3<Long, String, Long>, String, TimeWindow> {
        public void process(String column, Context context, Iterable<Long> sums, Collector<Tuple3<Long, String, Long>> out) {
            out.collect(Tuple3.of(context.window().getStart(), column, sums.iterator().next()));
        }
    }

    public static class Sink extends RichSinkFunction<Tuple3<Long, String, Long>> {
        public void invoke(Tuple3<Long, String, Long> one, Context context) {
            counts[(int) ((one.f0 - task.start) / task.interval)][Integer.parseInt(one.f1.substring(1))] += one.f2;
        }
    }

    public static void main(String[] arguments) throws Exception {
        task = new Task(arguments[0]);
        counts = new long[task.timestamps][task.columns];
        Configuration settings = new Configuration();
        settings.setString("state.backend.type", "hashmap");
        settings.setString("taskmanager.memory.network.max", "128m");
        settings.setString("execution.checkpointing.storage", "filesystem");
        settings.setString("execution.checkpointing.dir", "file://" + task.out + ".checkpoints");
        StreamExecutionEnvironment environment = StreamExecutionEnvironment.getExecutionEnvironment(settings);
        environment.setParallelism(1);
        environment.getConfig().enableObjectReuse();
        environment.enableCheckpointing(1000, CheckpointingMode.EXACTLY_ONCE);
        var source = KafkaSource.<Tuple3<String, String, Long>>builder()
            .setBootstrapServers(task.bootstrap).setTopics(task.topic).setGroupId(task.topic + "-flink")
            .setStartingOffsets(OffsetsInitializer.earliest()).setBounded(OffsetsInitializer.latest())
            .setProperty("max.poll.records", "10000").setProperty("max.partition.fetch.bytes", "8388608")
            .setValueOnlyDeserializer(new Read()).build();
        var watermarks = WatermarkStrategy.<Tuple3<String, String, Long>>forBoundedOutOfOrderness(Duration.ofHours(1))
            .withTimestampAssigner((event, time) -> event.f2);
        environment.fromSource(source, watermarks, "raw")
            .keyBy(event -> event.f0, Types.STRING).process(new First(task.interval))
            .returns(Types.TUPLE(Types.STRING, Types.LONG))
            .keyBy(event -> event.f0, Types.STRING)
            .window(TumblingEventTimeWindows.of(Duration.ofMillis(task.interval), Duration.ofMillis(Math.floorMod(task.start, task.interval))))
            .aggregate(new Count(), new Emit(), Types.LONG, Types.LONG, Types.TUPLE(Types.LONG, Types.STRING, Types.LONG))
            .addSink(new Sink());
        environment.execute();
        task.finish(counts, begun, clock);
    }
}
