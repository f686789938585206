//! Writes text in roff, the language of manual pages, from the Markdown of the documents. It knows
//! what the documents use: paragraphs, lists, tables, samples, headings, links and marks.

pub(super) fn title(name: &str, section: u8) -> String {
    format!(
        ".TH {} {section} \"\" \"orchestrate {}\" \"orchestrate\"\n.nh\n.ad l\n",
        name.to_uppercase(),
        env!("CARGO_PKG_VERSION")
    )
}

/// Returns a page without the beginnings of paragraphs that a heading begins already.
pub(super) fn page(text: &str) -> String {
    let mut page = String::new();
    let mut is_heading = false;
    for line in text.lines() {
        if !(is_heading && line == ".PP") {
            page.push_str(line);
            page.push('\n');
        }
        is_heading = line.starts_with(".SH ") || line.starts_with(".SS ");
    }
    page
}

pub(super) fn section(heading: &str) -> String {
    format!(".SH \"{}\"\n", escaped(&heading.to_uppercase()))
}

/// Begins a part of a section.
pub(super) fn subsection(heading: &str) -> String {
    format!(".SS \"{}\"\n", escaped(heading))
}

/// Returns an entry with a name, which is in roff already, and a text.
pub(super) fn entry(name: &str, text: &str) -> String {
    format!(".TP\n{name}\n{}", line(&inline(text)))
}

/// Returns a word in bold.
pub(super) fn bold(text: &str) -> String {
    format!("\\fB{}\\fR", escaped(text))
}

pub(super) fn italic(text: &str) -> String {
    format!("\\fI{}\\fR", escaped(text))
}

/// Returns text without the characters that roff reads as commands.
pub(super) fn escaped(text: &str) -> String {
    text.replace('\\', "\\e")
        .replace('-', "\\-")
        .replace('\'', "\\(aq")
        .replace('"', "\\(dq")
        .replace('`', "\\(ga")
}

/// Returns a line of text, which roff does not take for a command.
fn line(text: &str) -> String {
    let begin = if text.starts_with(['.', '\'']) { "\\&" } else { "" };
    format!("{begin}{text}\n")
}

/// Returns the text of a document.
pub(super) fn text(markdown: &str) -> String {
    let mut roff = String::new();
    let mut lines = markdown.lines().peekable();
    let mut depth = 0;
    while let Some(first) = lines.next() {
        let trimmed = first.trim_start();
        let indent = first.len() - trimmed.len();
        if trimmed.is_empty() {
            continue;
        }
        if trimmed.starts_with("```") {
            roff.push_str(".PP\n.RS 4\n.nf\n");
            for sample in lines.by_ref().take_while(|line| !line.trim_start().starts_with("```")) {
                roff.push_str(&line(&escaped(sample)));
            }
            roff.push_str(".fi\n.RE\n");
        } else if let Some(heading) = first.strip_prefix('#') {
            leave_lists(&mut roff, &mut depth, 0);
            roff.push_str(&subsection(&plain(heading.trim_start_matches('#').trim())));
        } else if first.starts_with('|') {
            leave_lists(&mut roff, &mut depth, 0);
            let mut rows = vec![cells(first)];
            while let Some(row) = lines.next_if(|line| line.starts_with('|')) {
                rows.push(cells(row));
            }
            roff.push_str(&table(&rows));
        } else {
            let item = trimmed.strip_prefix("- ");
            let mut words = item.unwrap_or(trimmed).to_owned();
            let goes_on = |line: &&str| {
                let trimmed = line.trim_start();
                !trimmed.is_empty()
                    && !trimmed.starts_with("- ")
                    && !trimmed.starts_with("```")
                    && !line.starts_with(['|', '#'])
            };
            while let Some(more) = lines.next_if(goes_on) {
                words.push(' ');
                words.push_str(more.trim());
            }
            // Two spaces are one level.
            leave_lists(&mut roff, &mut depth, if item.is_some() { indent / 2 } else { 0 });
            roff.push_str(if item.is_some() { ".IP \\(bu 2\n" } else { ".PP\n" });
            roff.push_str(&line(&inline(&words)));
        }
    }
    leave_lists(&mut roff, &mut depth, 0);
    roff
}

/// Goes to a level of lists.
fn leave_lists(roff: &mut String, depth: &mut usize, level: usize) {
    while *depth > level {
        roff.push_str(".RE\n");
        *depth -= 1;
    }
    while *depth < level {
        roff.push_str(".RS 2\n");
        *depth += 1;
    }
}

/// Returns the cells of a row of a table.
fn cells(row: &str) -> Vec<&str> {
    row.trim().trim_matches('|').split(" | ").map(str::trim).collect()
}

/// Returns a table as a list: the first cell is the name, the last one is the text, and what stands
/// between them is named by the header.
fn table(rows: &[Vec<&str>]) -> String {
    let mut roff = String::new();
    let header = rows.first().cloned().unwrap_or_default();
    for row in rows.iter().skip(2) {
        let Some((name, others)) = row.split_first() else { continue };
        let between = others.split_last().map(|(_, between)| between).unwrap_or_default();
        let named =
            between.iter().zip(header.iter().skip(1)).filter(|(cell, _)| !cell.is_empty() && **cell != "-");
        let named: Vec<String> = named.map(|(cell, name)| format!("{name}: {cell}")).collect();
        roff.push_str(&format!(".TP\n{}", line(&inline(name))));
        let last = others.last().copied().unwrap_or_default();
        if !named.is_empty() {
            roff.push_str(&line(&inline(&named.join(", "))));
            roff.push_str(if last.is_empty() { "" } else { ".br\n" });
        }
        if !last.is_empty() {
            roff.push_str(&line(&inline(last)));
        }
    }
    roff
}

/// Returns text without marks.
fn plain(text: &str) -> String {
    crate::help::document::plain(text).replace('`', "")
}

/// Returns text with words in bold for marked ones. Links keep their name.
pub(super) fn inline(text: &str) -> String {
    let text = crate::help::document::plain(text);
    // The documents that are pages themselves.
    let text = text
        .replace("command-line.md", "orchestrate(1)")
        .replace("configuration.md", "orchestrate-agent.toml(5)");
    let mut roff = String::new();
    for (index, part) in text.split('`').enumerate() {
        if index % 2 == 1 {
            roff.push_str(&bold(part));
        } else {
            let emphasised = part.split('*').enumerate();
            roff.extend(
                emphasised.map(|(index, part)| if index % 2 == 1 { italic(part) } else { escaped(part) }),
            );
        }
    }
    roff
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_become_roff() {
        assert_eq!(
            inline("run `a-b`, see [c.md](c.md#d): *now*"),
            "run \\fBa\\-b\\fR, see c.md: \\fInow\\fR"
        );
        assert_eq!(line(".TH"), "\\&.TH\n");
        assert_eq!(inline("C:\\x"), "C:\\ex");
    }

    #[test]
    fn paragraphs_lists_tables_and_samples_become_roff() {
        let roff = text(
            "one\ntwo\n\n- a\n  b\n  - c\n- d\n\n```sh\n.x\n```\n\n| n | t | m |\n|---|---|---|\n| `n1` | text | what |\n",
        );
        let expected = ".PP\none two\n.IP \\(bu 2\na b\n.RS 2\n.IP \\(bu 2\nc\n.RE\n.IP \\(bu 2\nd\n.PP\n.RS 4\n.nf\n\\&.x\n.fi\n.RE\n.TP\n\\fBn1\\fR\nt: text\n.br\nwhat\n";
        assert_eq!(roff, expected);
    }
}
