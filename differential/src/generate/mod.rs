//! Where programs come from.

pub mod corpus;
pub mod region;
pub mod single;
pub mod smith;

use crate::program::Program;
use corpus::Corpus;

/// SplitMix64: the same numbers on every machine, for ever (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
///
/// Or bytes of somebody who learns which of them lead where, as long as there are any.
#[derive(Clone, Debug)]
pub struct Random {
    state: u64,
    /// The bytes that are left, the next one last.
    given: Vec<u8>,
}

impl Random {
    /// With this seed.
    pub fn new(seed: u64) -> Random {
        Random { state: seed, given: Vec::new() }
    }

    /// Whose first numbers are these bytes.
    pub fn from_bytes(bytes: &[u8]) -> Random {
        Random { state: bytes.len() as u64, given: bytes.iter().rev().copied().collect() }
    }

    /// For one of many things that a seed stands for.
    pub fn of(seed: u64, index: u64) -> Random {
        let mut random = Random::new(seed);
        random.state = random.word() ^ index.wrapping_mul(0xd6e8_feb8_6659_fd93);
        random.word();
        random
    }

    /// The next 64 bits.
    pub fn word(&mut self) -> u64 {
        if !self.given.is_empty() {
            let left = self.given.len().saturating_sub(8);
            return self.given.drain(left..).fold(0, |word, byte| word << 8 | u64::from(byte));
        }
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
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
        // One byte for a small choice, so that changing a byte changes one thing.
        if !self.given.is_empty() && count <= 256 {
            return u64::from(self.given.pop().unwrap_or(0)) % count;
        }
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

/// What makes programs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, clap::ValueEnum, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Generator {
    /// Every operator in every shape
    Single,
    /// Loops, calls, traps and host calls, with conflicts between iterations
    Region,
    /// Modules of wasm-smith
    Smith,
    /// Modules of the folder that --corpus names, changed by wasm-mutate
    Corpus,
}

/// A case: what runs.
#[derive(Clone, Debug)]
pub enum Case {
    /// A program, which runs together with others.
    Program(Program),
    /// A module, and whether engines make its NaNs canonical.
    Module(Vec<u8>, bool),
}

impl Case {
    /// The program, if it is one.
    pub fn program(&self) -> Option<&Program> {
        if let Case::Program(program) = self { Some(program) } else { None }
    }
}

impl Generator {
    /// Those that need nothing from outside.
    pub const OWN: [Generator; 3] = [Generator::Single, Generator::Region, Generator::Smith];

    /// Those whose cases are programs.
    pub const PROGRAMS: [Generator; 2] = [Generator::Single, Generator::Region];

    /// How many of its batches there are for one of the slowest: what is fast comes often.
    pub fn weight(self) -> u64 {
        match self {
            Generator::Single => 6,
            Generator::Region => 3,
            Generator::Smith | Generator::Corpus => 1,
        }
    }

    /// Whether its cases are programs, which run together; otherwise they are modules.
    pub fn makes_programs(self) -> bool {
        Generator::PROGRAMS.contains(&self)
    }

    /// Goes up whenever a number stands for another case than before.
    pub fn version(self) -> u32 {
        match self {
            Generator::Single | Generator::Region | Generator::Smith | Generator::Corpus => 1,
        }
    }

    /// The case of this number, if there is one. Cases of one generator are all programs or all modules.
    pub fn case(self, seed: u64, index: u64, corpus: &Corpus) -> Option<Case> {
        let mut random = Random::of(seed, index);
        match self {
            Generator::Single => Some(Case::Program(single::program(index, &mut random))),
            Generator::Region => Some(Case::Program(region::program(index, &mut random))),
            Generator::Smith => smith::module(index, &mut random).map(|bytes| Case::Module(bytes, smith::canonicalize_nans(index))),
            Generator::Corpus => corpus.module(index, &mut random).map(|bytes| Case::Module(bytes, true)),
        }
    }
}

impl std::fmt::Display for Generator {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str(&format!("{self:?}").to_lowercase())
    }
}

/// A program of any generator of programs: what a fuzzer that chooses the numbers runs.
pub fn any_program(random: &mut Random) -> Program {
    let index = random.below(1 << 20);
    if random.one_in(8) { single::program(index, random) } else { region::program(index, random) }
}
