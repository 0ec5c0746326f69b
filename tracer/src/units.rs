//! Which units a run is cut into: specifications, resolved on a module.
//!
//! ```text
//! func:NAME            every invocation of a function
//! site:NAME+OFFSET     every invocation from one call operator (its offset in the module, as reports print it)
//! loop:NAME#N          every iteration of the function's N-th loop in binary order, from 0
//! ```
//!
//! NAME is a name of the name section, an export's name, or `func[N]`; `*` and `?` in NAME and in N match anything.

use rustc_hash::FxHashMap;
use wasmparser::{FunctionBody, Operator};
use worksp_engine::probe::{LoopRef, Site, SiteId, TracePlan};
use worksp_engine::{ExportItem, Module};

use crate::trace::Boundary;

/// Boundaries that one specification may stand for.
const MATCHES_MAX: usize = 100_000;
/// Names that an error message offers.
const OFFERED: usize = 5;

/// Why a unit specification cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UnitError {
    /// The specification is none.
    #[error("`{spec}` is no unit: write func:NAME, site:NAME+OFFSET or loop:NAME#N")]
    Syntax {
        /// What was given.
        spec: String,
    },
    /// No function has the name.
    #[error("`{spec}` matches no function of this module{}", offer("close names are", close))]
    NoFunction {
        /// What was given.
        spec: String,
        /// Names that are close.
        close: Vec<String>,
    },
    /// The functions that match have no such loop.
    #[error("`{spec}` matches no loop: {function} has {count} (they are numbered from 0)")]
    NoLoop {
        /// What was given.
        spec: String,
        /// A function that matched.
        function: String,
        /// How many loops it has.
        count: u32,
    },
    /// There is no call at the offset.
    #[error("`{spec}` is no call operator of {function}{}", offer("its calls are at", close))]
    NoCall {
        /// What was given.
        spec: String,
        /// The function.
        function: String,
        /// Offsets of calls that are close.
        close: Vec<String>,
    },
    /// The specification stands for too many boundaries.
    #[error("`{spec}` matches more than {MATCHES_MAX} boundaries: choose a narrower pattern")]
    TooMany {
        /// What was given.
        spec: String,
    },
}

fn offer(what: &str, close: &[String]) -> String {
    if close.is_empty() { String::new() } else { format!("; {what} {}", close.join(", ")) }
}

/// A unit specification.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum UnitSpec {
    /// `func:NAME`
    Func(String),
    /// `site:NAME+OFFSET`
    Site(String, u32),
    /// `loop:NAME#N`, or every loop of the function when N is `*`.
    Loop(String, Option<u32>),
}

impl std::str::FromStr for UnitSpec {
    type Err = UnitError;

    fn from_str(spec: &str) -> Result<UnitSpec, UnitError> {
        let syntax = || UnitError::Syntax { spec: spec.to_owned() };
        let (kind, rest) = spec.split_once(':').ok_or_else(syntax)?;
        let parsed = match kind {
            "func" => UnitSpec::Func(rest.to_owned()),
            "site" => {
                let (name, offset) = rest.rsplit_once('+').ok_or_else(syntax)?;
                let offset = match offset.strip_prefix("0x") {
                    Some(hex) => u32::from_str_radix(hex, 16),
                    None => offset.parse(),
                };
                UnitSpec::Site(name.to_owned(), offset.map_err(|_| syntax())?)
            }
            "loop" => {
                let (name, ordinal) = rest.rsplit_once('#').ok_or_else(syntax)?;
                let ordinal = if ordinal == "*" { None } else { Some(ordinal.parse().map_err(|_| syntax())?) };
                UnitSpec::Loop(name.to_owned(), ordinal)
            }
            _ => return Err(syntax()),
        };
        let (UnitSpec::Func(name) | UnitSpec::Site(name, _) | UnitSpec::Loop(name, _)) = &parsed;
        if name.is_empty() { Err(syntax()) } else { Ok(parsed) }
    }
}

impl std::fmt::Display for UnitSpec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            UnitSpec::Func(name) => write!(f, "func:{name}"),
            UnitSpec::Site(name, offset) => write!(f, "site:{name}+{offset:#x}"),
            UnitSpec::Loop(name, Some(ordinal)) => write!(f, "loop:{name}#{ordinal}"),
            UnitSpec::Loop(name, None) => write!(f, "loop:{name}#*"),
        }
    }
}

