//! The source files of this workspace, parsed, for the tests that look at the code itself.

use std::path::{Path, PathBuf};

/// The root of this workspace.
pub(crate) fn repository() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Returns the root files of this workspace's crates, except the tests.
pub(crate) fn roots(repository: &Path) -> Vec<PathBuf> {
    let output = std::process::Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(repository)
        .output()
        .expect("cargo metadata");
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let targets = metadata["packages"].as_array().expect("packages").iter().flat_map(|package| {
        package["targets"].as_array().expect("targets").iter().filter(|target| {
            let kind = target["kind"][0].as_str();
            matches!(kind, Some("lib" | "bin")) && package["name"] != "orchestrate-tests"
        })
    });
    let root = |target: &serde_json::Value| {
        let path = PathBuf::from(target["src_path"].as_str().expect("a path"));
        repository.join(path.strip_prefix(repository.canonicalize().expect("a path")).expect("ours"))
    };
    targets.map(root).collect()
}

/// One module of a crate as it is written.
pub(crate) struct SourceModule {
    /// The file that holds the module.
    pub(crate) file: PathBuf,
    /// The name of the module; the root has none.
    pub(crate) name: String,
    /// The number of the module that declares this one.
    pub(crate) parent: Option<usize>,
    /// What the module declares, except its modules and what is compiled only for tests.
    pub(crate) items: Vec<syn::Item>,
}

/// Reads the modules of a crate, except those of tests. The first one is the crate's root, and a
/// module stands behind its parent.
pub(crate) fn read_modules(root: &Path) -> Vec<SourceModule> {
    let mut modules = Vec::new();
    let directory = root.parent().expect("in a directory");
    add(&mut modules, SourceModule::root(root), directory, read_items(root));
    modules
}

impl SourceModule {
    fn root(file: &Path) -> Self {
        Self { file: file.to_owned(), name: String::new(), parent: None, items: Vec::new() }
    }
}

fn read_items(file: &Path) -> Vec<syn::Item> {
    let text = std::fs::read_to_string(file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    syn::parse_file(&text).unwrap_or_else(|e| panic!("{}: {e}", file.display())).items
}

/// Adds a module and the modules in it, whose files are in the directory.
fn add(modules: &mut Vec<SourceModule>, module: SourceModule, directory: &Path, items: Vec<syn::Item>) {
    let number = modules.len();
    let file = module.file.clone();
    modules.push(module);
    for item in items.into_iter().filter(|item| !is_of_tests(item)) {
        let syn::Item::Mod(declared) = item else {
            modules[number].items.push(item);
            continue;
        };
        let name = declared.ident.to_string();
        let inside = directory.join(&name);
        let (file, items) = match declared.content {
            Some((_, items)) => (file.clone(), items),
            None => {
                let of_file = directory.join(format!("{name}.rs"));
                let found = if of_file.exists() { of_file } else { inside.join("mod.rs") };
                let items = read_items(&found);
                (found, items)
            }
        };
        add(modules, SourceModule { file, name, parent: Some(number), items: Vec::new() }, &inside, items);
    }
}

/// True if the item is compiled only for tests.
fn is_of_tests(item: &syn::Item) -> bool {
    let attributes = match item {
        syn::Item::Mod(module) => &module.attrs,
        syn::Item::Use(module) => &module.attrs,
        syn::Item::Fn(function) => &function.attrs,
        syn::Item::Impl(block) => &block.attrs,
        _ => return false,
    };
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute.meta.require_list().is_ok_and(|list| list.tokens.to_string() == "test")
    })
}
