//! Functions that fit a screen, and files that fit a head.

use super::Tree;
use super::list::{Excess, Rule};
use anyhow::{Context, Result};
use proc_macro2::{Delimiter, TokenStream, TokenTree};
use syn::visit::{self, Visit};

/// From the line of `fn` to that of the closing brace.
const FUNCTION: usize = 70;
const FILE: usize = 900;

/// Functions and files that are longer.
pub fn measure(tree: &Tree) -> Result<Vec<Excess>> {
    let mut found = Vec::new();
    for file in tree.rust("crates/").chain(tree.rust("xtask/")) {
        let lines = file.text.lines().count();
        if lines > FILE {
            found.push(Excess {
                rule: Rule::Files,
                name: file.path.clone(),
                path: file.path.clone(),
                line: 1,
                value: lines,
                what: format!("the file has {lines} lines, {FILE} are allowed"),
            });
        }
        for function in functions(&file.text).with_context(|| file.path.clone())? {
            let Function { name, line, lines } = function;
            if lines > FUNCTION {
                found.push(Excess {
                    rule: Rule::Functions,
                    name: format!("{} {name}", file.path),
                    path: file.path.clone(),
                    line,
                    value: lines,
                    what: format!("fn {name} has {lines} lines, {FUNCTION} are allowed"),
                });
            }
        }
    }
    Ok(found)
}

#[derive(Debug, PartialEq)]
struct Function {
    /// With the names of the modules and types that it is in.
    name: String,
    line: usize,
    lines: usize,
}

fn functions(text: &str) -> Result<Vec<Function>> {
    let mut walk = Walk::default();
    walk.visit_file(&syn::parse_file(text)?);
    Ok(walk.found)
}

#[derive(Default)]
struct Walk {
    inside: Vec<String>,
    found: Vec<Function>,
}

impl Walk {
    fn within(&mut self, name: String, visit: impl FnOnce(&mut Walk)) {
        self.inside.push(name);
        visit(self);
        self.inside.pop();
    }

    fn function(&mut self, sig: &syn::Signature, block: &syn::Block, visit: impl FnOnce(&mut Walk)) {
        let name = sig.ident.to_string();
        let first = sig.fn_token.span.start().line;
        self.note(&name, first, block.brace_token.span.close().end().line);
        self.within(name, visit);
    }

    fn note(&mut self, name: &str, first: usize, last: usize) {
        let path: Vec<&str> = self.inside.iter().map(String::as_str).chain([name]).collect();
        self.found.push(Function { name: path.join("::"), line: first, lines: last.saturating_sub(first) + 1 });
    }

    /// Functions in what a macro is given, which is no Rust before it is expanded: `fn`, a name, and the next braces.
    fn tokens(&mut self, tokens: TokenStream) {
        let mut begun: Option<(String, usize)> = None;
        let mut after_fn = None;
        for token in tokens {
            match token {
                TokenTree::Ident(word) if word == "fn" => after_fn = Some(word.span().start().line),
                TokenTree::Ident(word) => {
                    if let Some(line) = after_fn.take() {
                        begun = Some((word.to_string(), line));
                    }
                }
                // The name may be an argument of the macro: `fn $name`.
                TokenTree::Punct(mark) if mark.as_char() == '$' => {}
                TokenTree::Punct(mark) if mark.as_char() == ';' => begun = None,
                TokenTree::Group(group) => {
                    after_fn = None;
                    if group.delimiter() == Delimiter::Brace
                        && let Some((name, first)) = begun.take()
                    {
                        self.note(&name, first, group.span_close().end().line);
                    }
                    self.tokens(group.stream());
                }
                _ => after_fn = None,
            }
        }
    }
}

impl<'ast> Visit<'ast> for Walk {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        self.within(item.ident.to_string(), |walk| visit::visit_item_mod(walk, item));
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        let name = match &*item.self_ty {
            syn::Type::Path(path) => path.path.segments.last().map(|s| s.ident.to_string()),
            _ => None,
        };
        self.within(name.unwrap_or_else(|| "impl".to_string()), |walk| visit::visit_item_impl(walk, item));
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        self.within(item.ident.to_string(), |walk| visit::visit_item_trait(walk, item));
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.function(&item.sig, &item.block, |walk| visit::visit_item_fn(walk, item));
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.function(&item.sig, &item.block, |walk| visit::visit_impl_item_fn(walk, item));
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(block) = &item.default {
            self.function(&item.sig, block, |walk| visit::visit_trait_item_fn(walk, item));
        }
    }

    fn visit_macro(&mut self, item: &'ast syn::Macro) {
        self.tokens(item.tokens.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::super::tree::planted;
    use super::*;

    /// A function of so many lines, a comment among them.
    fn of(head: &str, lines: usize) -> String {
        format!("{head} {{\n    // why\n{}}}\n", "    f();\n".repeat(lines - 3))
    }

    fn said(text: &str) -> Vec<String> {
        let (_dir, tree) = planted(&[("crates/base/src/lib.rs", text)]);
        measure(&tree).unwrap().into_iter().map(|e| e.what).collect()
    }

    #[test]
    fn a_function_of_seventy_lines_fits_and_one_more_does_not() {
        assert!(said(&of("/// What.\n#[inline]\npub fn f()", 70)).is_empty());
        assert_eq!(said(&of("fn f()", 71)), ["fn f has 71 lines, 70 are allowed"]);
    }

    #[test]
    fn functions_are_named_by_what_they_are_in() {
        let text = format!(
            "mod tests {{\n{}}}\nimpl<T> Clone for Core<T> {{\n{}}}\ntrait Tree {{\nfn none();\n{}}}\n",
            of("fn a()", 71),
            of("fn b()", 72),
            of("fn c()", 73)
        );
        let names = ["fn tests::a has 71", "fn Core::b has 72", "fn Tree::c has 73"];
        assert_eq!(said(&text), names.map(|n| format!("{n} lines, 70 are allowed")));
    }

    #[test]
    fn functions_within_macros_are_seen() {
        let text = format!("proptest! {{\n#[test]\n{}}}\n", of("fn a(x in 0..3)", 71));
        assert_eq!(said(&text), ["fn a has 71 lines, 70 are allowed"]);
        let text = format!("macro_rules! m {{ ($name:ident) => {{\n{}}} }}\n", of("fn $name(f: fn(u8))", 71));
        assert_eq!(said(&text), ["fn name has 71 lines, 70 are allowed"]);
        assert!(said(&format!("m! {{\nfn none(f: fn(u8));\n{}}}\n", of("struct S", 71))).is_empty());
    }

    #[test]
    fn a_file_of_nine_hundred_lines_fits_and_one_more_does_not() {
        assert!(said(&"// a\n".repeat(900)).is_empty());
        assert_eq!(said(&"// a\n".repeat(901)), ["the file has 901 lines, 900 are allowed"]);
    }
}
