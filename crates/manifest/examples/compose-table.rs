//! Prints the table of keys, which stands at the end of `docs/compose.md`.

use std::io::Write as _;

fn main() -> std::io::Result<()> {
    std::io::stdout().write_all(manifest::table_as_markdown().as_bytes())
}
