//! Which partition a key belongs to, as `eventveil.model.partitioners` has it.

const MIX: u32 = 0x5bd1_e995;
const SEED: u32 = 0x9747_b28c;

/// How producers find the partition of a key that is not empty.
#[derive(Clone, Copy)]
pub enum Partitioner {
    /// That of the Java client.
    Murmur2,
    /// librdkafka's `consistent`.
    Crc32,
}

impl Partitioner {
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "murmur2" => Some(Partitioner::Murmur2),
            "crc32" => Some(Partitioner::Crc32),
            _ => None,
        }
    }

    pub fn partition(self, key: &[u8], partitions: u32) -> u32 {
        let hash = match self {
            Partitioner::Murmur2 => murmur2(key) & 0x7fff_ffff,
            Partitioner::Crc32 => crc32fast::hash(key),
        };
        hash % partitions
    }
}

/// MurmurHash2 with Kafka's seed.
fn murmur2(key: &[u8]) -> u32 {
    let mut state = SEED ^ key.len() as u32;
    let words = key.chunks_exact(4);
    let rest = words.remainder();
    for word in words {
        let word = u32::from_le_bytes([word[0], word[1], word[2], word[3]]).wrapping_mul(MIX);
        state = state.wrapping_mul(MIX) ^ (word ^ word >> 24).wrapping_mul(MIX);
    }
    if !rest.is_empty() {
        let last = rest.iter().rev().fold(0, |word, byte| word << 8 | u32::from(*byte));
        state = (state ^ last).wrapping_mul(MIX);
    }
    state = (state ^ state >> 13).wrapping_mul(MIX);
    state ^ state >> 15
}
