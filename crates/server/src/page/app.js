// Refreshes the parts of a page that change, and helps the keyboard. Without it every page can be read and every form works.
"use strict";
(() => {
  const alarm = document.getElementById("alarm");
  const say = (text) => { alarm.textContent = text; alarm.hidden = !text; };

  // `/` begins a search, wherever no text is typed.
  document.addEventListener("keydown", (event) => {
    if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.closest("input, select, textarea")) return;
    const search = document.getElementById("search");
    event.preventDefault();
    if (search) { search.focus(); search.select(); } else { location.href = "/ui/timers"; }
  });

  // A change that is confirmed by typing has no button until the word is there. The service checks it, too.
  const confirm = (root) => {
    for (const input of root.querySelectorAll("input[data-word]")) {
      const button = input.form.querySelector("button");
      const look = () => { button.disabled = input.value.trim() !== input.dataset.word.trim(); };
      input.addEventListener("input", look);
      look();
    }
  };
  confirm(document);

  // Moments in the viewer's own zone, as titles.
  const zones = (root) => {
    for (const time of root.querySelectorAll("time[datetime]")) {
      const at = new Date(time.dateTime);
      if (!Number.isNaN(at.getTime())) time.title = `${at.toLocaleString()} here`;
    }
  };
  zones(document);

  const path = document.body.dataset.stream;
  const button = document.getElementById("live");
  if (!path || !button || !window.EventSource) return;

  const FLOOR = 2000;
  // The stream says something at least each ten seconds. A connection that is silent for longer has ended without a word:
  // the machine slept, or something between the browser and the service has forgotten it.
  const SILENCE = 30000;
  let source = null;
  let retry = null;
  let wait = FLOOR;
  let last = 0;
  let later = null;
  let silence = null;
  let underWay = false;
  let isWanted = sessionStorage.getItem("live") !== "no";

  // A part with the keyboard's focus, an open form or a selection stays as it is.
  const isInUse = (part) => part.contains(document.activeElement) && document.activeElement !== document.body
    || part.querySelector("details[open]")
    || (!getSelection().isCollapsed && getSelection().containsNode(part, true));

  const refresh = async () => {
    if (underWay) return;
    const left = last + FLOOR - Date.now();
    if (left > 0) {
      if (later === null) later = setTimeout(() => { later = null; refresh(); }, left);
      return;
    }
    underWay = true;
    last = Date.now();
    const ending = new AbortController();
    const limit = setTimeout(() => ending.abort(), SILENCE);
    try {
      const answer = await fetch(location.href, { credentials: "same-origin", headers: { accept: "text/html" }, signal: ending.signal });
      if (answer.redirected && new URL(answer.url).pathname === "/ui/sign-in") { signedOut(); return; }
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      if (!answer.ok) { say(page.querySelector("main p")?.textContent ?? `The service answers ${answer.status}.`); return; }
      for (const part of document.querySelectorAll("[data-live]")) {
        const fresh = page.getElementById(part.id);
        if (!fresh || fresh.innerHTML === part.dataset.shown || isInUse(part)) continue;
        const copy = document.importNode(fresh, true);
        copy.dataset.shown = fresh.innerHTML;
        part.replaceWith(copy);
        confirm(copy);
        zones(copy);
      }
      // The forms outside of these parts carry the mark of a session that a restart has ended.
      const mark = page.querySelector("input[name=mark]")?.value;
      if (mark) for (const input of document.querySelectorAll("input[name=mark]")) input.value = mark;
      if (!page.body.dataset.stream) { stop(); }
      say("");
    } catch {
      say("The service cannot be reached. The page goes on by itself when it is back.");
    } finally {
      clearTimeout(limit);
      underWay = false;
    }
  };

  const signedOut = () => {
    stop();
    say("");
    const link = document.createElement("a");
    link.href = `/ui/sign-in?to=${encodeURIComponent(location.pathname + location.search)}`;
    link.textContent = "Sign in again";
    alarm.append("Your session has ended, or the service was started again. ", link);
    alarm.hidden = false;
  };

  const stop = () => {
    source?.close();
    source = null;
    clearTimeout(retry);
    clearTimeout(later);
    clearTimeout(silence);
    later = null;
  };

  // The browser's own repetition ends with the first answer that is no stream: this one does not.
  const again = () => {
    source?.close();
    source = null;
    clearTimeout(silence);
    refresh();
    clearTimeout(retry);
    retry = setTimeout(start, wait);
    wait = Math.min(wait * 2, 30000);
  };

  const alive = () => {
    clearTimeout(silence);
    silence = setTimeout(again, SILENCE);
  };

  const start = () => {
    stop();
    if (!isWanted || document.hidden) return;
    source = new EventSource(path);
    source.addEventListener("tick", () => { wait = FLOOR; alive(); refresh(); });
    source.onerror = again;
    alive();
  };

  const show = () => {
    button.setAttribute("aria-pressed", String(isWanted));
    button.textContent = isWanted ? "Live" : "Paused";
  };
  button.hidden = false;
  button.addEventListener("click", () => {
    isWanted = !isWanted;
    sessionStorage.setItem("live", isWanted ? "yes" : "no");
    show();
    if (isWanted) { last = 0; start(); } else { stop(); }
  });
  document.addEventListener("visibilitychange", start);
  // A page that the browser keeps for its way back has no stream.
  addEventListener("pagehide", stop);
  addEventListener("pageshow", (event) => { if (event.persisted) start(); });
  show();
  start();
})();
