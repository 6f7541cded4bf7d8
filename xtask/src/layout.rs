//! Tables of what a `format.rs` declares. It is read line by line: rustfmt has laid it out, every
//! on-disk type is `#[repr]`, every field is public and has a comment.

use anyhow::{Context, Result, bail, ensure};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Tables by what they show: `struct SuperBlock`, `enum BlockType`, `constants`.
pub type Tables = BTreeMap<String, String>;

/// Makes the tables of `source`.
pub fn tables(source: &str) -> Result<Tables> {
    let mut reader = Reader::default();
    let mut lines = source.lines();
    while let Some(line) = lines.next() {
        reader.item(line.trim_end(), &mut lines).with_context(|| line.to_string())?;
    }
    reader.tables.insert("constants".to_string(), reader.constants);
    Ok(reader.tables)
}

#[derive(Default)]
struct Reader {
    tables: Tables,
    constants: String,
    /// Sizes of the structures so far.
    sizes: BTreeMap<String, u64>,
    /// Where their fields begin, by `Structure, field`.
    offsets: BTreeMap<String, u64>,
    /// Constants so far that are numbers.
    numbers: BTreeMap<String, u64>,
    /// Comment and representation that stand before the next item.
    doc: Vec<String>,
    repr: String,
}

impl Reader {
    fn item<'a>(&mut self, line: &str, lines: &mut impl Iterator<Item = &'a str>) -> Result<()> {
        if let Some(text) = line.strip_prefix("///") {
            self.doc.push(text.trim().to_string());
        } else if let Some(repr) = line.strip_prefix("#[repr(").and_then(|l| l.strip_suffix(")]")) {
            self.repr = repr.to_string();
        } else if !line.starts_with("#[") {
            let (doc, repr) = (std::mem::take(&mut self.doc).join(" "), std::mem::take(&mut self.repr));
            if let Some(name) = named(line, "pub struct ").filter(|_| repr == "C") {
                self.structure(name, lines)?;
            } else if let Some(name) = named(line, "pub enum ").filter(|_| !repr.is_empty()) {
                self.enumeration(name, lines)?;
            } else if let Some(rest) = line.strip_prefix("pub const ").and_then(|l| l.strip_suffix(';')) {
                self.constant(rest, &doc)?;
            }
        }
        Ok(())
    }

    fn structure<'a>(&mut self, name: &str, lines: &mut impl Iterator<Item = &'a str>) -> Result<()> {
        let mut table = String::from("| offset | size | type | field | |\n|---:|---:|---|---|---|\n");
        let mut offset = 0;
        let mut doc = Vec::new();
        for line in lines.map(str::trim).take_while(|l| *l != "}") {
            if let Some(text) = line.strip_prefix("///") {
                doc.push(text.trim());
                continue;
            }
            let field = line.strip_prefix("pub ").and_then(|l| l.strip_suffix(','));
            let (field, kind) = field.and_then(|f| f.split_once(": ")).with_context(|| format!("no field: {line}"))?;
            let (size, kind) = self.field_type(kind)?;
            ensure!(!doc.is_empty(), "{field} has no comment");
            self.offsets.insert(format!("{name}, {field}"), offset);
            writeln!(table, "| {offset} | {size} | {kind} | `{field}` | {} |", cell(&doc.join(" ")))?;
            offset += size;
            doc.clear();
        }
        writeln!(table, "\n{offset} bytes.")?;
        self.sizes.insert(name.to_string(), offset);
        self.tables.insert(format!("struct {name}"), table);
        Ok(())
    }

    fn enumeration<'a>(&mut self, name: &str, lines: &mut impl Iterator<Item = &'a str>) -> Result<()> {
        let mut table = String::from("| value | name | |\n|---|---|---|\n");
        let mut doc = Vec::new();
        for line in lines.map(str::trim).take_while(|l| *l != "}") {
            if let Some(text) = line.strip_prefix("///") {
                doc.push(text.trim());
            } else if let Some(variant) = line.strip_suffix(',') {
                let (variant, value) = variant.split_once(" = ").with_context(|| format!("no value: {variant}"))?;
                let value = self.value(value).with_context(|| format!("value of {variant}"))?;
                writeln!(table, "| {value} | `{variant}` | {} |", cell(&doc.join(" ")))?;
                doc.clear();
            }
        }
        self.tables.insert(format!("enum {name}"), table);
        Ok(())
    }

    fn constant(&mut self, line: &str, doc: &str) -> Result<()> {
        let (name, rest) = line.split_once(": ").context("no type")?;
        let (kind, value) = rest.split_once(" = ").context("no value")?;
        // Constants of other types say something of the code, not of the format.
        if ["u32", "u64", "usize"].contains(&kind) || kind.starts_with("[u8;") {
            let value = self.value(value).with_context(|| format!("value of {name}"))?;
            if self.constants.is_empty() {
                self.constants.push_str("| name | value | |\n|---|---|---|\n");
            }
            if let Ok(number) = value.parse() {
                self.numbers.insert(name.to_string(), number);
            }
            writeln!(self.constants, "| `{name}` | {value} | {} |", cell(doc))?;
        }
        Ok(())
    }

    /// A value as the document shows it: a number, or bytes.
    fn value(&self, text: &str) -> Result<String> {
        if let Some(bytes) = text.strip_prefix("u32::from_le_bytes(*b\"").and_then(|t| t.strip_suffix("\")")) {
            return Ok(format!("`\"{bytes}\"`"));
        }
        if let Some(bytes) = text.strip_prefix("*b\"").and_then(|t| t.strip_suffix('"')) {
            return Ok(format!("`\"{bytes}\"`"));
        }
        Ok(self.number(text)?.to_string())
    }

    /// The value of an expression of numbers, constants, sizes and offsets.
    fn number(&self, text: &str) -> Result<u64> {
        let mut rest = text;
        let value = self.sum(&mut rest).with_context(|| format!("{text}: no number that is understood"))?;
        ensure!(rest.is_empty(), "{text}: what is {rest}?");
        Ok(value)
    }

    fn sum(&self, rest: &mut &str) -> Result<u64> {
        let mut value = self.product(rest)?;
        loop {
            value = if taken(rest, " + ") {
                value.checked_add(self.product(rest)?).context("too large")?
            } else if taken(rest, " - ") {
                value.checked_sub(self.product(rest)?).context("negative")?
            } else {
                return Ok(value);
            };
        }
    }

    fn product(&self, rest: &mut &str) -> Result<u64> {
        let mut value = self.atom(rest)?;
        while taken(rest, " * ") {
            value = value.checked_mul(self.atom(rest)?).context("too large")?;
        }
        Ok(value)
    }

    fn atom(&self, rest: &mut &str) -> Result<u64> {
        let value = if taken(rest, "(") {
            let value = self.sum(rest)?;
            ensure!(taken(rest, ")"), "no closing bracket");
            value
        } else if taken(rest, "size_of::<") {
            *self.sizes.get(until(rest, ">()")?).context("a structure that is not declared before")?
        } else if taken(rest, "offset_of!(") {
            *self.offsets.get(until(rest, ")")?).context("a field that is not declared before")?
        } else {
            let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
            let (word, beyond) = rest.split_at(end);
            *rest = beyond;
            match self.numbers.get(word) {
                Some(number) => *number,
                None => word.replace('_', "").parse().with_context(|| format!("{word:?} is no number"))?,
            }
        };
        for cast in [" as u32", " as u64", " as usize"] {
            taken(rest, cast);
        }
        Ok(value)
    }

    /// Size of a field in bytes and its type in the document.
    fn field_type(&self, text: &str) -> Result<(u64, String)> {
        if let Some((kind, count)) = text.strip_prefix('[').and_then(|t| t.strip_suffix(']')?.split_once("; ")) {
            let ((size, kind), count) = (self.field_type(kind)?, self.number(count)?);
            return Ok((size * count, format!("{kind}[{count}]")));
        }
        Ok(match text {
            "u8" => (1, "u8".to_string()),
            "U16" | "U32" | "U64" | "I64" => (text[1..].parse::<u64>()? / 8, text.to_lowercase()),
            _ => {
                let Some(size) = self.sizes.get(text) else { bail!("no on-disk type: {text}") };
                (*size, format!("`{text}`"))
            }
        })
    }
}

