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
pub fn encode(programs: &[Program]) -> Vec<u8> {
    Encoder::new(programs).module(programs, true)
}

/// A program as a reader would like to see it: its first function is exported as `main`, and there is no driver. `start` has the state
/// that its first call finds.
pub fn encode_alone(program: &Program) -> Vec<u8> {
    let programs = std::slice::from_ref(program);
    Encoder::new(programs).module(programs, false)
}

struct Encoder {
    types: TypeSection,
    known: FxHashMap<Signature, u32>,
    needs: Needs,
    /// The index of the first function of the program that is being encoded.
    base: u32,
    /// Which program that is, and its element segment.
    program: u32,
    /// Labels from outermost to innermost.
    labels: Vec<Label>,
}

impl Encoder {
    fn new(programs: &[Program]) -> Encoder {
        let needs = programs.iter().fold(Needs::default(), |needs, program| needs.or(program.needs()));
        Encoder { types: TypeSection::new(), known: FxHashMap::default(), needs, base: 0, program: 0, labels: Vec::new() }
    }

    fn module(mut self, programs: &[Program], driven: bool) -> Vec<u8> {
        let (mut imports, mut functions, mut code, mut exports) = (ImportSection::new(), FunctionSection::new(), CodeSection::new(), ExportSection::new());
        for host in Host::ALL {
            let (params, results) = host.signature();
            imports.import("env", host.name(), EntityType::Function(self.ty(params, results)));
        }
        let mut index = Host::ALL.len() as u32;
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
            let indices: Vec<u32> = (self.base..index).collect();
            elements.passive(Elements::Functions(indices.into()));
        }
        exports.export("memory", ExportKind::Memory, 0);
        if self.needs.second_memory {
            exports.export("memory1", ExportKind::Memory, 1);
        }
        for table in 0..TABLES {
            exports.export(&format!("table{table}"), ExportKind::Table, table);
        }
        for (global, _) in (0..).zip(globals()) {
            exports.export(&format!("global{global}"), ExportKind::Global, global);
        }
        functions.function(self.ty(&[ValType::I32], &[]));
        code.function(&self.reset(programs));
        exports.export(RESET, ExportKind::Func, index);
        if driven {
            let params = [&[ValType::I32][..], &[ValType::V128; PARAMS_MAX]].concat();
            functions.function(self.ty(&params, &[ValType::V128; RESULTS_MAX]));
            code.function(&driver(programs, &first));
            exports.export(DRIVER, ExportKind::Func, index + 1);
        } else {
            exports.export("main", ExportKind::Func, first[0]);
        }
        let mut memories = MemorySection::new();
        for _ in 0..=u32::from(self.needs.second_memory) {
            memories.memory(MemoryType { minimum: PAGES.0, maximum: Some(PAGES.1), memory64: false, shared: false, page_size_log2: None });
        }
        let mut tables = TableSection::new();
        for _ in 0..TABLES {
            tables.table(TableType { element_type: RefType::FUNCREF, table64: false, minimum: ELEMENTS.0, maximum: Some(ELEMENTS.1), shared: false });
        }
        let mut tags = TagSection::new();
        if self.needs.exceptions {
            for params in TAGS {
                tags.tag(TagType { kind: TagKind::Exception, func_type_idx: self.ty(params, &[]) });
            }
        }
        let mut global_section = GlobalSection::new();
        for (index, ty) in globals().enumerate() {
            global_section.global(GlobalType { val_type: ty, mutable: true, shared: false }, &constant_expr(ty, global_start(index)));
        }
        let mut data = DataSection::new();
        for seed in [0x9e37_79b9_u32, 0x85eb_ca6b] {
            data.passive((0..DATA_BYTES).map(|i| ((i + 1).wrapping_mul(seed) >> 13) as u8));
        }
        let mut module = Module::new();
        module.section(&self.types).section(&imports).section(&functions).section(&tables).section(&memories);
        if self.needs.exceptions {
            module.section(&tags);
        }
        module.section(&global_section).section(&exports).section(&elements).section(&DataCountSection { count: 2 }).section(&code).section(&data);
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
            Code::GlobalGet(index) => Instruction::GlobalGet(*index),
            Code::GlobalSet(index) => Instruction::GlobalSet(*index),
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
            Code::CallHost(host) => Instruction::Call(Host::ALL.iter().position(|other| other == host).expect("a host function") as u32),
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
    fn reset(&self, programs: &[Program]) -> Function {
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
        each(programs.len() as u32, &mut body, |program, body| {
            let funcs = programs[program as usize].funcs.len().min(ELEMENTS.0 as usize) as i32;
            for table in 0..TABLES {
                // The second table has them from its second element on.
                let count = funcs.min(ELEMENTS.0 as i32 - table as i32);
                let init = [I::I32Const(table as i32), I::I32Const(0), I::I32Const(count), I::TableInit { table, elem_index: program }, I::Nop];
                init.iter().for_each(|instruction| _ = body.instruction(instruction));
            }
            body.instruction(&I::Return);
        });
        body.instruction(&I::End);
        body
    }
}

