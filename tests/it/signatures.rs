//! What the functions of this workspace take. A pair that functions pass to each other has a name.

use crate::sources::{read_modules, repository, roots};
use std::collections::BTreeSet;
use std::path::Path;
use syn::visit::Visit;

#[test]
fn no_function_takes_a_tuple() {
    let repository = repository();
    let found: Vec<String> =
        roots(&repository).iter().flat_map(|root| tuple_parameters(root, &repository)).collect();
    assert!(found.is_empty(), "{} parameters are tuples:\n{}", found.len(), found.join("\n"));
}

#[test]
fn a_tuple_is_found_in_a_pattern_and_in_a_type() {
    let directory = tempfile::tempdir().expect("a directory");
    let root = directory.path().join("lib.rs");
    let text = "
        fn by_pattern((a, b): Pair) {}
        fn by_type(pair: &(u8, u8)) {}
        fn a_list(pairs: &[(u8, u8)]) {}
        fn nothing(unit: ()) {}
        fn no_event((): &()) {}
        fn outside() { fn inside(pair: (u8, u8)) {} let closure = |(a, b): (u8, u8)| a; }
        trait Ours { fn of_trait(pair: (u8, u8)); }
        impl Ours for u8 { fn of_ours(pair: (u8, u8)) {} }
        impl foreign::Theirs for u8 { fn of_theirs(pair: (u8, u8)) {} }
        impl Struct { fn of_struct(&self, pair: (u8, u8)) {} }
        #[cfg(test)] mod tests { fn of_tests(pair: (u8, u8)) {} }
    ";
    std::fs::write(&root, text).expect("written");
    let found = tuple_parameters(&root, directory.path());
    let names: Vec<&str> = found.iter().filter_map(|line| line.rsplit(' ').next()).collect();
    assert_eq!(names, ["by_pattern", "by_type", "inside", "of_trait", "of_ours", "of_struct"]);
}

/// Returns the file and the function of each parameter that is a tuple, in one crate.
fn tuple_parameters(root: &Path, repository: &Path) -> Vec<String> {
    let modules = read_modules(root);
    let mut traits = Traits::default();
    for item in modules.iter().flat_map(|module| &module.items) {
        traits.visit_item(item);
    }
    let mut found = Vec::new();
    for module in &modules {
        let file = module.file.strip_prefix(repository).unwrap_or(&module.file).display().to_string();
        let mut signatures = Signatures { file, traits: &traits, found: Vec::new() };
        for item in &module.items {
            signatures.visit_item(item);
        }
        found.extend(signatures.found);
    }
    found
}

/// The names of the traits that a crate declares.
#[derive(Default)]
struct Traits {
    names: BTreeSet<String>,
}

impl<'ast> Visit<'ast> for Traits {
    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        self.names.insert(item.ident.to_string());
        syn::visit::visit_item_trait(self, item);
    }
}

/// The parameters in one file that are tuples.
struct Signatures<'a> {
    file: String,
    traits: &'a Traits,
    found: Vec<String>,
}

impl<'ast> Visit<'ast> for Signatures<'_> {
    fn visit_item_impl(&mut self, block: &'ast syn::ItemImpl) {
        // The trait of another crate dictates the signatures.
        let is_ours = block.trait_.as_ref().is_none_or(|(_, path, _)| {
            path.segments.last().is_some_and(|name| self.traits.names.contains(&name.ident.to_string()))
        });
        if is_ours {
            syn::visit::visit_item_impl(self, block);
        }
    }

    fn visit_signature(&mut self, signature: &'ast syn::Signature) {
        for argument in &signature.inputs {
            let syn::FnArg::Typed(argument) = argument else { continue };
            if is_tuple_pattern(&argument.pat) || is_tuple_type(&argument.ty) {
                self.found.push(format!("{} {}", self.file, signature.ident));
            }
        }
        syn::visit::visit_signature(self, signature);
    }
}

fn is_tuple_pattern(pattern: &syn::Pat) -> bool {
    match pattern {
        syn::Pat::Tuple(tuple) => !tuple.elems.is_empty(),
        syn::Pat::Reference(reference) => is_tuple_pattern(&reference.pat),
        syn::Pat::Paren(paren) => is_tuple_pattern(&paren.pat),
        _ => false,
    }
}

fn is_tuple_type(parameter: &syn::Type) -> bool {
    match parameter {
        syn::Type::Tuple(tuple) => !tuple.elems.is_empty(),
        syn::Type::Reference(reference) => is_tuple_type(&reference.elem),
        syn::Type::Paren(paren) => is_tuple_type(&paren.elem),
        _ => false,
    }
}
