//! The best loop in Rust that we know: librdkafka in batches, sonic-rs into borrowed strings, hash sets.
//!
//! `contender TASK`; it trusts its events, as the loops in Python do. Counts are written as int64.

use std::io::Write;
use std::time::{Duration, Instant};

use hashbrown::{HashMap, HashSet};
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::{Offset, TopicPartitionList};
use rdkafka_sys as sys;
use serde::Deserialize;

#[derive(Deserialize)]
struct Task {
    bootstrap: String,
    topic: String,
    partitions: Vec<i32>,
    events: u64,
    start: i64,
    interval: i64,
    timestamps: usize,
    columns: usize,
    kind: String,
    out: String,
}

#[derive(Deserialize)]
struct Flat<'a> {
    #[serde(borrow)]
    user: &'a str,
    #[serde(borrow)]
    column: &'a str,
    time: i64,
}

#[derive(Deserialize)]
struct Who<'a> {
    #[serde(borrow)]
    user: &'a str,
}

#[derive(Deserialize)]
struct Page<'a> {
    #[serde(borrow)]
    section: &'a str,
}

#[derive(Deserialize)]
struct Nested<'a> {
    #[serde(borrow)]
    who: Who<'a>,
    #[serde(borrow)]
    page: Page<'a>,
    at: i64,
}

struct Counts {
    start: i64,
    interval: i64,
    columns: HashMap<Box<str>, usize, ahash::RandomState>,
    seen: Vec<HashSet<Box<str>, ahash::RandomState>>,
    counts: Vec<Vec<i64>>,
}

impl Counts {
    fn new(task: &Task) -> Self {
        Counts {
            start: task.start,
            interval: task.interval,
            columns: (0..task.columns).map(|one| (format!("c{one}").into(), one)).collect(),
            seen: (0..task.timestamps).map(|_| HashSet::default()).collect(),
            counts: vec![vec![0; task.columns]; task.timestamps],
        }
    }

    fn add(&mut self, user: &str, column: &str, time: i64) {
        let timestamp = (time - self.start).div_euclid(self.interval) as usize;
        let seen = &mut self.seen[timestamp];
        if !seen.contains(user) {
            seen.insert(user.into());
            self.counts[timestamp][self.columns[column]] += 1;
        }
    }
}

fn cpu() -> f64 {
    // SAFETY: getrusage fills in the struct that it is given.
    let used = unsafe {
        let mut used: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &mut used);
        used
    };
    let seconds = |one: libc::timeval| one.tv_sec as f64 + one.tv_usec as f64 * 1e-6;
    seconds(used.ru_utime) + seconds(used.ru_stime)
}

fn consumer(task: &Task) -> BaseConsumer {
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", &task.bootstrap)
        .set("group.id", format!("{}-{}", task.topic, std::process::id()))
        .set("enable.auto.commit", "false")
        .set("fetch.queue.backoff.ms", "5")
        .set("queued.min.messages", "100000")
        .create()
        .expect("a consumer");
    let mut partitions = TopicPartitionList::new();
    for partition in &task.partitions {
        partitions.add_partition_offset(&task.topic, *partition, Offset::Offset(0)).expect("an offset");
    }
    consumer.assign(&partitions).expect("an assignment");
    consumer
}

fn main() {
    let task: Task = serde_json::from_str(&std::env::args().nth(1).expect("a task")).expect("a task");
    let nested = task.kind == "nested";
    let (begun, clock) = (cpu(), Instant::now());
    let mut counts = Counts::new(&task);
    let consumer = consumer(&task);
    let mut left = task.events;
    let mut batch: Vec<*mut sys::rd_kafka_message_t> = vec![std::ptr::null_mut(); 10_000];
    // SAFETY: the queue lives as long as the consumer, and each message until it is destroyed.
    unsafe {
        let queue = sys::rd_kafka_queue_get_consumer(consumer.client().native_ptr());
        while left > 0 {
            let wait = Duration::from_secs(1).as_millis() as i32;
            let number = sys::rd_kafka_consume_batch_queue(queue, wait, batch.as_mut_ptr(), batch.len());
            for &message in &batch[..number.max(0) as usize] {
                assert!((*message).err as i32 == 0, "an error of the broker");
                let value = std::slice::from_raw_parts((*message).payload as *const u8, (*message).len);
                if nested {
                    let event: Nested = sonic_rs::from_slice(value).expect("an event");
                    counts.add(event.who.user, event.page.section, event.at);
                } else {
                    let event: Flat = sonic_rs::from_slice(value).expect("an event");
                    counts.add(event.user, event.column, event.time);
                }
                sys::rd_kafka_message_destroy(message);
                left -= 1;
            }
        }
    }
    let (used, took) = (cpu() - begun, clock.elapsed().as_secs_f64());
    let mut file = std::fs::File::create(&task.out).expect("a file");
    for count in counts.counts.iter().flatten() {
        file.write_all(&count.to_le_bytes()).expect("written");
    }
    println!("{{\"cpu\":{used},\"wall\":{took}}}");
    std::process::exit(0)
}
