//! Rust's types for functions: calls of exports and functions of the host without values of dynamic types.

use std::fmt;
use std::marker::PhantomData;

use crate::error::Error;
use crate::linker::{CallError, Caller, HostError, Linker};
use crate::probe::Probe;
use crate::store::Store;
use crate::value::{FuncId, FuncType, InstanceId, Val, ValType};

/// A Rust type that stands for a type of values: `i32`, `u32`, `i64`, `u64`, `f32`, `f64`, `u128` for vectors, and `Option<FuncId>`.
pub trait WasmTy: Sized {
    /// The type that it stands for.
    const TYPE: ValType;
    /// As a value.
    fn into_val(self) -> Val;
    /// From a value of [`WasmTy::TYPE`]; `None` for any other.
    fn from_val(val: Val) -> Option<Self>;
}

macro_rules! wasm_ty {
    ($($ty:ty: $variant:ident, $into:expr, $from:expr;)*) => {$(
        impl WasmTy for $ty {
            const TYPE: ValType = ValType::$variant;
            fn into_val(self) -> Val { Val::$variant($into(self)) }
            fn from_val(val: Val) -> Option<$ty> { if let Val::$variant(value) = val { Some($from(value)) } else { None } }
        }
    )*};
}
wasm_ty! {
    i32: I32, |v| v, |v| v;
    u32: I32, u32::cast_signed, i32::cast_unsigned;
    i64: I64, |v| v, |v| v;
    u64: I64, u64::cast_signed, i64::cast_unsigned;
    f32: F32, f32::to_bits, f32::from_bits;
    f64: F64, f64::to_bits, f64::from_bits;
    u128: V128, |v| v, |v| v;
    Option<FuncId>: FuncRef, |v| v, |v| v;
}

/// Parameters or results: `()`, one [`WasmTy`], or a tuple of up to eight.
pub trait WasmTypes: Sized {
    /// Their types.
    fn types() -> Vec<ValType>;
    /// As values.
    fn into_vals(self) -> Vec<Val>;
    /// From values of these types; `None` for others.
    fn from_vals(vals: &[Val]) -> Option<Self>;
}

impl<T: WasmTy> WasmTypes for T {
    fn types() -> Vec<ValType> {
        vec![T::TYPE]
    }
    fn into_vals(self) -> Vec<Val> {
        vec![self.into_val()]
    }
    fn from_vals(vals: &[Val]) -> Option<T> {
        if let [val] = vals { T::from_val(*val) } else { None }
    }
}

/// What a host function gives: results, or a [`Result`] of them.
pub trait HostResult {
    /// The results.
    type Results: WasmTypes;
    /// As a result in any case.
    fn into_result(self) -> Result<Self::Results, HostError>;
}

impl<R: WasmTypes> HostResult for R {
    type Results = R;
    fn into_result(self) -> Result<R, HostError> {
        Ok(self)
    }
}

impl<R: WasmTypes> HostResult for Result<R, HostError> {
    type Results = R;
    fn into_result(self) -> Result<R, HostError> {
        self
    }
}

/// A closure that can be a function of the host: up to eight parameters of [`WasmTy`]s, perhaps a `&mut Caller` before them, and a
/// [`HostResult`]. `Params` tells the implementations apart.
pub trait IntoHostFunc<Params>: 'static {
    /// Its type.
    fn ty() -> FuncType;
    /// Calls it with arguments of that type.
    fn run(&self, caller: &mut Caller<'_>, args: &[Val]) -> Result<Vec<Val>, HostError>;
}

/// Marks closures that take the caller.
pub struct WithCaller<Params>(PhantomData<Params>);

