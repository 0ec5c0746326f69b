//! Programs as modules: many behind one driver, so that an oracle compiles them together, or one by itself.

use rustc_hash::FxHashMap;
use wasm_encoder::{
    BlockType, Catch as Clause, CodeSection, ConstExpr, DataCountSection, DataSection, ElementSection, Elements, EntityType, ExportKind,
    ExportSection, Function, FunctionSection, GlobalSection, GlobalType, HeapType, ImportSection, Instruction, MemArg, MemorySection,
    MemoryType, Module, RefType, TableSection, TableType, TagKind, TagSection, TagType, TypeSection, ValType,
};

use super::{
    Block, Code, DATA_AT, DATA_BYTES, ELEMENTS, Func, Host, Immediate, Kind, Label, Needs, Node, PAGES, PARAMS_MAX, Program, RESULTS_MAX,
    Signature, TABLES, TAGS, Tail, global_start, globals,
};
use crate::operators::Immediates;

/// Name of the export that sets the state to what a program starts with: `(program: i32) -> ()`.
pub const RESET: &str = "reset";
/// Name of the export that calls a program's first function: `(program: i32, inputs: v128 × 4) -> (v128 × 3)`. Each value has its bits
/// at the low end of a vector.
pub const DRIVER: &str = "call";

/// One module with all of these programs.
pub fn encode(programs: &[&Program]) -> Vec<u8> {
    Encoder::new(programs).module(programs, true)
}

/// A program as a reader would like to see it: its first function is exported as `main`, there is no driver, and of the environment only
/// what it uses. A new instance has the state that the first call finds.
pub fn encode_alone(program: &Program) -> Vec<u8> {
    let programs = &[program];
    let uses = Uses::of(program);
    Encoder { uses, ..Encoder::new(programs) }.module(programs, false)
}

/// What is there of the environment.
struct Uses {
    hosts: Vec<Host>,
    /// Numbers that globals have in programs; their places are those that they have in the module.
    globals: Vec<u32>,
    memory: bool,
    /// The passive data segments.
    data: bool,
}

impl Uses {
    fn all() -> Uses {
        Uses { hosts: Host::ALL.to_vec(), globals: (0..globals().count() as u32).collect(), memory: true, data: true }
    }

    fn of(program: &Program) -> Uses {
        let mut uses = Uses { hosts: Vec::new(), globals: Vec::new(), memory: false, data: false };
        program.walk(|node| match &node.code {
            Code::CallHost(host) => {
                uses.memory |= matches!(host, Host::Poke | Host::Peek);
                uses.hosts.push(*host);
            }
            Code::GlobalGet(index) | Code::GlobalSet(index) => uses.globals.push(*index),
            Code::Operator(id, _) => uses.memory |= matches!(id.get().immediates, Immediates::Access(_) | Immediates::AccessLane(..)),
            Code::Other(Instruction::MemoryInit { .. } | Instruction::DataDrop(_), _) => (uses.memory, uses.data) = (true, true),
            Code::Other(instruction, _) => {
                uses.memory |= matches!(
                    instruction,
                    Instruction::MemoryCopy { .. } | Instruction::MemoryFill(_) | Instruction::MemoryGrow(_) | Instruction::MemorySize(_)
                );
            }
            _ => {}
        });
        uses.globals.sort_unstable();
        uses.globals.dedup();
        uses.hosts.sort_unstable();
        uses.hosts.dedup();
        uses
    }
}

/// What the bytes of the data segments come from.
const FIRST_DATA: u32 = 0x9e37_79b9;
/// See [`FIRST_DATA`].
const SECOND_DATA: u32 = 0x85eb_ca6b;

struct Encoder {
    types: TypeSection,
    known: FxHashMap<Signature, u32>,
    needs: Needs,
    uses: Uses,
    /// The index of the first function of the program that is being encoded.
    base: u32,
    /// Which program that is, and its element segment.
    program: u32,
    /// Labels from outermost to innermost.
    labels: Vec<Label>,
}

impl Encoder {
    fn new(programs: &[&Program]) -> Encoder {
        let needs = programs.iter().fold(Needs::default(), |needs, program| needs.or(program.needs()));
        Encoder { types: TypeSection::new(), known: FxHashMap::default(), needs, uses: Uses::all(), base: 0, program: 0, labels: Vec::new() }
    }