/// Takes `word` off the front of `rest`, if it stands there.
fn taken(rest: &mut &str, word: &str) -> bool {
    match rest.strip_prefix(word) {
        Some(beyond) => {
            *rest = beyond;
            true
        }
        None => false,
    }
}

/// Takes what stands before `end` off the front of `rest`, and `end` too.
fn until<'a>(rest: &mut &'a str, end: &str) -> Result<&'a str> {
    let (before, beyond) = rest.split_once(end).with_context(|| format!("no {end}"))?;
    *rest = beyond;
    Ok(before)
}

fn named<'a>(line: &'a str, before: &str) -> Option<&'a str> {
    line.strip_prefix(before)?.strip_suffix(" {")
}

fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace("[`", "`").replace("`]", "`")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = r#"
/// Where.
pub const FIRST: u32 = 2 * 1_024;
/// Not of the format.
pub const KNOWN: Features = Features { compat: 0 };

/// Head.
#[derive(Clone)]
#[repr(C)]
pub struct Head {
    /// `MAGIC` | more,
    /// on two lines.
    pub magic: [u8; 8],
    /// Count.
    pub count: U16,
    /// When.
    pub time: I64,
}
/// Length.
pub const HEAD: usize = size_of::<Head>();

/// Offset of the count.
pub const COUNT_AT: usize = offset_of!(Head, count);
/// All.
pub const ALL: u32 = (FIRST as u32 - 4) * 2 + COUNT_AT as u32;

