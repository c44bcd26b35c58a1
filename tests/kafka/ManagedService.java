import java.util.Map;
import java.util.Set;
import org.apache.kafka.common.errors.PolicyViolationException;
import org.apache.kafka.server.policy.CreateTopicPolicy;

/** Refuses topics as managed services do: messages of 8 MiB, segments of 50 MiB and 4 hours, and settings of its own. */
public class ManagedService implements CreateTopicPolicy {
    private static final Set<String> OF_THE_SERVICE =
        Set.of("unclean.leader.election.enable", "min.cleanable.dirty.ratio", "max.compaction.lag.ms");

    @Override
    public void configure(Map<String, ?> settings) {}

    @Override
    public void validate(RequestMetadata asked) {
        if (!asked.topic().startsWith("managed")) return;
        asked.configs().keySet().stream().filter(OF_THE_SERVICE::contains).findAny().ifPresent(name -> {
            throw new PolicyViolationException("Config property '" + name + "' is not allowed");
        });
        atMost(asked, "max.message.bytes", 8388608L);
        atLeast(asked, "segment.bytes", 52428800L);
        atLeast(asked, "segment.ms", 14400000L);
    }

    private static void atMost(RequestMetadata asked, String name, long limit) {
        String value = asked.configs().get(name);
        if (value != null && Long.parseLong(value) > limit)
            throw new PolicyViolationException(name + " is " + value + ", more than " + limit);
    }

    private static void atLeast(RequestMetadata asked, String name, long limit) {
        String value = asked.configs().get(name);
        if (value != null && Long.parseLong(value) < limit)
            throw new PolicyViolationException(name + " is " + value + ", less than " + limit);
    }

    @Override
    public void close() {}
}
