//! Drives a browser without a window by the WebDriver protocol: Chromium with its `chromedriver`.
//!
//! The tests need only a few calls, and make them with an HTTP client that they have anyway. The crates for WebDriver
//! would bring some twenty packages with them, among them old versions of packages that are here already.

use crate::rig::SOON;
use axum::body::Bytes;
use axum::http::{Method, Request};
use base64::prelude::{BASE64_STANDARD, Engine as _};
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::sync::{Semaphore, SemaphorePermit};

/// The permits for browsers. Only three run at a time, because a browser takes several processes.
static PERMITS: Semaphore = Semaphore::const_new(3);

/// A running browser for a test. Dropping the value ends the browser.
pub(crate) struct Browser {
    driver: Child,
    client: Client<HttpConnector, Full<Bytes>>,
    session: String,
    _profile: TempDir,
    _permit: SemaphorePermit<'static>,
}

/// Returns the path of the first installed program in the list `programs`.
fn installed(programs: &[&str]) -> Option<PathBuf> {
    let folders = std::env::var_os("PATH")?;
    let mut found =
        std::env::split_paths(&folders).flat_map(|folder| programs.iter().map(move |name| folder.join(name)));
    found.find(|path| path.is_file())
}

impl Browser {
    /// Starts a browser. If no browser is installed, prints that the test is skipped and returns `None`.
    pub(crate) async fn start() -> Option<Self> {
        let (Some(chrome), Some(driver)) =
            (installed(&["chromium", "chromium-browser", "google-chrome"]), installed(&["chromedriver"]))
        else {
            eprintln!("skipped: chromium or chromedriver is not installed");
            return None;
        };
        let permit = PERMITS.acquire().await.expect("the semaphore is never closed");
        let profile = tempfile::tempdir().unwrap();
        let mut driver = Command::new(driver)
            .arg("--port=0")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(driver.stdout.take().unwrap()).lines().map_while(Result::ok);
        let line =
            lines.find(|line| line.contains("started successfully on port")).expect("the driver starts");
        let port: String = line.chars().filter(char::is_ascii_digit).collect();
        // Read all further lines of the driver. Otherwise it would wait once the pipe is full.
        std::thread::spawn(move || lines.for_each(drop));
        let client = Client::builder(TokioExecutor::new()).build_http();
        let mut browser = Self {
            driver,
            client,
            session: format!("http://127.0.0.1:{port}/session"),
            _profile: profile,
            _permit: permit,
        };
        let arguments = [
            "--headless=new".to_owned(),
            // The tests may run as root in a container, where the sandbox does not start.
            "--no-sandbox".to_owned(),
            "--disable-dev-shm-usage".to_owned(),
            "--disable-gpu".to_owned(),
            format!("--user-data-dir={}", browser._profile.path().display()),
            "--window-size=1280,900".to_owned(),
        ];
        let session = json!({ "capabilities": { "alwaysMatch": {
            "browserName": "chrome",
            "goog:chromeOptions": { "binary": chrome, "args": arguments },
            "goog:loggingPrefs": { "browser": "ALL" },
        } } });
        let begun = browser.call(Method::POST, "", session).await;
        browser.session = format!("{}/{}", browser.session, begun["sessionId"].as_str().unwrap());
        Some(browser)
    }

