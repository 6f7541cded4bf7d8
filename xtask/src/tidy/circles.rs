//! Circles of imports among the modules of an engine: what a module uses should not use it.

use super::Tree;
use super::list::{Excess, Rule};
use super::tree::Source;
use anyhow::{Context, Result};
use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};
use std::collections::{BTreeMap, BTreeSet};

/// Modules that each module uses, with the place of the first use.
type Uses = BTreeMap<String, BTreeMap<String, (String, usize)>>;

/// The modules that are in a circle, each with the size of the largest one.
pub fn measure(tree: &Tree) -> Result<Vec<Excess>> {
    let mut found = Vec::new();
    let engines = tree.engines().into_iter().map(|engine| format!("crates/fs/{engine}/src/"));
    for src in engines.chain(["crates/kit/src/".to_string()]) {
        let uses = uses(tree, &src)?;
        let reached: BTreeMap<&String, BTreeSet<&String>> = uses.keys().map(|m| (m, reach(&uses, m))).collect();
        let reaches = |from: &String, to: &String| reached.get(from).is_some_and(|r| r.contains(to));
        for (module, used) in &uses {
            let circle: Vec<&str> =
                uses.keys().filter(|m| reaches(module, m) && reaches(m, module)).map(String::as_str).collect();
            let Some((next, (path, line))) = used.iter().find(|(m, _)| circle.contains(&m.as_str())) else { continue };
            let what = format!(
                "{module} uses {next} in a circle of {} modules, none are allowed: {}",
                circle.len(),
                circle.join(", ")
            );
            let name = format!("{src}{module}");
            found.push(Excess {
                rule: Rule::Circles,
                name,
                path: path.clone(),
                line: *line,
                value: circle.len(),
                what,
            });
        }
    }
    Ok(found)
}

/// Whatever `module` uses, and what that uses, and so on.
fn reach<'a>(uses: &'a Uses, module: &str) -> BTreeSet<&'a String> {
    let mut reached = BTreeSet::new();
    let mut open: Vec<&String> = uses.get(module).into_iter().flat_map(BTreeMap::keys).collect();
    while let Some(next) = open.pop() {
        if reached.insert(next) {
            open.extend(uses.get(next).into_iter().flat_map(BTreeMap::keys));
        }
    }
    reached
}

/// What the modules below `src` use of each other. Files of a directory count for its module; `lib.rs`, tests and the
/// planted mistakes do not count.
fn uses(tree: &Tree, src: &str) -> Result<Uses> {
    let files: Vec<(&Source, Vec<&str>)> = tree
        .rust(src)
        .filter_map(|f| Some((f, f.path.strip_prefix(src)?.strip_suffix(".rs")?.split('/').collect())))
        .filter(|(_, path): &(_, Vec<&str>)| !path.iter().any(|p| matches!(*p, "lib" | "planted" | "tests")))
        .collect();
    let mut uses: Uses =
        files.iter().filter_map(|(_, path)| Some((path.first()?.to_string(), BTreeMap::new()))).collect();
    for (file, path) in &files {
        let tokens: TokenStream =
            file.text.parse().map_err(|e| anyhow::anyhow!("{e}")).with_context(|| file.path.clone())?;
        let mut named = Vec::new();
        walk(tokens, path.len(), &mut named);
        let module = path.first().map(ToString::to_string).unwrap_or_default();
        for (name, line) in named {
            // Items at the root of the crate are no modules.
            if name != module && uses.contains_key(&name) {
                let place = (file.path.clone(), line);
                uses.entry(module.clone()).or_default().entry(name).or_insert(place);
            }
        }
    }
    Ok(uses)
}

