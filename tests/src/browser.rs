//! A real browser: Debian's Chromium without a screen, steered by its WebDriver (W3C WebDriver, level 2). The clients for
//! it on crates.io need a licence that is not ours (`webdriver`) or a second HTTP client.

use crate::process::{Running, free_ports};
use crate::wait;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Keys that have no character (section 17.4.2).
pub const TAB: &str = "\u{e004}";
pub const ENTER: &str = "\u{e007}";

/// A browser with one session.
pub struct Browser {
    _driver: Running,
    agent: ureq::Agent,
    session: String,
    directory: tempfile::TempDir,
}

impl Browser {
    pub fn start() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let [port] = free_ports();
        let mut command = Command::new("chromedriver");
        command.arg(format!("--port={port}"));
        let driver = Running::start(&mut command, &directory.path().join("log"));
        let config = ureq::Agent::config_builder()
            .timeout_global(Some(Duration::from_secs(60)))
            .http_status_as_error(false)
            .build();
        let agent = ureq::Agent::new_with_config(config);
        let base = format!("http://127.0.0.1:{port}/session");
        // Root may not use the sandbox. Nothing is asked of others in the background.
        let profile = format!("--user-data-dir={}", directory.path().join("profile").display());
        let arguments = [
            "--headless=new",
            "--no-sandbox",
            "--disable-background-networking",
            "--disable-dev-shm-usage",
            "--disable-gpu",
            "--window-size=1280,900",
            &profile,
        ];
        let options = json!({"capabilities": {"alwaysMatch": {
            "goog:loggingPrefs": {"browser": "ALL"},
            "goog:chromeOptions": {"args": arguments},
        }}});
        let log = || std::fs::read_to_string(directory.path().join("log")).unwrap_or_default();
        let open = || {
            let mut answer = agent.post(&base).send(options.to_string()).ok()?;
            let answer: Value = serde_json::from_str(&answer.body_mut().read_to_string().ok()?).ok()?;
            answer["value"]["sessionId"].as_str().map(str::to_owned)
        };
        let id = wait::until_within(wait::DEADLINE * 2, "the browser starts", open, log);
        Self { _driver: driver, agent, session: format!("{base}/{id}"), directory }
    }

    fn post(&self, path: &str, body: &Value) -> Value {
        let sent = self.agent.post(format!("{}/{path}", self.session)).send(body.to_string());
        let mut answer = sent.unwrap_or_else(|error| panic!("{path}: {error}\n{}", self.log()));
        let text = answer.body_mut().read_to_string().expect("text");
        let mut value: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(answer.status().as_u16(), 200, "{path} {body}: {value}");
        value["value"].take()
    }

    fn get(&self, path: &str) -> Value {
        let mut answer = self.agent.get(format!("{}/{path}", self.session)).call().expect("an answer");
        let mut value: Value =
            serde_json::from_str(&answer.body_mut().read_to_string().expect("text")).expect("JSON");
        value["value"].take()
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }

    /// Goes to an address, and returns when it is loaded.
    pub fn go(&self, url: &str) {
        self.post("url", &json!({ "url": url }));
    }

    /// Returns the address that is shown.
    pub fn url(&self) -> String {
        self.get("url").as_str().expect("an address").to_owned()
    }

    /// Returns the value of a script: the body of a function.
    pub fn script(&self, body: &str) -> Value {
        self.post("execute/sync", &json!({ "script": body, "args": [] }))
    }

    /// Returns the visible text of the page.
    pub fn text(&self) -> String {
        self.script("return document.body.innerText").as_str().unwrap_or_default().to_owned()
    }

    /// Waits until the page has this text.
    pub fn wait_for_text(&self, text: &str) {
        let has = || Some(()).filter(|()| self.text().contains(text));
        wait::until(&format!("the page says {text:?}"), has, || format!("{}\n{}", self.url(), self.text()));
    }

    /// Waits until a script returns true.
    pub fn wait_for(&self, what: &str, script: &str) {
        let holds = || Some(()).filter(|()| self.script(script) == true);
        wait::until(what, holds, || format!("{}\n{}", self.url(), self.text()));
    }

    /// Presses keys, one after the other.
    pub fn press(&self, keys: &str) {
        let press = |key: char| {
            let key = key.to_string();
            [json!({"type": "keyDown", "value": key}), json!({"type": "keyUp", "value": key})]
        };
        let actions: Vec<Value> = keys.chars().flat_map(press).collect();
        self.post("actions", &json!({"actions": [{"type": "key", "id": "keys", "actions": actions}]}));
    }

    fn element(&self, selector: &str) -> Value {
        self.post("element", &json!({"using": "css selector", "value": selector}))
    }

    /// Clicks on the first element that a CSS selector finds.
    pub fn click(&self, selector: &str) {
        let found = self.element(selector);
        let id = found.as_object().and_then(|found| found.values().next()).and_then(Value::as_str);
        self.post(&format!("element/{}/click", id.expect("an element")), &json!({}));
    }

    /// Moves the pointer to the first element that a CSS selector finds.
    pub fn point_at(&self, selector: &str) {
        let step =
            json!({"type": "pointerMove", "origin": self.element(selector), "x": 0, "y": 0, "duration": 0});
        self.post("actions", &json!({"actions": [{"type": "pointer", "id": "mouse", "actions": [step]}]}));
    }

    /// Sets the size of the window.
    pub fn resize(&self, width: u32, height: u32) {
        let metrics = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.devtools("Emulation.setDeviceMetricsOverride", &metrics);
    }

    /// Runs a command of Chromium's own protocol.
    pub fn devtools(&self, command: &str, parameters: &Value) -> Value {
        self.post("goog/cdp/execute", &json!({"cmd": command, "params": parameters}))
    }

    /// Opens a tab and shows it.
    pub fn new_tab(&self) {
        let tab = self.post("window/new", &json!({"type": "tab"}));
        self.post("window", &json!({"handle": tab["handle"]}));
    }

    pub fn tabs(&self) -> Vec<String> {
        let handles = self.get("window/handles");
        handles.as_array().expect("a list").iter().filter_map(|h| h.as_str().map(str::to_owned)).collect()
    }

    pub fn show_tab(&self, handle: &str) {
        self.post("window", &json!({ "handle": handle }));
    }

    /// Returns what the browser logged since the last time: errors, and what the policy of a page refused.
    pub fn messages(&self) -> Vec<String> {
        let entries = self.post("se/log", &json!({"type": "browser"}));
        let message = |entry: &Value| entry["message"].as_str().map(str::to_owned);
        entries.as_array().expect("a list").iter().filter_map(message).collect()
    }

    /// Writes what is shown to a file under `target/pages`, and returns its path.
    pub fn screenshot(&self, name: &str) -> PathBuf {
        let data = self.get("screenshot");
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/pages");
        std::fs::create_dir_all(&directory).expect("a directory");
        let path = directory.join(format!("{name}.png"));
        let image = STANDARD.decode(data.as_str().expect("an image")).expect("base64");
        std::fs::write(&path, image).expect("written");
        path
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The driver ends the browser; it may be gone already.
        let _ = self.agent.delete(&self.session).call();
    }
}