    /// Sends a request to the browser's driver. Returns the value in the answer, or the error in the answer.
    async fn attempt(&self, method: Method, path: &str, body: Value) -> Result<Value, Value> {
        let body = if method == Method::POST { body.to_string().into() } else { Bytes::new() };
        let request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.session))
            .header("content-type", "application/json")
            .body(Full::new(body))
            .unwrap();
        let answer = tokio::time::timeout(3 * SOON, self.client.request(request)).await.unwrap().unwrap();
        let is_good = answer.status().is_success();
        let bytes = answer.into_body().collect().await.unwrap().to_bytes();
        let value = serde_json::from_slice::<Value>(&bytes).unwrap()["value"].take();
        if is_good { Ok(value) } else { Err(value) }
    }

    async fn call(&self, method: Method, path: &str, body: Value) -> Value {
        let answer = self.attempt(method, path, body).await;
        answer.unwrap_or_else(|error| panic!("{path}: {} {}", error["error"], error["message"]))
    }

    pub(crate) async fn go(&self, url: &str) {
        self.call(Method::POST, "/url", json!({ "url": url })).await;
    }

    /// Returns the address of the page that the browser shows.
    pub(crate) async fn address(&self) -> String {
        self.call(Method::GET, "/url", Value::Null).await.as_str().unwrap().to_owned()
    }

    /// Evaluates an expression of JavaScript in the page. Returns its value.
    pub(crate) async fn value(&self, expression: &str) -> Value {
        let script = format!("return ({expression});");
        self.call(Method::POST, "/execute/sync", json!({ "script": script, "args": [] })).await
    }

    /// Waits until a JavaScript expression in the page is true. Repeats a request that fails while the browser replaces
    /// the page.
    pub(crate) async fn until(&self, expression: &str) {
        let begun = Instant::now();
        let script = format!("return !!({expression});");
        loop {
            let body = json!({ "script": script, "args": [] });
            let value = self.attempt(Method::POST, "/execute/sync", body).await;
            if value == Ok(Value::Bool(true)) {
                return;
            }
            if begun.elapsed() > SOON {
                let text = self.value("document.body.innerText").await;
                panic!("{expression}: {value:?} on {}: {text}", self.address().await);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Waits until the text that the page shows contains `text`.
    pub(crate) async fn until_text(&self, text: &str) {
        self.until(&format!("document.body.innerText.includes({})", json!(text))).await;
    }

    async fn element(&self, selector: &str) -> String {
        self.until(&format!("document.querySelector({})", json!(selector))).await;
        let query = json!({ "using": "css selector", "value": selector });
        let element = self.call(Method::POST, "/element", query).await;
        element.as_object().unwrap().values().next().unwrap().as_str().unwrap().to_owned()
    }

    /// Makes the request that `request` returns for the first element that matches `selector`: its path and its body.
    /// If a refresh replaces the element at this moment, makes the request for the new element.
    async fn with_element(&self, selector: &str, request: impl Fn(&str) -> (String, Value)) {
        let begun = Instant::now();
        loop {
            let (path, body) = request(&self.element(selector).await);
            match self.attempt(Method::POST, &path, body).await {
                Ok(_) => return,
                Err(error) if error["error"] == "stale element reference" && begun.elapsed() < SOON => {}
                Err(error) => panic!("{selector}: {} {}", error["error"], error["message"]),
            }
        }
    }

    /// Clicks the first element that matches `selector`. Fails if a user could not see the element.
    pub(crate) async fn click(&self, selector: &str) {
        self.with_element(selector, |element| (format!("/element/{element}/click"), json!({}))).await;
    }

    /// Types a text into the first element that matches `selector`.
    pub(crate) async fn type_into(&self, selector: &str, text: &str) {
        let typed = |element: &str| (format!("/element/{element}/value"), json!({ "text": text }));
        self.with_element(selector, typed).await;
    }

    /// Presses and releases keys. The keys go to the element that has the focus.
    pub(crate) async fn press(&self, keys: &str) {
        let steps: Vec<Value> = keys
            .chars()
            .flat_map(|key| {
                ["keyDown", "keyUp"].map(|kind| json!({ "type": kind, "value": key.to_string() }))
            })
            .collect();
        let actions = json!({ "actions": [{ "type": "key", "id": "keyboard", "actions": steps }] });
        self.call(Method::POST, "/actions", actions).await;
    }

    /// Returns the problems that the browser has reported after the last call: violations of the content security
    /// policy, errors of scripts, and failed requests.
    pub(crate) async fn reports(&self) -> Vec<String> {
        let log = self.call(Method::POST, "/se/log", json!({ "type": "browser" })).await;
        log.as_array().unwrap().iter().map(|entry| entry["message"].as_str().unwrap().to_owned()).collect()
    }

    /// Calls a method of the browser's DevTools protocol.
    async fn devtools(&self, method: &str, parameters: Value) -> Value {
        self.call(Method::POST, "/goog/cdp/execute", json!({ "cmd": method, "params": parameters })).await
    }

    pub(crate) async fn scheme(&self, scheme: &str) {
        let feature = json!({ "name": "prefers-color-scheme", "value": scheme });
        self.devtools("Emulation.setEmulatedMedia", json!({ "features": [feature] })).await;
    }

    pub(crate) async fn width(&self, width: u32) {
        let metrics = json!({ "width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false });
        self.devtools("Emulation.setDeviceMetricsOverride", metrics).await;
    }

    /// Makes the browser show pages for the medium `medium`: `screen` or `print`. If `is_forced` is true, the browser
    /// replaces the colours of the pages by its own colours.
    pub(crate) async fn medium(&self, medium: &str, is_forced: bool) {
        let forced = if is_forced { "active" } else { "none" };
        let feature = json!({ "name": "forced-colors", "value": forced });
        self.devtools("Emulation.setEmulatedMedia", json!({ "media": medium, "features": [feature] })).await;
    }

    pub(crate) async fn zone(&self, zone: &str) {
        self.devtools("Emulation.setTimezoneOverride", json!({ "timezoneId": zone })).await;
    }

    /// Moves the pointer to the middle of the first element that matches `selector`.
    pub(crate) async fn hover(&self, selector: &str) {
        let moved = |element: &str| {
            let origin = json!({ "element-6066-11e4-a52e-4f735466cecf": element });
            let steps = json!([{ "type": "pointerMove", "duration": 0, "origin": origin, "x": 0, "y": 0 }]);
            let parameters = json!({ "pointerType": "mouse" });
            let pointer =
                json!({ "type": "pointer", "id": "mouse", "parameters": parameters, "actions": steps });
            ("/actions".to_owned(), json!({ "actions": [pointer] }))
        };
        self.with_element(selector, moved).await;
    }

    /// Runs a script in the page.
    pub(crate) async fn run(&self, script: &str) {
        self.devtools("Runtime.evaluate", json!({ "expression": script })).await;
    }

    /// Waits for a promise of the page's JavaScript. Returns the value with which the promise is fulfilled.
    pub(crate) async fn answer(&self, promise: &str) -> Value {
        let parameters = json!({ "expression": promise, "awaitPromise": true, "returnByValue": true });
        self.devtools("Runtime.evaluate", parameters).await["result"]["value"].clone()
    }

    /// Permits the scripts of pages if `permitted` is true, and otherwise forbids them.
    pub(crate) async fn scripts(&self, permitted: bool) {
        self.devtools("Emulation.setScriptExecutionDisabled", json!({ "value": !permitted })).await;
    }

    /// Makes the browser run a script in each page that it opens from now on, before the page's own scripts.
    pub(crate) async fn before_each_page(&self, script: &str) {
        let script = format!("{{ {script} }}");
        self.devtools("Page.addScriptToEvaluateOnNewDocument", json!({ "source": script })).await;
    }

    /// Returns the number of DOM nodes and the number of event listeners in the browser. Collects garbage first.
    pub(crate) async fn nodes(&self) -> (u64, u64) {
        self.devtools("HeapProfiler.collectGarbage", json!({})).await;
        let counters = self.devtools("Memory.getDOMCounters", json!({})).await;
        (counters["nodes"].as_u64().unwrap(), counters["jsEventListeners"].as_u64().unwrap())
    }

    /// Takes a picture of the whole page, and writes it to a file named `name` in the folder `TOURBILLON_PICTURES`.
    /// Without this variable, takes none: people look at the pictures, and a test takes 200 of them.
    pub(crate) async fn picture(&self, name: &str) {
        let Some(folder) = std::env::var_os("TOURBILLON_PICTURES").map(PathBuf::from) else { return };
        let size = "[innerWidth, document.documentElement.scrollHeight]";
        let size = self.value(size).await;
        let height = size[1].as_u64().unwrap().min(4_000);
        let clip = json!({ "x": 0, "y": 0, "width": size[0], "height": height, "scale": 1 });
        let parameters = json!({ "format": "png", "captureBeyondViewport": true, "clip": clip });
        let picture = self.devtools("Page.captureScreenshot", parameters).await;
        let bytes = BASE64_STANDARD.decode(picture["data"].as_str().unwrap()).unwrap();
        assert!(bytes.starts_with(b"\x89PNG") && bytes.len() > 5_000, "{name}: {} bytes", bytes.len());
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join(format!("{name}.png")), bytes).unwrap();
    }
}

impl Browser {
    /// Ends the session with the browser's driver, which ends the browser. Blocks the thread.
    fn end_session(&self) -> std::io::Result<()> {
        let (address, path) = self.session.trim_start_matches("http://").split_once('/').unwrap_or_default();
        let mut driver = std::net::TcpStream::connect(address)?;
        driver.set_read_timeout(Some(SOON))?;
        write!(driver, "DELETE /{path} HTTP/1.1\r\nhost: {address}\r\n\r\n")?;
        // The driver answers once the browser has ended, but keeps the connection open. So read only a byte.
        driver.read_exact(&mut [0])
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // A busy browser survives the end of its driver, so end the session first.
        let _best_effort = self.end_session();
        #[cfg(unix)]
        if let Some(id) = rustix::process::Pid::from_raw(self.driver.id().cast_signed()) {
            let _best_effort = rustix::process::kill_process(id, rustix::process::Signal::TERM);
            let begun = Instant::now();
            while begun.elapsed() < SOON && matches!(self.driver.try_wait(), Ok(None)) {
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        let _has_ended = self.driver.kill();
        let _status = self.driver.wait();
    }
}
