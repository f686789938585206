//! Dependencies between the files of a crate. Files that depend on each other in a cycle can only
//! be understood together.

use crate::sources::{read_modules, repository, roots};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use syn::Token;
use syn::ext::IdentExt;
use syn::parse::ParseStream;
use syn::token;
use syn::visit::Visit;

#[test]
fn no_crate_has_a_circle_of_modules() {
    let repository = repository();
    let mut found = String::new();
    for root in roots(&repository) {
        let arrows = Crate::read(&root).arrows();
        for circle in circles(&arrows) {
            let _ = writeln!(found, "a circle of {} files:", circle.len());
            for (from, to) in circle.iter().flat_map(|from| circle.iter().map(move |to| (from, to))) {
                if let Some(names) = arrows.get(&(from.clone(), to.clone())) {
                    let short =
                        |path: &Path| path.strip_prefix(&repository).unwrap_or(path).display().to_string();
                    let _ = writeln!(found, "  {} -> {}: {names:?}", short(from), short(to));
                }
            }
        }
    }
    assert!(found.is_empty(), "\n{found}");
}

/// Returns the names of the files in each circle of a crate of these files, the first of which is its root.
fn circles_of(files: &[(&str, &str)]) -> Vec<Vec<String>> {
    let directory = tempfile::tempdir().expect("a directory");
    for (name, text) in files {
        std::fs::write(directory.path().join(name), text).expect("written");
    }
    let arrows = Crate::read(&directory.path().join(files[0].0)).arrows();
    let name = |path: &PathBuf| path.file_name().expect("a name").to_string_lossy().into_owned();
    circles(&arrows).iter().map(|circle| circle.iter().map(name).collect()).collect()
}

#[test]
fn a_circle_is_found_through_a_name_that_its_parent_passes_on() {
    let found = circles_of(&[
        ("lib.rs", "mod a; mod b; mod c; pub use b::B;"),
        ("a.rs", "use crate::B; pub struct A(B);"),
        ("b.rs", "pub struct B; impl B { fn f(a: &super::a::A) {} }"),
        ("c.rs", "use crate::a::A; #[cfg(test)] mod tests { use crate::c::nothing; }"),
    ]);
    assert_eq!(found, [["a.rs", "b.rs"]]);
}

#[test]
fn a_circle_is_found_wherever_a_path_stands() {
    let b = "pub fn b() { super::a::a(); }";
    for (root, a) in [
        // Inside a macro, also within another one and within brackets.
        ("mod a; mod b;", "pub fn a() -> String { format!(\"{}\", super::b::b()) }"),
        ("mod a; mod b;", "pub fn a() { assert!(matches!([crate::b::b()], _)); }"),
        ("mod a; mod b;", "use super::b; pub fn a() { vec![(b::b())]; }"),
        ("mod a; mod b;", "macro_rules! m { () => { $crate::b::b() } } pub fn a() { m!(); }"),
        // Inside an attribute.
        ("mod a; mod b;", "pub fn a() {} struct S { #[arg(value_parser = super::b::b())] s: String }"),
        // Through a name that is passed on: with another name, twice, with all names, or in a macro.
        ("mod a; mod b; pub use b::b as c;", "pub fn a() { crate::c(); }"),
        ("mod a; mod b; mod d { pub use super::b::b; } use d::b as e;", "pub fn a() { super::e(); }"),
        ("mod a; mod b; pub use b::*;", "pub fn a() { crate::b(); }"),
        ("mod a; mod b; pub use b::b as c;", "pub fn a() { format!(\"{:?}\", crate::c()); }"),
        ("mod a; mod b; pub use b::*;", "use crate::*; pub fn a() { b(); }"),
        ("mod a; mod b; pub use b::*;", "use crate::*; pub fn a() { format!(\"{:?}\", b()); }"),
    ] {
        let found = circles_of(&[("lib.rs", root), ("a.rs", a), ("b.rs", b)]);
        assert_eq!(found, [["a.rs", "b.rs"]], "{root} {a}");
    }
    // A field and a method are no paths, and neither are texts.
    let a = "pub fn a() { format!(\"super::b::b {}\", x.b.b()); }";
    assert!(circles_of(&[("lib.rs", "mod a; mod b;"), ("a.rs", a), ("b.rs", b)]).is_empty());
}

