//! What a row of the table says about a key.

/// The agents that may read or write a key. Operators may read and write every key, and observers read every key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Agents {
    /// No agent.
    No,
    /// Each agent, if the key names its own host.
    Own,
    /// Every agent, whatever host the key names.
    All,
}

/// What a row of the table says, except for the types.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Row {
    /// The name of the row.
    pub name: &'static str,
    /// The beginning of the path, up to the first argument.
    pub start: &'static str,
    /// The names of the arguments.
    pub arguments: &'static [&'static str],
    /// Form of the value: the first words of its description in `docs/keys.md`.
    pub value: &'static str,
    /// How long the key exists.
    pub lifetime: &'static str,
    /// `fleet`, or the argument that names the host to which the key belongs.
    pub owner: &'static str,
    /// Which agents may read the key.
    pub agents_read: Agents,
    /// Which agents may write and delete the key.
    pub agents_write: Agents,
}

/// A key as `docs/keys.md` describes it. A test compares the table there with [`super::documented`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DocumentedKey {
    /// Path of the key, with placeholders.
    pub path: String,
    /// The row of the key.
    pub row: Row,
}

/// A key whose kind is known when the program is compiled, and so the type of its value.
pub trait TypedKey {
    /// What is stored under the key.
    type Value;
    /// Why a value cannot be read.
    type Error;
    /// What the table says about the key.
    const ROW: Row;

    /// Returns the path of the key.
    fn path(self) -> String;

    /// Reads a value of the store.
    ///
    /// # Errors
    /// Returns an error if the bytes are no value of this key.
    fn read(bytes: &[u8]) -> Result<Self::Value, Self::Error>;
}
