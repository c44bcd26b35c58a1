"""All that speaks to Kafka: settings, topics, reading to an end, fenced writing; how, each module says."""
