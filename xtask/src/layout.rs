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
            let (size, kind) = field_type(kind)?;
            ensure!(!doc.is_empty(), "{field} has no comment");
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
        if let Some(name) = text.strip_prefix("size_of::<").and_then(|t| t.strip_suffix(">()")) {
            return self.sizes.get(name).map(u64::to_string).context("a structure that is not declared before");
        }
        let factors = text.split(" * ").map(|f| f.replace('_', "").parse::<u64>());
        let product = factors.reduce(|a, b| Ok(a? * b?)).context("nothing")?;
        Ok(product.with_context(|| format!("{text}: a product, a size or bytes are understood"))?.to_string())
    }
}

fn named<'a>(line: &'a str, before: &str) -> Option<&'a str> {
    line.strip_prefix(before)?.strip_suffix(" {")
}

/// Size of a field in bytes and its type in the document.
fn field_type(text: &str) -> Result<(u64, String)> {
    Ok(match text {
        "u8" => (1, "u8".to_string()),
        "U16" | "U32" | "U64" | "I64" => (text[1..].parse::<u64>()? / 8, text.to_lowercase()),
        _ => {
            let count = text.strip_prefix("[u8; ").and_then(|t| t.strip_suffix(']'));
            let Some(count) = count else { bail!("no on-disk type: {text}") };
            (count.parse()?, format!("u8[{count}]"))
        }
    })
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
        assert_eq!(tables.keys().collect::<Vec<_>>(), ["constants", "enum Kind", "struct Head"]);
        let head = &tables["struct Head"];
        assert!(head.contains("| 0 | 8 | u8[8] | `magic` | `MAGIC` \\| more, on two lines. |\n"), "{head}");
        assert!(head.contains("| 8 | 2 | u16 | `count` | Count. |\n| 10 | 8 | i64 | `time` | When. |\n\n18 bytes.\n"));
        assert!(tables["enum Kind"].contains("| 1 | `One` | One. |\n| `\"ABCD\"` | `Two` | Two. |\n"));
        assert!(tables["constants"].ends_with("| `FIRST` | 2048 | Where. |\n| `HEAD` | 18 | Length. |\n"));
    }

    #[test]
    fn what_is_not_understood_is_an_error() {
        assert!(tables(&SOURCE.replace("U16", "Vec<u8>")).is_err());
        assert!(tables(&SOURCE.replace("2 * 1_024", "f(2)")).is_err());
        assert!(tables(&SOURCE.replace("    /// Count.\n", "")).is_err());
    }
}