macro_rules! tuples {
    ($(($($param:ident $arg:ident),*))*) => {$(
        tuples!(@types $($param $arg),*);

        impl<F, R, $($param: WasmTy),*> IntoHostFunc<($($param,)* R,)> for F
        where F: Fn($($param),*) -> R + 'static, R: HostResult {
            fn ty() -> FuncType { FuncType::new([$($param::TYPE),*], R::Results::types()) }
            #[allow(unused_variables, unused_mut, reason = "without parameters there are none to take")]
            fn run(&self, _: &mut Caller<'_>, args: &[Val]) -> Result<Vec<Val>, HostError> {
                let mut args = args.iter();
                $(let $arg = next::<$param>(&mut args);)*
                Ok(self($($arg),*).into_result()?.into_vals())
            }
        }

        impl<F, R, $($param: WasmTy),*> IntoHostFunc<WithCaller<($($param,)* R,)>> for F
        where F: Fn(&mut Caller<'_>, $($param),*) -> R + 'static, R: HostResult {
            fn ty() -> FuncType { FuncType::new([$($param::TYPE),*], R::Results::types()) }
            #[allow(unused_variables, unused_mut, reason = "without parameters there are none to take")]
            fn run(&self, caller: &mut Caller<'_>, args: &[Val]) -> Result<Vec<Val>, HostError> {
                let mut args = args.iter();
                $(let $arg = next::<$param>(&mut args);)*
                Ok(self(caller, $($arg),*).into_result()?.into_vals())
            }
        }
    )*};
    (@types) => {
        impl WasmTypes for () {
            fn types() -> Vec<ValType> { Vec::new() }
            fn into_vals(self) -> Vec<Val> { Vec::new() }
            fn from_vals(vals: &[Val]) -> Option<()> { vals.is_empty().then_some(()) }
        }
    };
    (@types $($param:ident $arg:ident),+) => {
        impl<$($param: WasmTy),+> WasmTypes for ($($param,)+) {
            fn types() -> Vec<ValType> { vec![$($param::TYPE),+] }
            fn into_vals(self) -> Vec<Val> {
                let ($($arg,)+) = self;
                vec![$($arg.into_val()),+]
            }
            fn from_vals(vals: &[Val]) -> Option<Self> {
                let [$($arg),+] = vals else { return None };
                Some(($($param::from_val(*$arg)?,)+))
            }
        }
    };
}
tuples! {
    () (A a) (A a, B b) (A a, B b, C c) (A a, B b, C c, D d) (A a, B b, C c, D d, E e) (A a, B b, C c, D d, E e, G g)
    (A a, B b, C c, D d, E e, G g, H h) (A a, B b, C c, D d, E e, G g, H h, I i)
}

/// The next argument of a function whose type was checked.
fn next<'a, T: WasmTy>(args: &mut impl Iterator<Item = &'a Val>) -> T {
    args.next().and_then(|arg| T::from_val(*arg)).expect("arguments have the declared types")
}

/// A function whose type is known in Rust, checked once.
///
/// # Example
/// ```
/// use worksp_engine::probe::NoProbe;
/// use worksp_engine::{Engine, Linker, Module, Store, TypedFunc};
/// let engine = Engine::default();
/// let text = r#"(module (func (export "divmod") (param i32 i32) (result i32 i32)
///     (i32.div_u (local.get 0) (local.get 1)) (i32.rem_u (local.get 0) (local.get 1))))"#;
/// let (mut store, linker) = (Store::new(&engine), Linker::new());
/// let instance = linker.instantiate(&mut store, &mut NoProbe, &Module::from_text(&engine, text)?)?;
/// let divmod: TypedFunc<(u32, u32), (u32, u32)> = store.typed_func(instance, "divmod")?;
/// assert_eq!(divmod.call(&linker, &mut store, &mut NoProbe, (17, 5))?, (3, 2));
/// let error = store.typed_func::<i64, ()>(instance, "divmod").unwrap_err().to_string();
/// assert_eq!(error, "divmod is a function [i32 i32] -> [i32 i32], not [i64] -> []");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct TypedFunc<Params, Results> {
    func: FuncId,
    types: PhantomData<fn(Params) -> Results>,
}

impl<Params, Results> Clone for TypedFunc<Params, Results> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<Params, Results> Copy for TypedFunc<Params, Results> {}

impl<Params, Results> fmt::Debug for TypedFunc<Params, Results> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TypedFunc({})", self.func.0)
    }
}

impl<Params: WasmTypes, Results: WasmTypes> TypedFunc<Params, Results> {
    /// The function.
    pub fn func(self) -> FuncId {
        self.func
    }

