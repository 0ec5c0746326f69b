//! A sink on a thread of its own, which also makes the edges of a node distinct.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;

use crate::edge::distinct;
use crate::trace::{Edge, Node, Sink, Unit};

/// Edges of a batch: 640 KiB.
const BATCH: usize = 1 << 15;
/// Batches that wait at most.
const WAITING: usize = 4;

#[derive(Debug)]
struct Batch {
    units: Vec<Unit>,
    /// Nodes, how many edges each has, and how many units came before it since the last one.
    nodes: Vec<(Node, usize, usize)>,
    /// Units in all those numbers.
    units_placed: usize,
    edges: Vec<Edge>,
}

impl Default for Batch {
    fn default() -> Batch {
        let (nodes, edges) = (Vec::with_capacity(BATCH / 8), Vec::with_capacity(BATCH + BATCH / 4));
        Batch { units: Vec::new(), nodes, units_placed: 0, edges }
    }
}

/// Where batches go.
enum Consumer<S> {
    Thread { sender: SyncSender<Batch>, spare: Receiver<Batch>, thread: JoinHandle<Packer<S>> },
    /// There is no thread to be had: at once.
    Inline(Packer<S>),
}

/// See the module's text.
pub(super) struct SinkThread<S> {
    batch: Batch,
    consumer: Consumer<S>,
    /// Bytes that the sink takes.
    memory: Arc<AtomicU64>,
}

/// What the thread does.
#[derive(Debug)]
struct Packer<S> {
    sink: S,
    keys: Vec<u64>,
    edges: Vec<Edge>,
}

impl<S: Sink> Packer<S> {
    fn take(&mut self, batch: &mut Batch) {
        let mut units = batch.units.drain(..);
        let mut rest = &batch.edges[..];
        for (node, edges_count, units_count) in batch.nodes.drain(..) {
            units.by_ref().take(units_count).for_each(|unit| self.sink.unit(unit));
            let (edges, after) = rest.split_at(edges_count);
            rest = after;
            distinct(edges, &mut self.keys, &mut self.edges);
            self.sink.node(node, &self.edges);
        }
        units.for_each(|unit| self.sink.unit(unit));
        batch.units_placed = 0;
        batch.edges.clear();
    }
}

impl<S: Sink> SinkThread<S> {
    /// On the calling thread after all.
    pub(super) fn inline(sink: S) -> SinkThread<S> {
        let consumer = Consumer::Inline(Packer { sink, keys: Vec::new(), edges: Vec::new() });
        SinkThread { batch: Batch::default(), consumer, memory: Arc::default() }
    }

    /// Puts the sink on a thread, if there is one to be had.
    pub(super) fn start(self) -> SinkThread<S>
    where
        S: Send + 'static,
    {
        let Consumer::Inline(packer) = self.consumer else { return self };
        let (sender, receiver) = sync_channel::<Batch>(WAITING);
        let (recycle, spare) = channel();
        let (hand_over, take) = channel::<Packer<S>>();
        let memory = self.memory.clone();
        let spawned = std::thread::Builder::new().name("sink".into()).spawn(move || {
            let mut packer = take.recv().expect("the sink is handed over before anything else");
            for mut batch in receiver {
                packer.take(&mut batch);
                memory.store(packer.sink.memory(), Ordering::Relaxed);
                // Nobody takes empty batches once the run is over.
                let _ = recycle.send(batch);
            }
            packer
        });
        let consumer = match spawned {
            Ok(thread) => match hand_over.send(packer) {
                Ok(()) => Consumer::Thread { sender, spare, thread },
                Err(unsent) => Consumer::Inline(unsent.0),
            },
            Err(_) => Consumer::Inline(packer),
        };
        SinkThread { consumer, ..self }
    }

    #[inline(never)]
    fn flush(&mut self) {
        match &mut self.consumer {
            Consumer::Thread { sender, spare, .. } => {
                let next = spare.try_recv().unwrap_or_default();
                // A send fails only after the thread has panicked; `finish` passes that on.
                let _ = sender.send(std::mem::replace(&mut self.batch, next));
            }
            Consumer::Inline(packer) => {
                packer.take(&mut self.batch);
                self.memory.store(packer.sink.memory(), Ordering::Relaxed);
            }
        }
    }

    /// Hands the sink back.
    ///
    /// # Panics
    /// When its thread did.
    pub(super) fn finish(mut self) -> S {
        self.flush();
        match self.consumer {
            Consumer::Thread { sender, thread, .. } => {
                drop(sender);
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)).sink
            }
            Consumer::Inline(packer) => packer.sink,
        }
    }
}

impl<S: Sink> Sink for SinkThread<S> {
    const RAW: bool = true;

    fn unit(&mut self, unit: Unit) {
        self.batch.units.push(unit);
    }

    fn node(&mut self, node: Node, edges: &[Edge]) {
        let units_count = self.batch.units.len() - self.batch.units_placed;
        self.batch.units_placed = self.batch.units.len();
        self.batch.nodes.push((node, edges.len(), units_count));
        self.batch.edges.extend_from_slice(edges);
        if self.batch.edges.len() + self.batch.nodes.len() >= BATCH {
            self.flush();
        }
    }

    fn memory(&self) -> u64 {
        self.memory.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a sink was told, in order: a unit's boundary, or a node's weight.
    #[derive(Debug, Default)]
    struct Told(Vec<u64>);

    impl Sink for Told {
        fn unit(&mut self, unit: Unit) {
            self.0.push(u64::from(unit.boundary));
        }

        fn node(&mut self, node: Node, _edges: &[Edge]) {
            self.0.push(1000 + node.weight);
        }

        fn memory(&self) -> u64 {
            0
        }
    }

    #[test]
    fn the_sink_is_told_in_order() {
        let tell = |sink: &mut dyn FnMut(Option<u32>, u64)| {
            for i in 0..3 * BATCH as u64 {
                sink((i % 3 > 0).then_some(i as u32), i);
            }
        };
        let mut direct = Told::default();
        tell(&mut |unit, weight| match unit {
            Some(boundary) => direct.unit(Unit { boundary, parent: 0 }),
            None => direct.node(Node { weight, unit: 0 }, &[]),
        });
        for mut thread in [SinkThread::inline(Told::default()), SinkThread::inline(Told::default()).start()] {
            tell(&mut |unit, weight| match unit {
                Some(boundary) => thread.unit(Unit { boundary, parent: 0 }),
                None => thread.node(Node { weight, unit: 0 }, &[]),
            });
            assert!(thread.finish().0 == direct.0);
        }
    }
}
