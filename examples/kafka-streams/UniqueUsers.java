import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.FileInputStream;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.processor.StreamPartitioner;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.StoreBuilder;
import org.apache.kafka.streams.state.Stores;

/**
 * Counts unique users per page and window for Eventveil, exactly once (docs/engines.md).
 *
 * <pre>
 *   events  {"user": "ann", "page": "home"}, keyed by user, LogAppendTime
 *     visits: the first event of a user in a window, and when the next window has begun in a partition
 *   first visits, keyed by page; the beginning of a window goes to every partition
 *     counts: visits by window and page; written once the window has passed in all partitions of events
 *   counts  {"page": "home", "start": 1767225600000, "users": 4711}, then {"complete_until": 1767229200000}
 * </pre>
 *
 * A user counts once in a window, in one page: contributions 1. Windows go by the broker's append time, which
 * never runs back in a partition, so no event is late and no user decides what counts of another. A clock of
 * the job writes a tick into every partition of events, so that a window ends where nobody is.
 *
 * <p>Run: java -cp 'jars/*' UniqueUsers.java FILE.properties, which has bootstrap.servers, application.id,
 * events, visits, counts (topics; the last two with equally many partitions), partitions (of events) and
 * window.ms. More instances share the work.
 */
public final class UniqueUsers {
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final String TICK = "tick", MARK = "mark";

  /** The first event of a user in a window, and the beginning of a window to everybody. */
  private static final class Visits implements Processor<String, String, String, String> {
    private final long window;
    private ProcessorContext<String, String> context;
    private KeyValueStore<String, Long> last;

    Visits(long window) {
      this.window = window;
    }

    @Override
    public void init(ProcessorContext<String, String> given) {
      context = given;
      last = given.getStateStore("last");
    }

    @Override
    public void process(Record<String, String> event) {
      long start = event.timestamp() - event.timestamp() % window;
      begin(start, event);
      JsonNode fields = read(event.value());
      JsonNode user = fields.path("user"), page = fields.path("page");
      if (!user.isTextual() || !page.isTextual()) {
        return; // a tick, or no event of a user
      }
      Long before = last.get("u" + user.asText());
      if (before == null || before < start) {
        last.put("u" + user.asText(), start);
        context.forward(event.withKey(page.asText()).withValue(Long.toString(start)));
      }
    }

    /** Where the window is a new one, all of this partition's events of the windows before have been read. */
    private void begin(long start, Record<String, String> event) {
      Long before = last.get(MARK);
      if (before == null || before < start) {
        last.put(MARK, start);
        int partition = context.recordMetadata().orElseThrow().partition();
        context.forward(event.withKey(MARK + partition).withValue(MARK + start));
      }
    }
  }

  /** How many first visits each page had, once a window has passed everywhere. */
  private static final class Counts implements Processor<String, String, String, String> {
    private final int partitions;
    private ProcessorContext<String, String> context;
    private KeyValueStore<String, Long> counts;
    private KeyValueStore<String, Long> marks;

    Counts(int partitions) {
      this.partitions = partitions;
    }

    @Override
    public void init(ProcessorContext<String, String> given) {
      context = given;
      counts = given.getStateStore("counts");
      marks = given.getStateStore("marks");
    }

    @Override
    public void process(Record<String, String> visit) {
      if (!visit.value().startsWith(MARK)) {
        String place = "%020d".formatted(Long.parseLong(visit.value())) + visit.key();
        Long before = counts.get(place);
        counts.put(place, before == null ? 1 : before + 1);
        return;
      }
      marks.put(visit.key(), Long.parseLong(visit.value().substring(MARK.length())));
      List<Long> begun = new ArrayList<>();
      try (KeyValueIterator<String, Long> all = marks.all()) {
        all.forEachRemaining(one -> begun.add(one.value));
      }
      if (begun.size() == partitions) {
        complete(begun.stream().min(Long::compare).orElseThrow(), visit);
      }
    }

    /** Write the counts of the windows before this time, then that there will be no others. */
    private void complete(long until, Record<String, String> visit) {
      List<String> done = new ArrayList<>();
      try (KeyValueIterator<String, Long> all = counts.range("", "%020d".formatted(until))) {
        all.forEachRemaining(
            one -> {
              String page = one.key.substring(20);
              long start = Long.parseLong(one.key.substring(0, 20));
              context.forward(visit.withKey(page).withValue(count(page, start, one.value)));
              done.add(one.key);
            });
      }
      done.forEach(counts::delete);
      String complete = JSON.createObjectNode().put("complete_until", until).toString();
      context.forward(visit.withKey(MARK + context.taskId().partition()).withValue(complete));
    }