    /// Calls it; `linker` serves the host calls that it makes.
    ///
    /// # Errors
    /// When the program traps or exits.
    pub fn call<P: Probe>(self, linker: &Linker, store: &mut Store, probe: &mut P, params: Params) -> Result<Results, CallError> {
        let results = linker.call(store, probe, self.func, &params.into_vals())?;
        Ok(Results::from_vals(&results).expect("results have the function's types"))
    }

    /// Calls it from a host function, back into the program.
    ///
    /// # Errors
    /// When the program traps or exits.
    pub fn call_back(self, caller: &mut Caller<'_>, params: Params) -> Result<Results, CallError> {
        let results = caller.call(self.func, &params.into_vals())?;
        Ok(Results::from_vals(&results).expect("results have the function's types"))
    }

    /// As [`TypedFunc::call`], waiting for asynchronous host functions.
    ///
    /// # Errors
    /// When the program traps or exits.
    pub async fn call_async<P: Probe>(self, linker: &Linker, store: &mut Store, probe: &mut P, params: Params) -> Result<Results, CallError> {
        let results = linker.call_async(store, probe, self.func, &params.into_vals()).await?;
        Ok(Results::from_vals(&results).expect("results have the function's types"))
    }
}

impl Store {
    /// The function that an instance exports under this name, of these types.
    ///
    /// # Errors
    /// When there is no such function, or it has another type.
    pub fn typed_func<Params: WasmTypes, Results: WasmTypes>(&self, instance: InstanceId, name: &str) -> Result<TypedFunc<Params, Results>, Error> {
        self.typed(self.exported_func(instance, name)?)
    }

    /// A function as one of these types.
    ///
    /// # Errors
    /// When it has another type.
    pub fn typed<Params: WasmTypes, Results: WasmTypes>(&self, func: FuncId) -> Result<TypedFunc<Params, Results>, Error> {
        let wanted = FuncType::new(Params::types(), Results::types());
        match self.func_type(func) == &wanted {
            true => Ok(TypedFunc { func, types: PhantomData }),
            false => Err(Error::FuncType { func: self.func_name(func), found: self.func_type(func).to_string(), wanted: wanted.to_string() }),
        }
    }
}

impl Linker {
    /// Defines a closure as a function of the host. It may take a `&mut Caller` first, and may give a [`Result`].
    ///
    /// # Example
    /// ```
    /// use worksp_engine::probe::NoProbe;
    /// use worksp_engine::{Caller, Engine, HostError, Linker, Module, Store};
    /// let engine = Engine::default();
    /// let text = r#"(module (import "env" "mix" (func $mix (param i32 f64) (result i64)))
    ///     (import "env" "sum" (func $sum (param i32 i32) (result i32)))
    ///     (memory (export "memory") 1) (data (i32.const 100) "\01\02\03")
    ///     (func (export "run") (result i64)
    ///         (i64.add (call $mix (i32.const 3) (f64.const 0.5)) (i64.extend_i32_u (call $sum (i32.const 100) (i32.const 3))))))"#;
    /// let (mut store, mut linker) = (Store::new(&engine), Linker::new());
    /// linker.func_wrap("env", "mix", |a: i32, b: f64| (f64::from(a) / b) as i64);
    /// linker.func_wrap("env", "sum", |caller: &mut Caller<'_>, at: u32, len: u32| -> Result<u32, HostError> {
    ///     let memory = caller.exported_memory("memory")?;
    ///     let mut bytes = vec![0; len as usize];
    ///     caller.store().read(memory, u64::from(at), &mut bytes)?;
    ///     Ok(bytes.iter().copied().map(u32::from).sum())
    /// });
    /// let instance = linker.instantiate(&mut store, &mut NoProbe, &Module::from_text(&engine, text)?)?;
    /// let run = store.typed_func::<(), i64>(instance, "run")?;
    /// assert_eq!(run.call(&linker, &mut store, &mut NoProbe, ())?, 12);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn func_wrap<Params, F: IntoHostFunc<Params>>(&mut self, module: &str, name: &str, run: F) {
        self.func(module, name, F::ty(), move |caller, args| run.run(caller, args));
    }
}
