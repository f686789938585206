//! Writes the schemas of all answers, and the description of the observer's API.

fn main() -> Result<(), String> {
    for file in answer_schemas::files()? {
        std::fs::write(&file.path, &file.text)
            .map_err(|error| format!("{}: {error}", file.path.display()))?;
    }
    Ok(())
}