/// The names and paths in one module.
#[derive(Default)]
struct Module {
    file: PathBuf,
    parent: Option<usize>,
    children: BTreeMap<String, usize>,
    /// Names that the module defines.
    items: BTreeSet<String>,
    /// Names that the module imports, with their paths.
    aliases: BTreeMap<String, Vec<String>>,
    /// Paths from which all names are imported.
    globs: Vec<Vec<String>>,
    /// Paths that the module uses, also those inside macros and attributes.
    paths: BTreeSet<Vec<String>>,
}

/// The modules of a crate; the first one is its root.
struct Crate {
    modules: Vec<Module>,
}

/// For each pair of files, the names that the first file uses from the second.
type Arrows = BTreeMap<(PathBuf, PathBuf), BTreeSet<String>>;

impl Crate {
    fn read(root: &Path) -> Self {
        let mut modules: Vec<Module> = Vec::new();
        for source in read_modules(root) {
            let number = modules.len();
            let mut module = Module { file: source.file, parent: source.parent, ..Module::default() };
            for item in &source.items {
                module.visit_item(item);
            }
            modules.push(module);
            if let Some(parent) = source.parent {
                modules[parent].children.insert(source.name, number);
            }
        }
        Self { modules }
    }

    fn arrows(&self) -> Arrows {
        let mut arrows = Arrows::new();
        for (number, module) in self.modules.iter().enumerate() {
            for path in module.paths.iter().chain(module.aliases.values()) {
                if let Some((target, name)) = self.definer(number, path, 0) {
                    let to = &self.modules[target].file;
                    if *to != module.file {
                        arrows.entry((module.file.clone(), to.clone())).or_default().insert(name);
                    }
                }
            }
        }
        arrows
    }

    /// Returns the module that defines the item of a path, and the item's name there; `None` for an
    /// item of another crate, and for a path to a module.
    fn definer(&self, from: usize, path: &[String], depth: usize) -> Option<(usize, String)> {
        // The limit ends the search when aliases refer to each other.
        if depth > 16 {
            return None;
        }
        let mut at = from;
        for (index, part) in path.iter().enumerate() {
            let module = &self.modules[at];
            let rest = &path[index + 1..];
            match part.as_str() {
                "crate" => at = 0,
                "self" => {}
                "super" => at = module.parent?,
                name => {
                    // A module and an item may have the same name. A path that ends is one of an item.
                    if let Some(child) = module.children.get(name)
                        && !rest.is_empty()
                    {
                        at = *child;
                    } else if let Some(alias) = module.aliases.get(name) {
                        let path: Vec<String> = alias.iter().chain(rest).cloned().collect();
                        return (path != [name]).then(|| self.definer(at, &path, depth + 1))?;
                    } else if module.items.contains(name) {
                        return Some((at, name.to_owned()));
                    } else {
                        let of = |glob: &Vec<String>| {
                            let path: Vec<String> = glob.iter().chain(&path[index..]).cloned().collect();
                            self.definer(at, &path, depth + 1)
                        };
                        return module.globs.iter().find_map(of);
                    }
                }
            }
        }
        None
    }
}

impl Module {
    fn take_use(&mut self, before: &[String], tree: &syn::UseTree) {
        let with = |name: &syn::Ident| [before, &[name.to_string()]].concat();
        match tree {
            syn::UseTree::Path(path) => self.take_use(&with(&path.ident), &path.tree),
            syn::UseTree::Name(name) if name.ident == "self" => {
                self.aliases.insert(before.last().cloned().unwrap_or_default(), before.to_vec());
            }
            syn::UseTree::Name(name) => _ = self.aliases.insert(name.ident.to_string(), with(&name.ident)),
            syn::UseTree::Rename(rename) => {
                // An import only for its methods, `as _`, still counts.
                let mut name = rename.rename.to_string();
                if name == "_" {
                    name = format!("_{}", rename.ident);
                }
                self.aliases.insert(name, with(&rename.ident));
            }
            syn::UseTree::Glob(_) => self.globs.push(before.to_vec()),
            syn::UseTree::Group(group) => group.items.iter().for_each(|tree| self.take_use(before, tree)),
        }
    }
}

