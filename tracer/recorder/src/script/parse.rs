//! From JSON to steps, with messages that name the step and the field.

use std::path::Path;

use serde_json::{Map, Value as Json};

use super::{Arg, Bytes, Expr, Step};
use crate::error::Error;
use crate::session::closest;

const STEP_KINDS: &[&str] = &["invoke", "write_memory", "read_memory", "let"];
const BYTES_KINDS: &[&str] = &["utf8", "bytes", "hex", "file", "u32", "data"];

pub(super) fn error(path: &Path, step: Option<usize>, reason: String) -> Error {
    let place = step.map_or(String::new(), |step| format!(", step {}", step + 1));
    Error::Script { path: path.to_path_buf(), place, reason }
}

/// Parses `[step, …]` or `{"steps": [step, …]}`.
pub(super) fn steps(path: &Path, text: &str) -> Result<Vec<Step>, Error> {
    let json: Json = serde_json::from_str(text).map_err(|e| error(path, None, format!("it is no JSON: {e}")))?;
    let list = match &json {
        Json::Array(list) => Some(list),
        Json::Object(map) => map.get("steps").and_then(Json::as_array),
        _ => None,
    };
    let list = list.ok_or_else(|| error(path, None, "it must be a list of steps, or {\"steps\": [...]}".to_string()))?;
    let folder = path.parent().unwrap_or(Path::new(""));
    let parse = |(index, json)| step(folder, json).map_err(|reason| error(path, Some(index), reason));
    list.iter().enumerate().map(parse).collect()
}

fn step(folder: &Path, json: &Json) -> Result<Step, String> {
    let map = json.as_object().ok_or("a step must be an object")?;
    let kinds: Vec<&str> = STEP_KINDS.iter().copied().filter(|kind| map.contains_key(*kind)).collect();
    let [kind] = kinds[..] else {
        let found = if kinds.is_empty() { hint(map, STEP_KINDS) } else { format!("it has {}", kinds.join(" and ")) };
        return Err(format!("a step has exactly one of {}; {found}", STEP_KINDS.join(", ")));
    };
    match kind {
        "invoke" => {
            only(map, &["invoke", "args", "save", "expect"])?;
            let save = match map.get("save") {
                None => Vec::new(),
                Some(Json::String(name)) => vec![name.clone()],
                Some(list) => list_of(list, "save")?.iter().map(|name| string(name, "save")).collect::<Result<_, _>>()?,
            };
            let args = map.get("args").map_or(Ok(Vec::new()), |args| args_of(args, "args"))?;
            let expect = map.get("expect").map(|expect| args_of(expect, "expect")).transpose()?;
            Ok(Step::Invoke { export: string(&map["invoke"], "invoke")?, args, save, expect })
        }
        "write_memory" => {
            only(map, &["write_memory", "memory", "utf8", "bytes", "hex", "file", "u32", "data"])?;
            let address = expr(&map["write_memory"], "write_memory")?;
            Ok(Step::Write { memory: memory(map)?, address, bytes: bytes(folder, map)? })
        }
        "read_memory" => {
            only(map, &["read_memory", "memory", "len", "save", "print", "expect"])?;
            let print = match map.get("print") {
                None => false,
                Some(print) => print.as_bool().ok_or("`print` must be true or false")?,
            };
            let expect = match map.get("expect") {
                None => None,
                Some(Json::String(text)) => Some(Bytes::Given(text.clone().into_bytes())),
                Some(expect) => Some(bytes(folder, expect.as_object().ok_or("`expect` must be a text or an object")?)?),
            };
            let address = expr(&map["read_memory"], "read_memory")?;
            let len = expr(map.get("len").ok_or("`len` is missing")?, "len")?;
            let save = map.get("save").map(|name| string(name, "save")).transpose()?;
            Ok(Step::Read { memory: memory(map)?, address, len, save, print, expect })
        }
        _ => {
            only(map, &["let", "utf8", "bytes", "hex", "file", "u32", "data"])?;
            Ok(Step::Let { name: string(&map["let"], "let")?, bytes: bytes(folder, map)? })
        }
    }
}

/// Fails on a field that the step does not have.
fn only(map: &Map<String, Json>, known: &[&str]) -> Result<(), String> {
    match map.keys().find(|key| !known.contains(&key.as_str())) {
        Some(unknown) => match closest(unknown, known) {
            Some(close) => Err(format!("unknown field `{unknown}`: did you mean `{close}`?")),
            None => Err(format!("unknown field `{unknown}`: this step has {}", known.join(", "))),
        },
        None => Ok(()),
    }
}

fn hint(map: &Map<String, Json>, known: &[&str]) -> String {
    let close = map.keys().find_map(|key| closest(key, known).map(|close| format!("did you mean `{close}` by `{key}`?")));
    close.unwrap_or_else(|| "it has none".to_string())
}