    fn module(mut self, programs: &[&Program], driven: bool) -> Vec<u8> {
        let (mut imports, mut functions, mut code, mut exports) = (ImportSection::new(), FunctionSection::new(), CodeSection::new(), ExportSection::new());
        for host in self.uses.hosts.clone() {
            let (params, results) = host.signature();
            imports.import("env", host.name(), EntityType::Function(self.ty(params, results)));
        }
        let mut index = self.uses.hosts.len() as u32;
        let mut elements = ElementSection::new();
        let mut first = Vec::new();
        for program in programs {
            self.base = index;
            self.program = first.len() as u32;
            first.push(index);
            for func in &program.funcs {
                functions.function(self.ty(&func.ty.params, &func.ty.results));
                let body = self.func(func);
                code.function(&body);
                index += 1;
            }
            // What is in no table needs no way in from outside, which costs an oracle more to compile than a program.
            if self.needs.tables {
                let indices: Vec<u32> = (self.base..index).collect();
                elements.passive(Elements::Functions(indices.into()));
            }
            if self.needs.tables && !driven {
                for (table, offset) in (0..TABLES).zip(0..) {
                    let count = (ELEMENTS.0 as u32 - table).min(index - self.base);
                    let indices: Vec<u32> = (self.base..self.base + count).collect();
                    elements.active(Some(table), &ConstExpr::i32_const(offset), Elements::Functions(indices.into()));
                }
            }
        }
        let memories_count = if self.uses.memory { 1 + u32::from(self.needs.second_memory) } else { 0 };
        if memories_count > 0 {
            exports.export("memory", ExportKind::Memory, 0);
        }
        if self.needs.second_memory {
            exports.export("memory1", ExportKind::Memory, 1);
        }
        let tables_count = if driven || self.needs.tables { TABLES } else { 0 };
        for table in 0..tables_count {
            exports.export(&format!("table{table}"), ExportKind::Table, table);
        }
        for (place, global) in (0..).zip(&self.uses.globals) {
            exports.export(&format!("global{global}"), ExportKind::Global, place);
        }
        if driven {
            functions.function(self.ty(&[ValType::I32], &[]));
            code.function(&self.reset(programs));
            exports.export(RESET, ExportKind::Func, index);
            let groups = Groups::of(programs, &first);
            let params = [&[ValType::I32][..], &[ValType::V128; PARAMS_MAX]].concat();
            let ty = self.ty(&params, &[ValType::V128; RESULTS_MAX]);
            functions.function(ty);
            code.function(&groups.driver(index + 2));
            exports.export(DRIVER, ExportKind::Func, index + 1);
            for group in &groups.groups {
                functions.function(ty);
                code.function(&groups.of_group(group));
            }
        } else {
            exports.export("main", ExportKind::Func, first[0]);
        }
        let mut memories = MemorySection::new();
        for _ in 0..memories_count {
            memories.memory(MemoryType { minimum: PAGES.0, maximum: Some(PAGES.1), memory64: false, shared: false, page_size_log2: None });
        }
        let mut tables = TableSection::new();
        for _ in 0..tables_count {
            tables.table(TableType { element_type: RefType::FUNCREF, table64: false, minimum: ELEMENTS.0, maximum: Some(ELEMENTS.1), shared: false });
        }
        let mut tags = TagSection::new();
        if self.needs.exceptions {
            for params in TAGS {
                tags.tag(TagType { kind: TagKind::Exception, func_type_idx: self.ty(params, &[]) });
            }
        }
        let mut global_section = GlobalSection::new();
        for index in self.uses.globals.iter().map(|index| *index as usize) {
            let ty = globals().nth(index).expect("a global");
            global_section.global(GlobalType { val_type: ty, mutable: true, shared: false }, &constant_expr(ty, global_start(index)));
        }
        let mut data = DataSection::new();
        let bytes = |seed: u32| (0..DATA_BYTES).map(move |i| ((i + 1).wrapping_mul(seed) >> 13) as u8);
        if self.uses.data {
            data.passive(bytes(FIRST_DATA)).passive(bytes(SECOND_DATA));
        }
        for memory in (0..memories_count).filter(|_| !driven) {
            data.active(memory, &ConstExpr::i32_const(DATA_AT as i32), bytes(FIRST_DATA));
        }
        let mut module = Module::new();
        module.section(&self.types).section(&imports).section(&functions).section(&tables).section(&memories);
        if self.needs.exceptions {
            module.section(&tags);
        }
        module.section(&global_section).section(&exports).section(&elements).section(&DataCountSection { count: data.len() }).section(&code).section(&data);
        module.finish()
    }