    private static String count(String page, long start, long users) {
      return JSON.createObjectNode().put("page", page).put("start", start).put("users", users).toString();
    }
  }

  private static JsonNode read(String value) {
    try {
      return value == null ? JSON.missingNode() : JSON.readTree(value);
    } catch (java.io.IOException error) {
      return JSON.missingNode();
    }
  }

  private static Topology topology(Properties given) {
    Serde<String> text = Serdes.String();
    int partitions = Integer.parseInt(given.getProperty("partitions"));
    long window = Long.parseLong(given.getProperty("window.ms"));
    // The beginning of a window goes to all partitions, a visit to that of its page.
    StreamPartitioner<String, String> everywhere =
        (topic, key, value, number) ->
            value.startsWith(MARK)
                ? Optional.of(IntStream.range(0, number).boxed().collect(Collectors.toSet()))
                : Optional.empty();
    // What is complete is so in one partition; a count goes to that of its page, which is the same.
    StreamPartitioner<String, String> own =
        (topic, key, value, number) ->
            key.startsWith(MARK) && value.startsWith("{\"complete_until\"")
                ? Optional.of(Set.of(Integer.parseInt(key.substring(MARK.length()))))
                : Optional.empty();
    var in = text.deserializer();
    var out = text.serializer();
    return new Topology()
        .addSource("events", in, in, given.getProperty("events"))
        .addProcessor("first", () -> new Visits(window), "events")
        .addStateStore(store("last"), "first")
        .addSink("to-visits", given.getProperty("visits"), out, out, everywhere, "first")
        .addSource("visits", in, in, given.getProperty("visits"))
        .addProcessor("count", () -> new Counts(partitions), "visits")
        .addStateStore(store("counts"), "count")
        .addStateStore(store("marks"), "count")
        .addSink("to-counts", given.getProperty("counts"), out, out, own, "count");
  }

  private static StoreBuilder<KeyValueStore<String, Long>> store(String name) {
    return Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore(name), Serdes.String(), Serdes.Long())
        .withLoggingEnabled(Map.of());
  }

  /** A tick into every partition of events, so that the broker's append times advance. */
  private static void keepTime(Properties given) {
    Properties settings = new Properties();
    settings.put("bootstrap.servers", given.getProperty("bootstrap.servers"));
    KafkaProducer<String, String> producer =
        new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
    int partitions = Integer.parseInt(given.getProperty("partitions"));
    long every = Long.parseLong(given.getProperty("window.ms")) / 4;
    var clock = Executors.newSingleThreadScheduledExecutor(UniqueUsers::daemon);
    clock.scheduleAtFixedRate(
        () ->
            IntStream.range(0, partitions)
                .forEach(
                    one ->
                        producer.send(
                            new ProducerRecord<>(given.getProperty("events"), one, TICK, "{\"tick\": true}"))),
        0,
        Math.max(1, every),
        TimeUnit.MILLISECONDS);
  }

  private static Thread daemon(Runnable work) {
    Thread thread = new Thread(work, "clock");
    thread.setDaemon(true);
    return thread;
  }

  public static void main(String[] arguments) throws Exception {
    Properties given = new Properties();
    try (var file = new FileInputStream(arguments[0])) {
      given.load(file);
    }
    given.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
    given.put("auto.offset.reset", "earliest");
    KafkaStreams streams = new KafkaStreams(topology(given), given);
    CountDownLatch ended = new CountDownLatch(1);
    streams.setStateListener(
        (now, before) -> {
          System.out.println(Instant.now() + " " + now);
          if (now == KafkaStreams.State.ERROR || now == KafkaStreams.State.NOT_RUNNING) {
            ended.countDown();
          }
        });
    Runtime.getRuntime().addShutdownHook(new Thread(() -> streams.close(Duration.ofSeconds(10))));
    streams.start();
    keepTime(given);
    ended.await();
    System.exit(streams.state() == KafkaStreams.State.ERROR ? 1 : 0);
  }
}
