"""The live operator: a Faust app whose partitions are owned, one by one, through Kafka transactions."""