/// The boundaries at which a run is cut.
#[derive(Clone, Default, Debug)]
pub struct Units {
    specs: Vec<String>,
    boundaries: Vec<Boundary>,
    funcs: FxHashMap<u32, u32>,
    sites: FxHashMap<(u32, u32), u32>,
    loops: FxHashMap<LoopRef, u32>,
    /// By site number: a boundary plus 1.
    by_site: Vec<u32>,
}

impl Units {
    /// Resolves specifications on a module.
    ///
    /// # Errors
    /// When one of them cannot be read or matches nothing.
    pub fn resolve(module: &Module, specs: &[UnitSpec]) -> Result<Units, UnitError> {
        let mut units = Units::default();
        let mut names = None;
        for spec in specs {
            let names = names.get_or_insert_with(|| Names::of(module));
            let found = resolve_one(module, names, spec)?;
            for boundary in found {
                units.add(boundary);
            }
            let text = spec.to_string();
            if !units.specs.contains(&text) {
                units.specs.push(text);
            }
        }
        Ok(units)
    }

    /// Adds a boundary, once.
    pub fn add(&mut self, boundary: Boundary) {
        let next = self.boundaries.len() as u32;
        let added = match boundary {
            Boundary::Root(_) => return,
            Boundary::Func(func) => *self.funcs.entry(func).or_insert(next),
            Boundary::Site(site) => *self.sites.entry((site.func, site.offset)).or_insert(next),
            Boundary::Loop { func, ordinal } => *self.loops.entry(LoopRef { func, ordinal }).or_insert(next),
        };
        if added == next {
            self.boundaries.push(boundary);
        }
    }

    /// Notes under which specification the boundaries were chosen.
    pub fn add_spec(&mut self, spec: String) {
        self.specs.push(spec);
    }

    /// What traced code must report for these units.
    pub fn plan(&self) -> TracePlan {
        let mut plan = TracePlan::default();
        for boundary in &self.boundaries {
            match *boundary {
                Boundary::Root(_) => {}
                Boundary::Func(func) => plan.funcs.push(func),
                Boundary::Site(site) => plan.sites.push(site),
                Boundary::Loop { func, ordinal } => plan.loops.push(LoopRef { func, ordinal }),
            }
        }
        plan
    }

    /// Tells which number a place has in traced code, in case it is a boundary.
    pub fn learn_site(&mut self, id: SiteId, site: Site) {
        let Some(boundary) = self.sites.get(&(site.func, site.offset)) else { return };
        let id = id.0 as usize;
        if self.by_site.len() <= id {
            self.by_site.resize(id + 1, 0);
        }
        self.by_site[id] = boundary + 1;
    }

    /// The specifications, as they were written or chosen.
    pub fn specs(&self) -> &[String] {
        &self.specs
    }

    /// All boundaries; roots are added as they are entered.
    pub fn boundaries(&self) -> &[Boundary] {
        &self.boundaries
    }

    pub(crate) fn push_boundary(&mut self, boundary: Boundary) -> u32 {
        self.boundaries.push(boundary);
        (self.boundaries.len() - 1) as u32
    }

    /// The functions that are units.
    pub fn funcs(&self) -> impl Iterator<Item = u32> + '_ {
        self.funcs.keys().copied()
    }

    #[inline]
    pub(crate) fn of_func(&self, func: u32) -> Option<u32> {
        self.funcs.get(&func).copied()
    }

    #[inline]
    pub(crate) fn of_site(&self, site: SiteId) -> Option<u32> {
        self.by_site.get(site.0 as usize).and_then(|b| b.checked_sub(1))
    }

    #[inline]
    pub(crate) fn of_loop(&self, this: LoopRef) -> Option<u32> {
        self.loops.get(&this).copied()
    }
}

/// All names of the functions that have code.
struct Names {
    names: Vec<(String, u32)>,
}