fn bytes(folder: &Path, map: &Map<String, Json>) -> Result<Bytes, String> {
    let kinds: Vec<&str> = BYTES_KINDS.iter().copied().filter(|kind| map.contains_key(*kind)).collect();
    let [kind] = kinds[..] else {
        return Err(format!("give the bytes as exactly one of {}", BYTES_KINDS.join(", ")));
    };
    let json = &map[kind];
    match kind {
        "utf8" => Ok(Bytes::Given(string(json, kind)?.into_bytes())),
        "data" => Ok(Bytes::Named(string(json, kind)?)),
        "u32" => Ok(Bytes::Words(list_of(json, kind)?.iter().map(|word| expr(word, kind)).collect::<Result<_, _>>()?)),
        "hex" => Ok(Bytes::Given(hex(&string(json, kind)?)?)),
        "file" => {
            let path = folder.join(string(json, kind)?);
            Ok(Bytes::Given(std::fs::read(&path).map_err(|error| format!("cannot read {}: {error}", path.display()))?))
        }
        _ => {
            let byte = |json: &Json| json.as_u64().and_then(|byte| u8::try_from(byte).ok());
            let list = list_of(json, kind)?.iter().map(byte).collect::<Option<_>>();
            Ok(Bytes::Given(list.ok_or("`bytes` must be a list of numbers from 0 to 255")?))
        }
    }
}

fn hex(text: &str) -> Result<Vec<u8>, String> {
    let digits: Option<Vec<u32>> = text.chars().filter(|c| !c.is_whitespace()).map(|c| c.to_digit(16)).collect();
    let digits = digits.ok_or("`hex` holds something that is no hexadecimal digit")?;
    if !digits.len().is_multiple_of(2) {
        return Err("`hex` holds an odd number of digits".to_string());
    }
    Ok(digits.chunks(2).map(|pair| (pair[0] << 4 | pair[1]) as u8).collect())
}

fn memory(map: &Map<String, Json>) -> Result<Option<String>, String> {
    map.get("memory").map(|name| string(name, "memory")).transpose()
}

fn args_of(json: &Json, field: &str) -> Result<Vec<Arg>, String> {
    list_of(json, field)?.iter().map(|json| arg(json, field)).collect()
}

fn arg(json: &Json, field: &str) -> Result<Arg, String> {
    match json {
        Json::Number(number) => Ok(Arg::Literal(number.to_string())),
        Json::String(text) if text.contains('$') => Ok(Arg::Computed(Expr::parse(text)?)),
        Json::String(text) => Ok(Arg::Literal(text.clone())),
        Json::Null => Ok(Arg::Literal("null".to_string())),
        other => Err(format!("`{field}` must hold numbers and texts, not {other}")),
    }
}

fn expr(json: &Json, field: &str) -> Result<Expr, String> {
    match json {
        Json::Number(number) => {
            let integer = number.as_i64().map(i128::from).or(number.as_u64().map(i128::from));
            Ok(Expr::number(integer.ok_or_else(|| format!("`{field}` must be an integer, not {number}"))?))
        }
        Json::String(text) => Expr::parse(text),
        other => Err(format!("`{field}` must be a number or a text such as \"$p+4\", not {other}")),
    }
}

fn list_of<'a>(json: &'a Json, field: &str) -> Result<&'a Vec<Json>, String> {
    json.as_array().ok_or_else(|| format!("`{field}` must be a list"))
}

fn string(json: &Json, field: &str) -> Result<String, String> {
    json.as_str().map(ToString::to_string).ok_or_else(|| format!("`{field}` must be a text"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expect: &str) {
        let found = steps(Path::new("dir/s.json"), text).map(|steps| format!("{} steps", steps.len()));
        let found = found.unwrap_or_else(|error| error.to_string());
        assert!(found.contains(expect), "{text}\n  {found}");
    }

    #[test]
    fn scripts_are_checked() {
        check(r#"[]"#, "0 steps");
        check(r#"{"steps": [{"invoke": "f", "args": [1, "$p+4", "0x10", null], "save": "p", "expect": [1]}]}"#, "1 steps");
        check(r#"[{"write_memory": "$p", "u32": ["$a", 0]}, {"read_memory": 0, "len": "$n", "print": true}]"#, "2 steps");
        check(r#"[{"let": "t", "hex": "00 ff"}, {"read_memory": 1, "len": 2, "expect": {"bytes": [1, 2]}}]"#, "2 steps");
        check("{", "dir/s.json: it is no JSON");
        check("3", "must be a list of steps");
        check("[3]", "step 1: a step must be an object");
        check(r#"[{"invoek": "f"}]"#, "did you mean `invoke` by `invoek`?");
        check(r#"[{"invoke": "f", "let": "x"}]"#, "it has invoke and let");
        check(r#"[{"invoke": "f", "arg": []}]"#, "unknown field `arg`: did you mean `args`?");
        check(r#"[{"invoke": "f", "args": [[]]}]"#, "must hold numbers and texts");
        check(r#"[{"write_memory": 0}]"#, "exactly one of utf8");
        check(r#"[{"write_memory": 1.5, "utf8": "x"}]"#, "must be an integer");
        check(r#"[{"write_memory": 0, "file": "no-such-file"}]"#, "cannot read dir/no-such-file");
        check(r#"[{"write_memory": 0, "bytes": [256]}]"#, "from 0 to 255");
        check(r#"[{"write_memory": 0, "hex": "123"}]"#, "odd number");
        check(r#"[{"let": "x", "utf8": ""}, {"read_memory": 0}]"#, "step 2: `len` is missing");
    }
}
