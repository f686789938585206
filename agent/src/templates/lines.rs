//! Lines of templates. Jinja can remove the newline after each block tag. That is what people want of a tag that is alone
//! on its line, but it joins a line of text that ends with a tag with the next one. A `+` in front of the end of a tag
//! keeps its newline, so such tags get one.

/// Statements that read other templates. Jinja has them, so people expect them.
const OF_FILES: [&str; 4] = ["extends", "from", "import", "include"];

/// Returns a template in which lines of text keep their newlines. No other line becomes longer, and none moves.
///
/// # Errors
/// Returns the line of a statement that reads another template, and what is wrong with it.
pub(super) fn keep_newlines_after_text(source: &str) -> Result<String, (usize, String)> {
    let mut kept = String::with_capacity(source.len());
    let mut rest = source;
    // True if something besides white space and block tags is on the line.
    let mut has_text = false;
    while let Some(at) = ["{%", "{{", "{#"].iter().filter_map(|begin| rest.find(begin)).min() {
        let (text, tag) = rest.split_at(at);
        has_text = has_text_at_end(text, has_text);
        kept.push_str(text);
        let Some(length) = length_of(tag) else {
            // A tag without an end is a mistake, which the parser names.
            kept.push_str(tag);
            return Ok(kept);
        };
        let (mut tag, after) = tag.split_at(length);
        if let Some(statement) =
            OF_FILES.iter().find(|name| tag.starts_with("{%") && inside(tag).starts_with(*name))
        {
            let line = 1 + kept.matches('\n').count();
            return Err((line, format!("{statement}: a template is one file, and reads no other one")));
        }
        if tag.starts_with("{{") {
            has_text = true;
        } else if has_text && starts_with_newline(after) && !tag[..tag.len() - 2].ends_with(['-', '+']) {
            let (before, end) = tag.split_at(tag.len() - 2);
            kept.push_str(before);
            kept.push('+');
            tag = end;
        }
        kept.push_str(tag);
        rest = after;
    }
    Ok(kept + rest)
}

/// Returns the text of a complete tag.
fn inside(tag: &str) -> &str {
    tag[2..tag.len() - 2].trim_matches(['-', '+']).trim()
}

/// True if the last line has text, after this piece of it.
fn has_text_at_end(piece: &str, has_text: bool) -> bool {
    let is_text = |text: &str| !text.trim().is_empty();
    match piece.rsplit_once('\n') {
        Some((_, last)) => is_text(last),
        None => has_text || is_text(piece),
    }
}

fn starts_with_newline(text: &str) -> bool {
    text.starts_with('\n') || text.starts_with("\r\n")
}

/// Returns the length of the tag at the start, with everything that a raw block contains.
fn length_of(tag: &str) -> Option<usize> {
    if tag.starts_with("{#") {
        return Some(tag.find("#}")? + 2);
    }
    let end = if tag.starts_with("{%") { "%}" } else { "}}" };
    let mut quote = None;
    let mut is_escaped = false;
    let length = 2 + tag[2..].char_indices().find_map(|(at, c)| match quote {
        Some(_) if std::mem::take(&mut is_escaped) => None,
        Some(_) if c == '\\' => {
            is_escaped = true;
            None
        }
        Some(open) => {
            if c == open {
                quote = None;
            }
            None
        }
        None if matches!(c, '"' | '\'') => {
            quote = Some(c);
            None
        }
        None => tag[2 + at..].starts_with(end).then_some(at + 2),
    })?;
    if !tag.starts_with("{%") || inside(&tag[..length]) != "raw" {
        return Some(length);
    }
    // What a raw block contains is text, and no tag of it counts.
    let mut at = length;
    loop {
        at += tag[at..].find("{%")?;
        let close = at + tag[at..].find("%}")? + 2;
        if inside(&tag[at..close]) == "endraw" {
            return Some(close);
        }
        at += 2;
    }
}

#[cfg(test)]
mod tests {
    use super::super::render::{environment, parse};
    use super::*;

    #[test]
    fn a_tag_alone_on_its_line_leaves_no_line_and_text_keeps_its_newline() {
        for (source, expected) in [
            ("a\n{% if true %}\nb\n{% endif %}\nc\n", "a\nb\nc\n"),
            ("  {% if true %}\n  b\n  {% endif %}\nc", "  b\nc"),
            ("{% if true %}{% if true %}\nb\n{% endif %}{% endif %}\nc\n", "b\nc\n"),
            // These lines were joined with the next one.
            ("a {% if true %}b{% endif %}\nc\n", "a b\nc\n"),
            ("list: {% for i in [1, 2] %}{{ i }} {% endfor %}\nend\n", "list: 1 2 \nend\n"),
            ("{{ 1 }}{% if true %}{% endif %}\nc\n", "1\nc\n"),
            ("a{% if true %}{% endif %}\r\nc\n", "a\r\nc\n"),
            ("a {# why #}\nb\n", "a \nb\n"),
            ("{# why #}\nb\n", "b\n"),
            // Quotes may contain the end of a tag, and tags may have several lines.
            ("a{% if '%}' == \"%}\" %}x{% endif %}\nb\n", "ax\nb\n"),
            ("{% if true\n   and true %}\nb\n{% endif %}\n", "b\n"),
            ("a {% if true\n   and true %}\nb{% endif %}\n", "a \nb\n"),
            // Who says what becomes of the newline has the last word.
            ("a{% if true -%}\n\n b{% endif %}\nc", "ab\nc"),
            ("{% if true +%}\nb{% endif %}\nc", "\nb\nc"),
            // Nothing in a raw block is a tag.
            ("a {% raw %}{% if %}\n{{ x }}{% endraw %}\nb", "a {% if %}\n{{ x }}\nb"),
            ("{% raw %}\n{% x %}\ny\n{% endraw %}\nb", "{% x %}\ny\nb"),
        ] {
            let rendered = environment().render_str(&keep_newlines_after_text(source).unwrap(), ());
            assert_eq!(rendered.unwrap_or_else(|error| error.to_string()), expected, "{source:?}");
        }
        for unfinished in ["a {% if", "{{ 'x", "{# x", "{% raw %} {% x %}", "{% 'a\\'%}"] {
            assert_eq!(keep_newlines_after_text(unfinished).as_deref(), Ok(unfinished));
        }
    }

    #[test]
    fn a_macro_is_there_and_another_file_is_not() {
        let text =
            "{% macro line(name) %}\nserver {{ name }}\n{% endmacro %}\n{{ line('a') }}{{ line('b') }}";
        let rendered = environment().render_str(&keep_newlines_after_text(text).unwrap(), ());
        assert_eq!(rendered.unwrap(), "server a\nserver b\n");
        for statement in ["include 'x'", "- import 'x' as y", "from 'x' import y", "extends 'x'"] {
            let (line, why) = keep_newlines_after_text(&format!("a\n\n{{%{statement} %}}")).unwrap_err();
            assert!(line == 3 && why.ends_with("a template is one file, and reads no other one"), "{why}");
        }
        let error = parse("a\n{% if %}\n").unwrap_err().to_string();
        assert!(error.starts_with("line 2: "), "{error}");
        assert!(parse("{% include 'x' %}").unwrap_err().to_string().starts_with("line 1: include: "));
        parse("{% for i in service('web') %}{{ i.host }}{% endfor %}").unwrap();
    }
}