    fn ty(&mut self, params: &[ValType], results: &[ValType]) -> u32 {
        let signature = Signature { params: params.to_vec(), results: results.to_vec() };
        *self.known.entry(signature).or_insert_with(|| {
            let index = self.types.len();
            self.types.ty().function(params.iter().copied(), results.iter().copied());
            index
        })
    }

    fn func(&mut self, func: &Func) -> Function {
        let mut body = Function::new_with_locals_types(func.locals.iter().copied());
        self.labels.clear();
        func.body.iter().for_each(|node| self.node(node, &mut body));
        body.instruction(&Instruction::End);
        body
    }

    fn global(&self, index: u32) -> u32 {
        self.uses.globals.iter().position(|other| *other == index).expect("a global that is used") as u32
    }

    fn depth(&self, label: Label) -> u32 {
        let place = self.labels.iter().rposition(|other| *other == label).expect("branches name blocks around them");
        (self.labels.len() - 1 - place) as u32
    }

    fn node(&mut self, node: &Node, to: &mut Function) {
        node.args.iter().for_each(|arg| self.node(arg, to));
        let instruction = match &node.code {
            Code::Operator(id, immediate) => {
                let operator = id.get();
                to.raw(operator.opcode.iter().copied());
                to.raw(immediates(operator.immediates, *immediate));
                return;
            }
            Code::Const(ty, bits) => constant(*ty, *bits),
            Code::LocalGet(index) => Instruction::LocalGet(*index),
            Code::LocalSet(index) => Instruction::LocalSet(*index),
            Code::LocalTee(index) => Instruction::LocalTee(*index),
            Code::GlobalGet(index) => Instruction::GlobalGet(self.global(*index)),
            Code::GlobalSet(index) => Instruction::GlobalSet(self.global(*index)),
            Code::Drop => Instruction::Drop,
            Code::Select(None) => Instruction::Select,
            Code::Select(Some(ty)) => Instruction::TypedSelect(*ty),
            Code::Call(func, Tail::No) => Instruction::Call(self.base + func),
            Code::Call(func, Tail::Yes) => Instruction::ReturnCall(self.base + func),
            Code::CallIndirect(ty, table_index, tail) => {
                let (type_index, table_index) = (self.ty(&ty.params, &ty.results), *table_index);
                match tail {
                    Tail::No => Instruction::CallIndirect { type_index, table_index },
                    Tail::Yes => Instruction::ReturnCallIndirect { type_index, table_index },
                }
            }
            Code::CallHost(host) => Instruction::Call(self.uses.hosts.iter().position(|other| other == host).expect("a host function that is used") as u32),
            Code::Br(label) => Instruction::Br(self.depth(*label)),
            Code::BrIf(label) => Instruction::BrIf(self.depth(*label)),
            Code::BrTable(labels) => {
                let mut depths: Vec<u32> = labels.iter().map(|label| self.depth(*label)).collect();
                let default = depths.pop().expect("a default");
                Instruction::BrTable(depths.into(), default)
            }
            Code::Return => Instruction::Return,
            Code::Unreachable => Instruction::Unreachable,
            Code::Block(block) => return self.block(block, to),
            Code::Throw(tag) => Instruction::Throw(*tag),
            // References to functions name those of the program.
            Code::Other(Instruction::RefFunc(func), _) => Instruction::RefFunc(self.base + func),
            // A program's element segment is the one with its functions.
            Code::Other(Instruction::TableInit { table, .. }, _) => Instruction::TableInit { elem_index: self.program, table: *table },
            Code::Other(Instruction::ElemDrop(_), _) => Instruction::ElemDrop(self.program),
            Code::Other(instruction, _) => instruction.clone(),
        };
        to.instruction(&instruction);
    }

    fn block(&mut self, block: &Block, to: &mut Function) {
        let ty = match (&*block.ty.params, &*block.ty.results) {
            ([], []) => BlockType::Empty,
            ([], [ty]) => BlockType::Result(*ty),
            (params, results) => BlockType::FunctionType(self.ty(params, results)),
        };
        let start = match &block.kind {
            Kind::Block => Instruction::Block(ty),
            Kind::Loop => Instruction::Loop(ty),
            Kind::If => Instruction::If(ty),
            // Labels of clauses are those around the block.
            Kind::Try(clauses) => {
                let clauses: Vec<Clause> = clauses
                    .iter()
                    .map(|clause| match (clause.tag, self.depth(clause.label)) {
                        (Some(tag), label) => Clause::One { tag, label },
                        (None, label) => Clause::All { label },
                    })
                    .collect();
                Instruction::TryTable(ty, clauses.into())
            }
        };
        to.instruction(&start);
        self.labels.push(block.label);
        block.body.iter().for_each(|node| self.node(node, to));
        if block.kind == Kind::If && !(block.otherwise.is_empty() && block.ty.params == block.ty.results) {
            to.instruction(&Instruction::Else);
            block.otherwise.iter().for_each(|node| self.node(node, to));
        }
        self.labels.pop();
        to.instruction(&Instruction::End);
    }