/// Holds others.
#[repr(C)]
pub struct Tail {
    /// Numbers.
    pub numbers: [U32; COUNT_AT],
    /// Heads.
    pub heads: [Head; 2],
    /// One more.
    pub head: Head,
}

/// In core only.
pub struct Core {
    pub map: Vec<u8>,
}

/// Kinds.
#[repr(u32)]
pub enum Kind {
    /// One.
    #[default]
    One = 1,
    /// Two.
    Two = u32::from_le_bytes(*b"ABCD"),
}
"#;

    #[test]
    fn offsets_follow_from_the_types() {
        let tables = tables(SOURCE).unwrap();
        assert_eq!(tables.keys().collect::<Vec<_>>(), ["constants", "enum Kind", "struct Head", "struct Tail"]);
        let head = &tables["struct Head"];
        assert!(head.contains("| 0 | 8 | u8[8] | `magic` | `MAGIC` \\| more, on two lines. |\n"), "{head}");
        assert!(head.contains("| 8 | 2 | u16 | `count` | Count. |\n| 10 | 8 | i64 | `time` | When. |\n\n18 bytes.\n"));
        assert!(tables["enum Kind"].contains("| 1 | `One` | One. |\n| `\"ABCD\"` | `Two` | Two. |\n"));
        assert!(tables["constants"].contains("| `FIRST` | 2048 | Where. |\n| `HEAD` | 18 | Length. |\n"));
    }

    #[test]
    fn structures_and_constants_may_be_made_of_others() {
        let tables = tables(SOURCE).unwrap();
        let constants = &tables["constants"];
        assert!(
            constants.ends_with("| `COUNT_AT` | 8 | Offset of the count. |\n| `ALL` | 4096 | All. |\n"),
            "{constants}"
        );
        let tail = &tables["struct Tail"];
        assert!(tail.contains("| 0 | 32 | u32[8] | `numbers` | Numbers. |\n"), "{tail}");
        assert!(tail.contains("| 32 | 36 | `Head`[2] | `heads` | Heads. |\n"), "{tail}");
        assert!(tail.contains("| 68 | 18 | `Head` | `head` | One more. |\n\n86 bytes.\n"), "{tail}");
    }

    #[test]
    fn what_is_not_understood_is_an_error() {
        assert!(tables(&SOURCE.replace("U16", "Vec<u8>")).is_err());
        assert!(tables(&SOURCE.replace("2 * 1_024", "f(2)")).is_err());
        assert!(tables(&SOURCE.replace("(FIRST as", "(LATER as")).is_err());
        assert!(tables(&SOURCE.replace("[Head; 2]", "[Later; 2]")).is_err());
        assert!(tables(&SOURCE.replace("    /// Count.\n", "")).is_err());
    }
}
