//! Who owns which part of the C stack: the precondition of rung M2.

/// Ranges of the C stack that were claimed by lowering the stack pointer and not given back, highest first.
#[derive(Debug)]
pub(crate) struct Frames {
    sp: u64,
    frames: Vec<Frame>,
}

#[derive(Clone, Copy, Debug)]
struct Frame {
    low: u64,
    high: u64,
    /// The segment in which it was claimed.
    since: u32,
}

impl Frames {
    pub fn new(sp: u64) -> Frames {
        Frames { sp, frames: Vec::new() }
    }

    /// The stack pointer was set, in segment `current`.
    pub fn sp_set(&mut self, sp: u64, current: u32) {
        if sp < self.sp {
            self.frames.push(Frame { low: sp, high: self.sp, since: current });
        }
        while self.frames.last().is_some_and(|top| top.high <= sp) {
            self.frames.pop();
        }
        if let Some(top) = self.frames.last_mut() {
            top.low = top.low.max(sp);
        }
        self.sp = sp;
    }

    /// The segment in which the present owner claimed an address: accesses of earlier segments were somebody else's. 0 when it
    /// lies above all frames, or below.
    #[inline]
    pub fn owned_since(&self, address: u64) -> u32 {
        if let Some(top) = self.frames.last()
            && top.low <= address
            && address < top.high
        {
            return top.since;
        }
        let deeper = self.frames.partition_point(|f| f.low > address);
        self.frames.get(deeper).filter(|f| address < f.high).map_or(0, |f| f.since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_and_go() {
        let mut frames = Frames::new(1000);
        frames.sp_set(900, 1);
        frames.sp_set(800, 2);
        assert_eq!([950, 900, 899, 800, 799].map(|a| frames.owned_since(a)), [1, 1, 2, 2, 0]);
        frames.sp_set(900, 3);
        frames.sp_set(850, 4);
        assert_eq!([950, 860].map(|a| frames.owned_since(a)), [1, 4]);
        frames.sp_set(880, 5);
        assert_eq!([860, 890].map(|a| frames.owned_since(a)), [0, 4], "a frame may shrink");
        frames.sp_set(1000, 5);
        frames.sp_set(984, 6);
        assert_eq!([990, 1000].map(|a| frames.owned_since(a)), [6, 0]);
    }
}
