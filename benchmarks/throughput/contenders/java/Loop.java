import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** A consumer of Kafka's own client, Jackson and hash sets; `java Loop TASK`. It trusts its events. */
public class Loop {
    public static void main(String[] arguments) throws Exception {
        Task task = new Task(arguments[0]);
        Map<String, Integer> known = new HashMap<>();
        for (int column = 0; column < task.columns; column++) known.put("c" + column, column);
        List<HashSet<String>> seen = new ArrayList<>();
        for (int timestamp = 0; timestamp < task.timestamps; timestamp++) seen.add(new HashSet<>());
        long[][] counts = new long[task.timestamps][task.columns];
        double begun = Task.cpu();
        long clock = System.nanoTime(), left = task.events;
        Properties settings = new Properties();
        settings.put("bootstrap.servers", task.bootstrap);
        settings.put("group.id", task.topic + "-" + clock);
        settings.put("enable.auto.commit", "false");
        settings.put("max.poll.records", "10000");
        settings.put("max.partition.fetch.bytes", "8388608");
        settings.put("receive.buffer.bytes", "1048576");
        var bytes = new ByteArrayDeserializer();
        var consumer = new KafkaConsumer<byte[], byte[]>(settings, bytes, bytes);
        List<TopicPartition> partitions = new ArrayList<>();
        for (int partition : task.partitions) partitions.add(new TopicPartition(task.topic, partition));
        consumer.assign(partitions);
        consumer.seekToBeginning(partitions);
        while (left > 0) {
            for (var record : consumer.poll(Duration.ofSeconds(1))) {
                left--;
                Task.Event event = Task.read(record.value());
                int timestamp = (int) Math.floorDiv(event.time - task.start, task.interval);
                if (seen.get(timestamp).add(event.user)) counts[timestamp][known.get(event.column)]++;
            }
        }
        task.finish(counts, begun, clock);
    }
}
