-- Counts unique users per page and hour for Eventveil, exactly once: sql-client.sh -f unique-users.sql
-- (docs/engines.md).
--
-- A user counts once per page, so contributions is the number of pages that the topology counts. Windows go by
-- the broker's append time (LogAppendTime), which never runs back in a partition: no event is late, and no
-- user decides what counts of another. Something has to come into every partition of events after the end of a
-- window, or it is not complete: a tick from a clock will do, {"tick": true}.

SET 'execution.runtime-mode' = 'streaming';
SET 'table.local-time-zone' = 'UTC';
SET 'execution.checkpointing.interval' = '10 s';
SET 'execution.checkpointing.externalized-checkpoint-retention' = 'RETAIN_ON_CANCELLATION';
SET 'execution.checkpointing.dir' = 'file:///var/flink/checkpoints';

CREATE TABLE events (
  `user` STRING,
  page STRING,
  appended TIMESTAMP_LTZ(3) METADATA FROM 'timestamp' VIRTUAL,
  WATERMARK FOR appended AS appended - INTERVAL '0.001' SECOND
) WITH (
  'connector' = 'kafka',
  'topic' = 'shop.events',
  'properties.bootstrap.servers' = 'localhost:9092',
  'properties.group.id' = 'unique-users',
  'properties.isolation.level' = 'read_committed',
  'scan.startup.mode' = 'earliest-offset',
  'format' = 'json',
  'json.ignore-parse-errors' = 'true'
);

-- Keyed by page: the records of a page are in one partition, which Eventveil finds out anew (murmur2).
CREATE TABLE counts (
  page STRING,
  `start` TIMESTAMP(3),
  users BIGINT
) WITH (
  'connector' = 'kafka',
  'topic' = 'engine.counts',
  'properties.bootstrap.servers' = 'localhost:9092',
  'key.format' = 'raw',
  'key.fields' = 'page',
  'value.format' = 'json',
  'value.json.timestamp-format.standard' = 'ISO-8601',
  'sink.delivery-guarantee' = 'exactly-once',
  'sink.transactional-id-prefix' = 'unique-users',
  'properties.transaction.timeout.ms' = '60000'
);

INSERT INTO counts
SELECT page, window_start, COUNT(DISTINCT `user`)
FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(appended), INTERVAL '1' HOUR))
WHERE `user` IS NOT NULL AND page IS NOT NULL
GROUP BY window_start, window_end, page;
