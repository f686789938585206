//! The files of the pages. They say nothing about the fleet, so everybody may have them.

use axum::http::header;
use axum::response::IntoResponse;

const STYLE: &str = include_str!("../../../static/page.css");
const SCRIPT: &str = include_str!("../../../static/page.js");
const ICON: &str = include_str!("../../../static/icon.svg");

/// The paths of the files.
const PATHS: [&str; 3] = ["/page.css", "/page.js", "/icon.svg"];

/// True if everybody may have what is at this path.
pub(in crate::http) fn is_public(path: &str) -> bool {
    PATHS.contains(&path)
}

pub(super) async fn style() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "text/css; charset=utf-8")], STYLE)
}

pub(super) async fn script() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "text/javascript; charset=utf-8")], SCRIPT)
}

pub(super) async fn icon() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "image/svg+xml")], ICON)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_stays_small() {
        assert!(SCRIPT.len() <= 20 * 1024, "{}", SCRIPT.len());
    }
}