/// Code for each program, chosen by parameter 0.
fn each(programs: u32, body: &mut Function, mut code: impl FnMut(u32, &mut Function)) {
    for _ in 0..programs {
        body.instruction(&Instruction::Block(BlockType::Empty));
    }
    let targets: Vec<u32> = (0..programs - 1).collect();
    body.instruction(&Instruction::LocalGet(0)).instruction(&Instruction::BrTable(targets.into(), programs - 1));
    for program in 0..programs {
        body.instruction(&Instruction::End);
        code(program, body);
    }
}

/// Calls the first function of the program that parameter 0 names.
fn driver(programs: &[Program], first: &[u32]) -> Function {
    use Instruction as I;
    // Results come off the stack in the opposite order.
    let types = [ValType::I32, ValType::I64, ValType::F32, ValType::F64];
    let scratch = |ty: ValType| (1 + PARAMS_MAX) as u32 + types.iter().position(|other| *other == ty).expect("a number") as u32;
    let kept = |result: usize| (1 + PARAMS_MAX + types.len() + result) as u32;
    let locals = types.into_iter().chain([ValType::V128; RESULTS_MAX]);
    let mut body = Function::new_with_locals_types(locals);
    each(programs.len() as u32, &mut body, |program, body| {
        let ty = &programs[program as usize].funcs[0].ty;
        for (param, ty) in (1..).zip(&ty.params) {
            body.instruction(&I::LocalGet(param));
            match ty {
                ValType::I32 => body.instruction(&I::I32x4ExtractLane(0)),
                ValType::I64 => body.instruction(&I::I64x2ExtractLane(0)),
                ValType::F32 => body.instruction(&I::I32x4ExtractLane(0)).instruction(&I::F32ReinterpretI32),
                ValType::F64 => body.instruction(&I::I64x2ExtractLane(0)).instruction(&I::F64ReinterpretI64),
                _ => body,
            };
        }
        body.instruction(&I::Call(first[program as usize]));
        for (result, ty) in ty.results.iter().enumerate().rev() {
            if *ty != ValType::V128 {
                body.instruction(&I::LocalSet(scratch(*ty))).instruction(&I::V128Const(0)).instruction(&I::LocalGet(scratch(*ty)));
                match ty {
                    ValType::I32 => body.instruction(&I::I32x4ReplaceLane(0)),
                    ValType::I64 => body.instruction(&I::I64x2ReplaceLane(0)),
                    ValType::F32 => body.instruction(&I::I32ReinterpretF32).instruction(&I::I32x4ReplaceLane(0)),
                    _ => body.instruction(&I::I64ReinterpretF64).instruction(&I::I64x2ReplaceLane(0)),
                };
            }
            body.instruction(&I::LocalSet(kept(result)));
        }
        (0..RESULTS_MAX).for_each(|result| _ = body.instruction(&I::LocalGet(kept(result))));
        body.instruction(&I::Return);
    });
    body.instruction(&I::Unreachable).instruction(&I::End);
    body
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
