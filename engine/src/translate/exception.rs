//! What throws and what catches: regions of code with their clauses, and where those lead.
//!
//! A clause leads to a label without any code of its own: whoever unwinds puts the values into the label's canonical slots.

use wasmparser::{BlockType, Catch, TryTable};

use super::Translator;
use super::carried::label_of;
use super::code::Pos;
use super::control::{Control, Kind};
use super::handlers::{Clause, Region};
use super::stack::{Home, Value};
use crate::isa::Single;
use crate::mutants::mutant;
use crate::value::slots_of;

impl Translator<'_> {
    /// The region that has its turn inside of this control, if there is any.
    fn region_at(&self, index: usize) -> Option<u32> {
        self.controls[..=index].iter().rev().find_map(|control| match control.kind {
            Kind::Try { region } => region,
            _ => None,
        })
    }

    /// Begins a region here.
    fn open_region(&mut self) -> u32 {
        let here = self.code.here();
        let outer = self.region_at(self.controls.len() - 1);
        let in_loop = self.controls.iter().rev().find_map(|control| match control.kind {
            Kind::Loop { ordinal, reports: true, .. } => Some(ordinal),
            _ => None,
        });
        self.handlers.regions.push(Region { code: here..Pos::MAX, outer, clauses: Vec::new(), in_loop });
        self.handlers.regions.len() as u32 - 1
    }

    /// Ends a region here.
    pub(super) fn close_region(&mut self, region: Option<u32>) {
        if let Some(region) = region {
            self.handlers.regions[region as usize].code.end = self.code.here();
        }
    }

    /// The call at this position is made when its frame is gone already.
    pub(super) fn leaves_regions(&mut self, at: Pos) {
        if !self.handlers.regions.is_empty() {
            self.handlers.outside.push(at..self.code.here());
        }
    }

    pub(super) fn try_table(&mut self, try_table: &TryTable) {
        if !self.reachable {
            return self.open(Kind::Try { region: None }, try_table.ty);
        }
        self.flush();
        self.settle_params(try_table.ty);
        let region = self.open_region();
        for catch in &try_table.catches {
            self.clause(region, catch);
        }
        self.open(Kind::Try { region: Some(region) }, try_table.ty);
    }

    /// Adds a clause that leads to a label outside of its `try_table`.
    fn clause(&mut self, region: u32, catch: &Catch) {
        let (tag, has_reference) = match *catch {
            Catch::One { tag, .. } => (Some(tag), false),
            Catch::OneRef { tag, .. } => (Some(tag), true),
            Catch::All { .. } => (None, false),
            Catch::AllRef { .. } => (None, true),
        };
        let index = self.target_index(label_of(catch));
        let payload = self.canonical(self.controls[index].height);
        let end = payload + tag.map_or(0, |tag| slots_of(self.module.tag_type(tag).params()));
        self.reserve(end + u32::from(has_reference));
        let has_reference = has_reference && !(mutant!(ReferenceLost) && end > payload);
        let here = self.code.here();
        let mut target = 0;
        let mut exits = Vec::new();
        if index > 0 {
            exits.extend(self.reporting_inside(index));
        }
        let clauses = self.handlers.regions[region as usize].clauses.len();
        match &mut self.controls[index].kind {
            Kind::Loop { header, first_back_edge, .. } => {
                target = *header;
                // From anywhere in the body.
                first_back_edge.get_or_insert(here);
            }
            _ => self.controls[index].catch_fixups.push((region, clauses)),
        }
        let reference = has_reference.then_some(end);
        self.handlers.regions[region as usize].clauses.push(Clause { tag, payload, reference, target, exits });
    }

    /// A block ends here: clauses that lead to its end lead here.
    pub(super) fn link_caught(&mut self, control: &Control) {
        for (region, clause) in &control.catch_fixups {
            self.handlers.regions[*region as usize].clauses[*clause].target = self.code.here();
        }
    }

    /// Behind the function's code: clauses that lead to its end return what they caught.
    pub(super) fn return_caught(&mut self, control: &Control) {
        if control.catch_fixups.is_empty() {
            return;
        }
        self.link_caught(control);
        self.reset_to(0);
        let results = self.module.func_type(self.func).results();
        for ty in results {
            self.push(Value { wide: ty.is_wide(), ..Value::new(Home::Canonical) });
        }
        self.return_keeping_stack(results.len());
    }

    pub(super) fn throw(&mut self, tag: u32) {
        let types = self.module.tag_type(tag).params();
        let first = self.arguments(types.len());
        let site = self.site();
        let fields = [tag, self.canonical(first) * 8, site, self.func];
        self.code.single(Single::Throw, &fields);
        self.code.close_block();
        self.reachable = false;
    }

    pub(super) fn throw_ref(&mut self) {
        let slot = self.slot_field();
        self.throw_again(slot);
    }

    fn throw_again(&mut self, slot: u32) {
        let site = self.site();
        self.code.single(Single::ThrowRef, &[slot, site, self.func]);
        self.code.close_block();
        self.reachable = false;
    }

    // --- the legacy form ---------------------------------------------------------------------------------------------

    pub(super) fn try_(&mut self, ty: BlockType) {
        if !self.reachable {
            return self.open(Kind::Try { region: None }, ty);
        }
        self.flush();
        self.settle_params(ty);
        let region = self.open_region();
        self.open(Kind::Try { region: Some(region) }, ty);
    }

    /// `catch` (`None`: `catch_all`): the body, or the handler before, ends, and a handler begins.
    pub(super) fn catch(&mut self, tag: Option<u32>) {
        self.leave_handler();
        let mut control = self.controls.pop().expect("validated: `catch` belongs to a `try`");
        if self.reachable {
            self.settle_results(&control);
            let jump = self.code.single(Single::Jump, &[0]);
            control.fixups.push(jump);
        }
        self.code.close_block();
        let region = match control.kind {
            Kind::Try { region } => {
                self.close_region(region);
                region
            }
            Kind::Catch { region } => region,
            _ => unreachable!("validated: `catch` belongs to a `try`"),
        };
        self.reset_to(control.height);
        self.reachable = control.entered;
        control.kind = Kind::Catch { region };
        let height = control.height;
        self.controls.push(control);
        let Some(region) = region else { return };
        let reference = self.canonical(height);
        self.push(Value::new(Home::Canonical));
        let payload = self.canonical(height + 1);
        for ty in tag.map_or(&[][..], |tag| self.module.tag_type(tag).params()) {
            self.push(Value { wide: ty.is_wide(), ..Value::new(Home::Canonical) });
        }
        let target = self.code.here();
        let clause = Clause { tag, payload, reference: Some(reference), target, exits: Vec::new() };
        self.handlers.regions[region as usize].clauses.push(clause);
    }

    /// A handler of a `try` ends: its results move down over the reference to the exception.
    pub(super) fn leave_handler(&mut self) {
        let index = self.controls.len() - 1;
        if self.reachable && matches!(self.controls[index].kind, Kind::Catch { .. }) {
            self.br(0);
        }
    }

    /// `delegate`: ends a `try` whose exceptions others catch: those around the block that is `depth` labels out.
    pub(super) fn delegate(&mut self, depth: u32) {
        let index = self.controls.len() - 1;
        if let Kind::Try { region: Some(region) } = self.controls[index].kind {
            self.handlers.regions[region as usize].outer = self.region_at(index - 1 - if mutant!(DelegateNear) { 0 } else { depth as usize });
        }
        self.end();
    }

    /// `rethrow`: what the handler caught that is `depth` labels out.
    pub(super) fn rethrow(&mut self, depth: u32) {
        let innermost = |control: &Control| matches!(control.kind, Kind::Catch { .. });
        let index = if mutant!(RethrowInnermost) { self.controls.iter().rposition(innermost) } else { None };
        let height = self.controls[index.unwrap_or(self.target_index(depth))].height;
        let slot = self.canonical(height);
        self.throw_again(slot * 8);
    }
}