    /// Sets memories, globals and tables to what a program finds at its start. Sizes stay.
    fn reset(&self, programs: &[&Program]) -> Function {
        use Instruction as I;
        let mut body = Function::new([]);
        for mem in 0..=u32::from(self.needs.second_memory) {
            let fill = [I::I32Const(0), I::I32Const(0), I::I32Const(0x1_0000), I::MemoryFill(mem)];
            let init = [I::I32Const(DATA_AT as i32), I::I32Const(0), I::I32Const(DATA_BYTES as i32), I::MemoryInit { mem, data_index: 0 }];
            fill.iter().chain(&init).for_each(|instruction| _ = body.instruction(instruction));
        }
        for (index, ty) in globals().enumerate() {
            body.instruction(&constant(ty, global_start(index))).instruction(&I::GlobalSet(index as u32));
        }
        for table in 0..TABLES {
            let fill = [I::I32Const(0), I::RefNull(HeapType::FUNC), I::I32Const(ELEMENTS.0 as i32), I::TableFill(table)];
            fill.iter().for_each(|instruction| _ = body.instruction(instruction));
        }
        if self.needs.tables {
            switch(0..programs.len() as u32, &mut body, |program, body| {
                let funcs = programs[program as usize].funcs.len().min(ELEMENTS.0 as usize) as i32;
                for table in 0..TABLES {
                    // The second table has them from its second element on.
                    let count = funcs.min(ELEMENTS.0 as i32 - table as i32);
                    let init = [I::I32Const(table as i32), I::I32Const(0), I::I32Const(count), I::TableInit { table, elem_index: program }];
                    init.iter().for_each(|instruction| _ = body.instruction(instruction));
                }
                body.instruction(&I::Return);
            });
        }
        body.instruction(&I::End);
        body
    }
}

/// Code for each of these cases, one after the other; parameter 0 says which of `targets` holds the case.
fn switch(targets: impl ExactSizeIterator<Item = u32> + Clone, body: &mut Function, mut code: impl FnMut(u32, &mut Function)) {
    let cases = targets.clone().max().map_or(0, |last| last + 1);
    for _ in 0..cases {
        body.instruction(&Instruction::Block(BlockType::Empty));
    }
    let mut targets: Vec<u32> = targets.collect();
    let default = targets.pop().expect("there is a program");
    body.instruction(&Instruction::LocalGet(0)).instruction(&Instruction::BrTable(targets.into(), default));
    for case in 0..cases {
        body.instruction(&Instruction::End);
        code(case, body);
    }
}

/// Programs whose first functions have one type: what goes in and out is the same for all of them.
struct Groups<'a> {
    first: &'a [u32],
    groups: Vec<&'a Signature>,
    /// The group of each program.
    of: Vec<u32>,
}

impl<'a> Groups<'a> {
    fn of(programs: &[&'a Program], first: &'a [u32]) -> Groups<'a> {
        let (mut groups, mut of) = (Vec::<&Signature>::new(), Vec::new());
        for program in programs {
            let ty = &program.funcs[0].ty;
            let place = groups.iter().position(|group| *group == ty).unwrap_or_else(|| {
                groups.push(ty);
                groups.len() - 1
            });
            of.push(place as u32);
        }
        Groups { first, groups, of }
    }

    /// Calls the function of the group that a program, parameter 0, is in.
    fn driver(&self, first_group: u32) -> Function {
        let mut body = Function::new([]);
        switch(self.of.iter().copied(), &mut body, |group, body| {
            (0..=PARAMS_MAX as u32).for_each(|param| _ = body.instruction(&Instruction::LocalGet(param)));
            body.instruction(&Instruction::Call(first_group + group)).instruction(&Instruction::Return);
        });
        body.instruction(&Instruction::Unreachable).instruction(&Instruction::End);
        body
    }

