"""Everything that speaks to Kafka through librdkafka: settings, topics, reading to an end, fenced writing."""