impl<'ast> Visit<'ast> for Module {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        let name = match item {
            syn::Item::Const(item) => Some(&item.ident),
            syn::Item::Enum(item) => Some(&item.ident),
            syn::Item::Fn(item) => Some(&item.sig.ident),
            syn::Item::Static(item) => Some(&item.ident),
            syn::Item::Struct(item) => Some(&item.ident),
            syn::Item::Trait(item) => Some(&item.ident),
            syn::Item::Type(item) => Some(&item.ident),
            syn::Item::Macro(item) => item.ident.as_ref(),
            _ => None,
        };
        self.items.extend(name.map(ToString::to_string));
        syn::visit::visit_item(self, item);
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.take_use(&[], &item.tree);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        self.paths.insert(path.segments.iter().map(|part| part.ident.to_string()).collect());
        syn::visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        syn::visit::visit_macro(self, call);
        call.parse_body_with(|tokens: ParseStream<'_>| self.take_tokens(tokens)).expect("tokens");
    }

    fn visit_meta_list(&mut self, list: &'ast syn::MetaList) {
        syn::visit::visit_meta_list(self, list);
        list.parse_args_with(|tokens: ParseStream<'_>| self.take_tokens(tokens)).expect("tokens");
    }
}

impl Module {
    /// Takes the paths among the tokens of a macro, which have no other structure.
    fn take_tokens(&mut self, tokens: ParseStream<'_>) -> syn::Result<()> {
        while !tokens.is_empty() {
            let inside;
            if tokens.peek(token::Paren) {
                syn::parenthesized!(inside in tokens);
                self.take_tokens(&inside)?;
            } else if tokens.peek(token::Bracket) {
                syn::bracketed!(inside in tokens);
                self.take_tokens(&inside)?;
            } else if tokens.peek(token::Brace) {
                syn::braced!(inside in tokens);
                self.take_tokens(&inside)?;
            } else if tokens.peek(Token![.]) && tokens.peek2(syn::Ident) {
                // A field or a method.
                tokens.parse::<Token![.]>()?;
                tokens.parse::<syn::Ident>()?;
            } else if tokens.peek(syn::Ident::peek_any) {
                let mut path = vec![tokens.call(syn::Ident::parse_any)?.to_string()];
                while tokens.peek(Token![::]) && tokens.peek3(syn::Ident::peek_any) {
                    tokens.parse::<Token![::]>()?;
                    path.push(tokens.call(syn::Ident::parse_any)?.to_string());
                }
                self.paths.insert(path);
            } else {
                tokens.step(|at| match at.token_tree() {
                    Some((_, rest)) => Ok(((), rest)),
                    None => Err(at.error("no token")),
                })?;
            }
        }
        Ok(())
    }
}

/// Returns the groups of files that depend on each other, each group in order.
fn circles(arrows: &Arrows) -> Vec<Vec<PathBuf>> {
    let mut reached: BTreeMap<&PathBuf, BTreeSet<&PathBuf>> = BTreeMap::new();
    for (from, to) in arrows.keys() {
        reached.entry(from).or_default().insert(to);
    }
    loop {
        let further: Vec<(&PathBuf, &PathBuf)> = reached
            .iter()
            .flat_map(|(from, to)| to.iter().map(move |to| (*from, *to)))
            .flat_map(|(from, via)| reached.get(via).into_iter().flatten().map(move |to| (from, *to)))
            .filter(|(from, to)| !reached[from].contains(to))
            .collect();
        if further.is_empty() {
            break;
        }
        for (from, to) in further {
            reached.entry(from).or_default().insert(to);
        }
    }
    let reaches = |from: &PathBuf, to: &PathBuf| reached.get(from).is_some_and(|all| all.contains(to));
    let groups: BTreeSet<Vec<PathBuf>> = reached
        .keys()
        .filter(|file| reaches(file, file))
        .map(|file| reached[file].iter().filter(|to| reaches(to, file)).map(|to| (*to).clone()).collect())
        .collect();
    groups.into_iter().collect()
}