impl Names {
    fn of(module: &Module) -> Names {
        let defined = module.imported_func_count()..module.func_count();
        let mut names: Vec<(String, u32)> = defined.clone().map(|func| (module.func_name(func), func)).collect();
        names.extend(module.exports().iter().filter_map(|export| match export.item {
            ExportItem::Func(func) if defined.contains(&func) => Some((export.name.clone(), func)),
            _ => None,
        }));
        Names { names }
    }

    fn matching(&self, module: &Module, pattern: &str) -> Vec<u32> {
        let by_number = pattern.strip_prefix("func[").and_then(|rest| rest.strip_suffix(']')).and_then(|n| n.parse().ok());
        let by_number = by_number.filter(|n| (module.imported_func_count()..module.func_count()).contains(n));
        let matching = self.names.iter().filter(|(name, _)| glob(pattern, name)).map(|(_, func)| *func);
        let mut funcs: Vec<u32> = by_number.into_iter().chain(matching).collect();
        funcs.sort_unstable();
        funcs.dedup();
        funcs
    }

    fn close(&self, pattern: &str) -> Vec<String> {
        let word = pattern.trim_matches(['*', '?']);
        let mut scored: Vec<(usize, &String)> = self
            .names
            .iter()
            .filter(|(name, _)| name.len().abs_diff(word.len()) <= 8 || name.contains(word))
            .map(|(name, _)| (distance(word, name), name))
            .filter(|(d, name)| *d <= 2.max(word.len() / 3) || name.contains(word))
            .collect();
        scored.sort();
        scored.dedup();
        scored.into_iter().take(OFFERED).map(|(_, name)| name.clone()).collect()
    }
}

fn resolve_one(module: &Module, names: &Names, spec: &UnitSpec) -> Result<Vec<Boundary>, UnitError> {
    let (UnitSpec::Func(pattern) | UnitSpec::Site(pattern, _) | UnitSpec::Loop(pattern, _)) = spec;
    let funcs = names.matching(module, pattern);
    let Some(&first) = funcs.first() else {
        return Err(UnitError::NoFunction { spec: spec.to_string(), close: names.close(pattern) });
    };
    let mut found = Vec::new();
    for &func in &funcs {
        match spec {
            UnitSpec::Func(_) => found.push(Boundary::Func(func)),
            UnitSpec::Site(_, offset) => {
                if calls_of(module, func).contains(offset) {
                    found.push(Boundary::Site(Site { func, offset: *offset }));
                }
            }
            UnitSpec::Loop(_, ordinal) => {
                let all = 0..loops_of(module, func);
                let wanted = all.filter(|n| ordinal.is_none_or(|o| o == *n));
                found.extend(wanted.map(|ordinal| Boundary::Loop { func, ordinal }));
            }
        }
        if found.len() > MATCHES_MAX {
            return Err(UnitError::TooMany { spec: spec.to_string() });
        }
    }
    if !found.is_empty() {
        return Ok(found);
    }
    let (spec_text, function) = (spec.to_string(), module.func_name(first));
    Err(match spec {
        UnitSpec::Site(_, offset) => {
            let mut calls = calls_of(module, first);
            calls.sort_by_key(|c| c.abs_diff(*offset));
            let close = calls.iter().take(OFFERED).map(|c| format!("{c:#x}")).collect();
            UnitError::NoCall { spec: spec_text, function, close }
        }
        _ => UnitError::NoLoop { spec: spec_text, function, count: loops_of(module, first) },
    })
}