/// The names after `crate::` in `tokens`, with their lines, but for what is `#[cfg(test)]`. A file that is `depth`
/// modules deep says `super::` so often for the same.
fn walk(tokens: TokenStream, depth: usize, named: &mut Vec<(String, usize)>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        at += 1;
        match token {
            TokenTree::Group(group) if is_for_tests(group) => {
                // The item that this belongs to ends with braces or a semicolon.
                while let Some(token) = tokens.get(at) {
                    at += 1;
                    match token {
                        TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => break,
                        TokenTree::Punct(mark) if mark.as_char() == ';' => break,
                        _ => {}
                    }
                }
            }
            TokenTree::Group(group) => walk(group.stream(), depth, named),
            TokenTree::Ident(word) if word == "crate" || word == "super" => {
                let mut ups = if word == "super" { 1 } else { depth };
                while is_path(&tokens, at) && matches!(tokens.get(at + 2), Some(TokenTree::Ident(w)) if w == "super") {
                    ups += 1;
                    at += 3;
                }
                if ups == depth && is_path(&tokens, at) {
                    match tokens.get(at + 2) {
                        Some(TokenTree::Ident(name)) => named.push((name.to_string(), name.span().start().line)),
                        Some(TokenTree::Group(group)) => named.extend(first_names(group)),
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
}

fn is_for_tests(group: &Group) -> bool {
    let text: String = group.stream().to_string().split_whitespace().collect();
    group.delimiter() == Delimiter::Bracket && text == "cfg(test)"
}

/// Whether `::` stands at `at`.
fn is_path(tokens: &[TokenTree], at: usize) -> bool {
    let is_colon = |t: Option<&TokenTree>| matches!(t, Some(TokenTree::Punct(mark)) if mark.as_char() == ':');
    is_colon(tokens.get(at)) && is_colon(tokens.get(at + 1))
}

/// The names that the branches of `{a::b, c}` begin with.
fn first_names(group: &Group) -> Vec<(String, usize)> {
    let mut names = Vec::new();
    let mut is_first = true;
    for token in group.stream() {
        if let TokenTree::Ident(name) = &token
            && is_first
        {
            names.push((name.to_string(), name.span().start().line));
        }
        is_first = matches!(&token, TokenTree::Punct(mark) if mark.as_char() == ',');
    }
    names
}

#[cfg(test)]
mod tests {
    use super::super::tree::planted;
    use super::*;

    fn said(files: &[(&str, &str)]) -> Vec<String> {
        let mut all = vec![("crates/fs/yfs/Cargo.toml".to_string(), "")];
        all.extend(files.iter().map(|(name, text)| (format!("crates/fs/yfs/src/{name}"), *text)));
        let all: Vec<(&str, &str)> = all.iter().map(|(path, text)| (path.as_str(), *text)).collect();
        let (_dir, tree) = planted(&all);
        measure(&tree).unwrap().into_iter().map(|e| format!("{}:{}: {} {}", e.path, e.line, e.value, e.what)).collect()
    }

    const WHAT: &str = "in a circle of 2 modules, none are allowed: a, b";

    #[test]
    fn modules_that_use_each_other_are_a_circle() {
        let circle = [
            format!("crates/fs/yfs/src/a.rs:2: 2 a uses b {WHAT}"),
            format!("crates/fs/yfs/src/b.rs:1: 2 b uses a {WHAT}"),
        ];
        assert_eq!(said(&[("a.rs", "\nuse crate::b::B;\n"), ("b.rs", "fn f() { crate::a::g() }\n")]), circle);
        assert_eq!(said(&[("a.rs", "\nuse crate::{Yfs, b};"), ("b.rs", "m!(super::a)"), ("lib.rs", "")]), circle);
        let of_a_directory = said(&[("a.rs", "\nuse crate::b;"), ("b.rs", ""), ("b/c.rs", "use super::super::a::A;")]);
        assert_eq!(of_a_directory, circle.map(|c| c.replace("b.rs", "b/c.rs")));
    }

    #[test]
    fn a_chain_is_none() {
        let files = [("a.rs", "use crate::b;"), ("b.rs", "use crate::c::{self, a};"), ("c.rs", "use other::a;")];
        assert!(said(&files).is_empty());
    }

    #[test]
    fn tests_planted_mistakes_and_the_root_do_not_count() {
        let b = "#[cfg(test)]\nmod tests { use crate::a; }\n#[cfg(test)]\nuse crate::a;\n";
        let files = [
            ("a.rs", "use crate::b; use crate::planted::Flaw;"),
            ("b.rs", b),
            ("b/tests.rs", "use crate::a;"),
            ("planted.rs", "use crate::a;"),
            ("lib.rs", "use crate::a;"),
        ];
        assert!(said(&files).is_empty());
        // A file in a directory that names a sibling speaks of its own module.
        assert!(
            said(&[("a.rs", "use crate::b;"), ("b/a.rs", ""), ("b.rs", ""), ("b/c.rs", "use super::a;")]).is_empty()
        );
    }

    #[test]
    fn circles_apart_are_told_apart() {
        let files = [
            ("a.rs", "use crate::b;"),
            ("b.rs", "use crate::a; use crate::c;"),
            ("c.rs", "use crate::d;"),
            ("d.rs", "use crate::c;"),
        ];
        let said = said(&files);
        assert!(said.len() == 4 && said.iter().all(|s| s.contains(": 2 ")), "{said:?}");
    }
}