    /// Calls the first function of one of a group's programs.
    fn of_group(&self, ty: &Signature) -> Function {
        use Instruction as I;
        let members: Vec<u32> = (0..self.of.len() as u32).filter(|program| self.groups[self.of[*program as usize] as usize] == ty).collect();
        // Programs of other groups never come here; they stand for the first member.
        let targets = self.of.iter().enumerate().map(|(program, _)| members.iter().position(|member| *member == program as u32).unwrap_or(0) as u32);
        let mut body = Function::new_with_locals_types(ty.params.iter().chain(&ty.results).copied());
        let place = |index: usize| (1 + PARAMS_MAX + index) as u32;
        for (param, ty) in ty.params.iter().enumerate() {
            body.instruction(&I::LocalGet(1 + param as u32));
            match ty {
                ValType::I32 => body.instruction(&I::I32x4ExtractLane(0)),
                ValType::I64 => body.instruction(&I::I64x2ExtractLane(0)),
                ValType::F32 => body.instruction(&I::I32x4ExtractLane(0)).instruction(&I::F32ReinterpretI32),
                ValType::F64 => body.instruction(&I::I64x2ExtractLane(0)).instruction(&I::F64ReinterpretI64),
                _ => &mut body,
            };
            body.instruction(&I::LocalSet(place(param)));
        }
        body.instruction(&I::Block(BlockType::Empty));
        let targets: Vec<u32> = targets.collect();
        let count = members.len() as u32;
        switch(targets.into_iter(), &mut body, |member, body| {
            (0..ty.params.len()).for_each(|param| _ = body.instruction(&I::LocalGet(place(param))));
            body.instruction(&I::Call(self.first[members[member as usize] as usize]));
            // Results come off the stack in the opposite order.
            (0..ty.results.len()).rev().for_each(|result| _ = body.instruction(&I::LocalSet(place(ty.params.len() + result))));
            body.instruction(&I::Br(count - 1 - member));
        });
        body.instruction(&I::End);
        for result in 0..RESULTS_MAX {
            let local = place(ty.params.len() + result);
            match ty.results.get(result) {
                None => body.instruction(&I::V128Const(0)),
                Some(ValType::I32) => body.instruction(&I::V128Const(0)).instruction(&I::LocalGet(local)).instruction(&I::I32x4ReplaceLane(0)),
                Some(ValType::I64) => body.instruction(&I::V128Const(0)).instruction(&I::LocalGet(local)).instruction(&I::I64x2ReplaceLane(0)),
                Some(ValType::F32) => {
                    body.instruction(&I::V128Const(0)).instruction(&I::LocalGet(local)).instruction(&I::I32ReinterpretF32).instruction(&I::I32x4ReplaceLane(0))
                }
                Some(ValType::F64) => {
                    body.instruction(&I::V128Const(0)).instruction(&I::LocalGet(local)).instruction(&I::I64ReinterpretF64).instruction(&I::I64x2ReplaceLane(0))
                }
                Some(_) => body.instruction(&I::LocalGet(local)),
            };
        }
        body.instruction(&I::End);
        body
    }
}

fn constant(ty: ValType, bits: u128) -> Instruction<'static> {
    match ty {
        ValType::I32 => Instruction::I32Const(bits as i32),
        ValType::I64 => Instruction::I64Const(bits as i64),
        ValType::F32 => Instruction::F32Const(wasm_encoder::Ieee32::new(bits as u32)),
        ValType::F64 => Instruction::F64Const(wasm_encoder::Ieee64::new(bits as u64)),
        ValType::V128 => Instruction::V128Const(bits as i128),
        ValType::Ref(ty) => Instruction::RefNull(ty.heap_type),
    }
}

fn constant_expr(ty: ValType, bits: u128) -> ConstExpr {
    ConstExpr::extended([constant(ty, bits)])
}

/// The bytes after an opcode.
fn immediates(kind: Immediates, immediate: Immediate) -> Vec<u8> {
    use wasm_encoder::Encode;
    let mut bytes = Vec::new();
    let lane = |count: u8| immediate.lanes as u8 % count;
    let access = MemArg { offset: u64::from(immediate.offset), align: u32::from(immediate.align), memory_index: u32::from(immediate.memory) };
    match kind {
        Immediates::None => {}
        Immediates::Lane(count) => bytes.push(lane(count)),
        Immediates::Shuffle => bytes.extend(immediate.lanes.to_le_bytes().map(|lane| lane & 31)),
        Immediates::Access(_) => access.encode(&mut bytes),
        Immediates::AccessLane(_, count) => {
            access.encode(&mut bytes);
            bytes.push(lane(count));
        }
    }
    bytes
}
