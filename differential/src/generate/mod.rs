//! Where programs come from.

pub mod region;
pub mod single;

/// SplitMix64: the same numbers on every machine, for ever (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// With this seed.
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// For one of many things that a seed stands for.
    pub fn of(seed: u64, index: u64) -> Random {
        let mut random = Random(seed);
        random.0 = random.word() ^ index.wrapping_mul(0xd6e8_feb8_6659_fd93);
        random.word();
        random
    }

    /// The next 64 bits.
    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// 128 bits.
    pub fn wide(&mut self) -> u128 {
        u128::from(self.word()) << 64 | u128::from(self.word())
    }

    /// A number below this one, which is not 0.
    pub fn below(&mut self, count: u64) -> u64 {
        ((u128::from(self.word()) * u128::from(count)) >> 64) as u64
    }

    /// True once in so many times.
    pub fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }

    /// One of these.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len() as u64) as usize]
    }
}
