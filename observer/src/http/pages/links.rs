//! Links of a page about the past: they lead to the same moment.

use super::assets::is_public;

/// What links and forms of the templates begin with. Text of others cannot contain it, because quotes are escaped.
const LINK: &str = "href=\"/";
const FORM: &str = "<form ";

/// Returns HTML whose links lead to a moment. `parameter` is the moment as a part of a query, and `value` its text.
pub(super) fn with_moment(html: &str, parameter: &str, value: &str) -> String {
    let (mut moved, mut rest) = (String::with_capacity(html.len() * 2), html);
    while let Some((at, is_link)) = next_of(rest) {
        let (before, found) = rest.split_at(at);
        moved.push_str(before);
        let skipped = if is_link { LINK.len() - 1 } else { 0 };
        let end =
            found[skipped..].find(if is_link { '"' } else { '>' }).map_or(found.len(), |end| skipped + end);
        let (tag, after) = found.split_at(end);
        moved.push_str(tag);
        rest = after;
        if is_link {
            let address = &tag[skipped..];
            let is_about_moment =
                !is_public(address) && !["?at=", "&at=", "&#38;at="].iter().any(|at| address.contains(at));
            if is_about_moment {
                moved.push(if address.contains('?') { '&' } else { '?' });
                moved.push_str(parameter);
            }
        } else if let Some(inside) = after.strip_prefix('>') {
            moved.push_str("><input type=\"hidden\" name=\"at\" value=\"");
            moved.push_str(value);
            moved.push_str("\">");
            rest = inside;
        }
    }
    moved + rest
}

/// Returns where the next link or form begins, and whether it is a link.
fn next_of(html: &str) -> Option<(usize, bool)> {
    let (link, form) = (html.find(LINK), html.find(FORM));
    match (link, form) {
        (Some(link), Some(form)) if form < link => Some((form, false)),
        (Some(link), _) => Some((link, true)),
        (None, form) => form.map(|form| (form, false)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_and_forms_lead_to_the_moment() {
        let check = |html: &str, expected: &str| {
            assert_eq!(with_moment(html, "at=l%2F1", "l/1"), expected, "{html}");
        };
        check("<p>nothing</p>", "<p>nothing</p>");
        check(
            r#"<a href="/">a</a><a href="/hosts?x=1">b</a>"#,
            r#"<a href="/?at=l%2F1">a</a><a href="/hosts?x=1&at=l%2F1">b</a>"#,
        );
        check(
            r#"<link href="/page.css"><a href="/?at=7">see then</a>"#,
            r#"<link href="/page.css"><a href="/?at=7">see then</a>"#,
        );
        check(
            r#"<form class="filter" action="/hosts"><a href="/x">"#,
            r#"<form class="filter" action="/hosts"><input type="hidden" name="at" value="l/1"><a href="/x?at=l%2F1">"#,
        );
        check(
            r##"<a href="#main">skip</a><a href='/hosts'>back</a>"##,
            r##"<a href="#main">skip</a><a href='/hosts'>back</a>"##,
        );
    }
}
