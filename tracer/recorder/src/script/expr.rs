//! Sums of numbers and saved names: `$p+4`, `$end-$start`, `$text.len`.

use std::collections::HashMap;

use worksp_tracer::recording::ValueType;

use crate::value::Value;

/// Something that was saved under a name.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Var {
    Value(Value),
    Bytes(Vec<u8>),
}

/// Terms with their signs.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Expr {
    terms: Vec<(bool, Term)>,
}

#[derive(Clone, PartialEq, Debug)]
enum Term {
    Number(i128),
    Name(String),
    Len(String),
}

impl Expr {
    pub(super) fn number(value: i128) -> Expr {
        Expr { terms: vec![(false, Term::Number(value))] }
    }

    pub(super) fn parse(text: &str) -> Result<Expr, String> {
        let mut terms = Vec::new();
        let mut rest = text.trim();
        let mut minus = false;
        if let Some(after) = rest.strip_prefix('-') {
            (minus, rest) = (true, after.trim_start());
        }
        loop {
            let end = rest.find(['+', '-']).unwrap_or(rest.len());
            terms.push((minus, term(rest[..end].trim()).ok_or_else(|| syntax(text))?));
            match rest[end..].chars().next() {
                None => return Ok(Expr { terms }),
                Some(sign) => (minus, rest) = (sign == '-', rest[end + 1..].trim_start()),
            }
        }
    }

    /// The saved value itself when the expression is just a name, else the sum as a value of type `ty`.
    pub(super) fn value(&self, ty: ValueType, vars: &HashMap<String, Var>) -> Result<Value, String> {
        if let [(false, Term::Name(name))] = self.terms.as_slice()
            && let Some(Var::Value(value)) = vars.get(name)
            && value.ty() == ty
        {
            return Ok(*value);
        }
        Value::parse(ty, &self.sum(vars)?.to_string())
    }

    pub(super) fn address(&self, vars: &HashMap<String, Var>) -> Result<u64, String> {
        let sum = self.sum(vars)?;
        u64::try_from(sum).map_err(|_| format!("{sum} is no address or length"))
    }

    pub(super) fn word(&self, vars: &HashMap<String, Var>) -> Result<u32, String> {
        let sum = self.sum(vars)?;
        let fits = i128::from(i32::MIN) <= sum && sum <= i128::from(u32::MAX);
        if fits { Ok(sum as u32) } else { Err(format!("{sum} does not fit 32 bits")) }
    }

    fn sum(&self, vars: &HashMap<String, Var>) -> Result<i128, String> {
        let mut sum: i128 = 0;
        for (minus, term) in &self.terms {
            let value = match term {
                Term::Number(number) => *number,
                // Results are pointers and sizes, so they count as unsigned.
                Term::Name(name) => match vars.get(name) {
                    Some(Var::Value(Value::I32(value))) => i128::from(*value as u32),
                    Some(Var::Value(Value::I64(value))) => i128::from(*value as u64),
                    Some(Var::Value(other)) => return Err(format!("`${name}` is {other}, which is no integer")),
                    Some(Var::Bytes(_)) => return Err(format!("`${name}` holds bytes; its length is `${name}.len`")),
                    None => return Err(format!("nothing was saved as `{name}`")),
                },
                Term::Len(name) => match vars.get(name) {
                    Some(Var::Bytes(bytes)) => bytes.len() as i128,
                    Some(Var::Value(_)) => return Err(format!("`${name}` is a number and has no length")),
                    None => return Err(format!("nothing was saved as `{name}`")),
                },
            };
            sum = if *minus { sum.checked_sub(value) } else { sum.checked_add(value) }.ok_or("the sum is too large")?;
        }
        Ok(sum)
    }
}

fn term(text: &str) -> Option<Term> {
    if let Some(name) = text.strip_prefix('$') {
        let (name, len) = name.strip_suffix(".len").map_or((name, false), |name| (name, true));
        let valid = !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || c == '_');
        let name = name.to_string();
        return valid.then_some(if len { Term::Len(name) } else { Term::Name(name) });
    }
    let digits = text.starts_with(|first: char| first.is_ascii_digit());
    let number = match text.strip_prefix("0x") {
        Some(hex) if hex.starts_with(|first: char| first.is_ascii_hexdigit()) => i128::from_str_radix(hex, 16).ok(),
        _ if digits => text.parse().ok(),
        _ => None,
    };
    number.map(Term::Number)
}

fn syntax(text: &str) -> String {
    format!("cannot understand `{text}`: write sums of numbers and names, such as $p+4 or $text.len")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums() {
        let mut vars = HashMap::new();
        vars.insert("p".to_string(), Var::Value(Value::I32(-16)));
        vars.insert("t".to_string(), Var::Bytes(vec![0; 5]));
        vars.insert("x".to_string(), Var::Value(Value::F64(1)));
        let check = |text: &str, expect: Result<i128, &str>| {
            let found = Expr::parse(text).and_then(|expr| expr.sum(&vars));
            match expect {
                Ok(value) => assert_eq!(found, Ok(value), "{text}"),
                Err(part) => assert!(found.as_ref().is_err_and(|e| e.contains(part)), "{text}: {found:?}"),
            }
        };
        check("12", Ok(12));
        check("0x10 + 2", Ok(18));
        check("-3", Ok(-3));
        check("$p+4", Ok(0xffff_fff4));
        check("$p - $p + $t.len", Ok(5));
        check("$t", Err("$t.len"));
        check("$p.len", Err("no length"));
        check("$x", Err("no integer"));
        check("$q", Err("nothing was saved as `q`"));
        for bad in ["", "+", "$", "1+", "a", "$p*2", "0x", "1 2", "$.len"] {
            check(bad, Err("cannot understand"));
        }
        assert_eq!(Expr::parse("$x").unwrap().value(ValueType::F64, &vars), Ok(Value::F64(1)));
        assert_eq!(Expr::parse("$p").unwrap().value(ValueType::I64, &vars), Ok(Value::I64(0xffff_fff0)));
        assert!(Expr::parse("-1").unwrap().address(&vars).is_err());
        assert_eq!(Expr::parse("-1").unwrap().word(&vars), Ok(u32::MAX));
    }
}