/// Calls `each` with every operator of a function and its offset in the module.
pub(crate) fn operators(module: &Module, func: u32, mut each: impl FnMut(Operator<'_>, usize)) {
    let Some(range) = module.func_body(func) else { return };
    let Some(bytes) = module.bytes().get(range.clone()) else { return };
    let body = FunctionBody::new(wasmparser::BinaryReader::new(bytes, range.start));
    // The module is valid: its bodies can be read.
    let Ok(mut reader) = body.get_operators_reader() else { return };
    while !reader.eof() {
        let offset = reader.original_position();
        let Ok(operator) = reader.read() else { return };
        each(operator, offset);
    }
}

/// The number of loops of a function.
pub fn loops_of(module: &Module, func: u32) -> u32 {
    let mut count = 0;
    operators(module, func, |operator, _| count += u32::from(matches!(operator, Operator::Loop { .. })));
    count
}

/// Module offsets of a function's call operators.
pub fn calls_of(module: &Module, func: u32) -> Vec<u32> {
    let mut calls = Vec::new();
    operators(module, func, |operator, offset| {
        use Operator::*;
        let is_call = matches!(operator, Call { .. } | CallIndirect { .. } | CallRef { .. });
        if is_call || matches!(operator, ReturnCall { .. } | ReturnCallIndirect { .. } | ReturnCallRef { .. }) {
            calls.push(offset as u32);
        }
    });
    calls
}

/// Whether `*` (anything) and `?` (one character) of the pattern can stand for the name.
fn glob(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) = (pattern.chars().collect(), name.chars().collect());
    let (mut p, mut n) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        if p < pattern.len() && pattern[p] == '*' {
            star = Some((p, n));
            p += 1;
        } else if p < pattern.len() && (pattern[p] == '?' || pattern[p] == name[n]) {
            (p, n) = (p + 1, n + 1);
        } else if let Some((at, taken)) = star {
            star = Some((at, taken + 1));
            (p, n) = (at + 1, taken + 1);
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|c| *c == '*')
}

/// Edit distance (Levenshtein).
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, cb) in b.iter().enumerate() {
            let change = diagonal + usize::from(ca != *cb);
            diagonal = row[j + 1];
            row[j + 1] = change.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use worksp_engine::{Config, Engine};

    fn module() -> Module {
        let text = r#"(module
            (import "host" "f" (func $import))
            (func $task (loop (br_if 0 (i32.const 0)) (loop)) (call $import) (call $leaf))
            (func $leaf)
            (func (export "run") (loop) (call $task)))"#;
        Module::from_text(&Engine::new(Config::default()), text).expect("a valid module")
    }

    fn check(spec: &str, expect: Result<Vec<Boundary>, &str>) {
        let module = module();
        let got = spec.parse().and_then(|spec| Units::resolve(&module, &[spec]));
        let got = got.map(|u| u.boundaries().to_vec()).map_err(|e| e.to_string());
        assert_eq!(got, expect.map_err(str::to_owned), "{spec}");
    }

    #[test]
    fn specifications_resolve() {
        use Boundary::*;
        check("func:task", Ok(vec![Func(1)]));
        check("func:run", Ok(vec![Func(3)]));
        check("func:func[2]", Ok(vec![Func(2)]));
        check("func:*a*", Ok(vec![Func(1), Func(2)]));
        check("loop:task#1", Ok(vec![Loop { func: 1, ordinal: 1 }]));
        check("loop:*#*", Ok(vec![Loop { func: 1, ordinal: 0 }, Loop { func: 1, ordinal: 1 }, Loop { func: 3, ordinal: 0 }]));
        let call = calls_of(&module(), 1)[1];
        check(&format!("site:task+{call:#x}"), Ok(vec![Site(worksp_engine::probe::Site { func: 1, offset: call })]));
        check(&format!("site:task+{call}"), Ok(vec![Site(worksp_engine::probe::Site { func: 1, offset: call })]));
    }

    #[test]
    fn errors_say_what_would_do() {
        check("task", Err("`task` is no unit: write func:NAME, site:NAME+OFFSET or loop:NAME#N"));
        check("loop:task", Err("`loop:task` is no unit: write func:NAME, site:NAME+OFFSET or loop:NAME#N"));
        check("func:", Err("`func:` is no unit: write func:NAME, site:NAME+OFFSET or loop:NAME#N"));
        check("func:tusk", Err("`func:tusk` matches no function of this module; close names are task"));
        check("func:import", Err("`func:import` matches no function of this module"));
        check("loop:leaf#0", Err("`loop:leaf#0` matches no loop: leaf has 0 (they are numbered from 0)"));
        check("func:func[0]", Err("`func:func[0]` matches no function of this module"));
    }

    #[test]
    fn globs() {
        for (pattern, name, expect) in
            [("*", "", true), ("a*b", "axxb", true), ("a*b", "axxc", false), ("a?c", "abc", true), ("a?c", "ac", false), ("a**", "a", true)]
        {
            assert_eq!(glob(pattern, name), expect, "{pattern} {name}");
        }
    }
}
