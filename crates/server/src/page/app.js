// Refreshes the parts of a page that change, and helps the hand and the keyboard. Without it every page can be read and
// every form works.
"use strict";
(() => {
  const alarm = document.getElementById("alarm");
  const say = (text) => { alarm.textContent = text; alarm.hidden = !text; };
  const search = document.getElementById("search");

  // `/` begins a search, wherever no text is typed. A page without a search leads to one that has it.
  const begin = () => { search.focus(); search.select(); };
  document.addEventListener("keydown", (event) => {
    if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.closest("input:not([type=checkbox]), select, textarea")) return;
    event.preventDefault();
    if (search) { begin(); } else { location.href = "/ui/timers#search"; }
  });
  if (search && location.hash === "#search") begin();

  // A change that is confirmed by typing has no button until the word is there. The service checks it, too.
  const confirm = (root) => {
    for (const input of root.querySelectorAll("input[data-word]")) {
      const button = input.closest("details").querySelector("button");
      const look = () => { button.disabled = input.value.trim() !== input.dataset.word.trim(); };
      input.addEventListener("input", look);
      look();
    }
  };

  // Moments are in UTC, or in the zone of the browser, which remembers the choice. The other one is the title.
  const zone = document.getElementById("zone");
  let isLocal = localStorage.getItem("zone") === "local";
  const local = (at) => {
    const two = (number, length = 2) => String(number).padStart(length, "0");
    const day = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
    return `${day} ${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}.${two(at.getMilliseconds(), 3)}`;
  };
  const zones = (root) => {
    for (const time of root.querySelectorAll("time[datetime]")) {
      const at = new Date(time.dateTime);
      if (Number.isNaN(at.getTime())) continue;
      const utc = time.dateTime.replace("T", " ").replace("Z", "");
      time.textContent = isLocal ? local(at) : utc;
      time.title = isLocal ? `${utc} UTC` : `${local(at)} here`;
    }
    for (const name of root.querySelectorAll("[data-zone]")) name.textContent = isLocal ? "here" : "UTC";
  };
  const named = () => {
    if (!zone) return;
    zone.hidden = false;
    zone.textContent = isLocal ? "Local time" : "UTC";
    zone.setAttribute("aria-pressed", String(isLocal));
  };
  zone?.addEventListener("click", () => {
    isLocal = !isLocal;
    localStorage.setItem("zone", isLocal ? "local" : "utc");
    named();
    zones(document);
  });

  // Keys and ids can be copied. Over plain HTTP browsers have no clipboard for scripts, but a selection that is copied.
  const put = async (text) => {
    if (navigator.clipboard) { await navigator.clipboard.writeText(text); return; }
    const area = document.createElement("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  };
  const copies = (root) => {
    for (const source of root.querySelectorAll("[data-copy]")) {
      const button = document.createElement("button");
      button.type = "button";
      button.className = "copy";
      button.textContent = "Copy";
      // In a list the keyboard goes from timer to timer; each timer's page has the button, too.
      if (source.closest("td.key") && source.tagName === "A") button.tabIndex = -1;
      button.addEventListener("click", async () => {
        try { await put(source.textContent); button.textContent = "Copied"; } catch { button.textContent = "Not copied"; }
        setTimeout(() => { button.textContent = "Copy"; }, 1500);
        button.focus();
      });
      source.after(button);
    }
  };

  // The numbers of a chart's mark are shown at once, wherever the pointer is above or below the mark.
  const tip = document.createElement("div");
  tip.id = "tip";
  tip.setAttribute("role", "tooltip");
  tip.hidden = true;
  document.body.append(tip);
  document.addEventListener("pointermove", (event) => {
    const chart = event.target.closest?.("svg.chart");
    const at = event.clientX;
    const marks = chart ? [...chart.querySelectorAll("rect:has(title)")] : [];
    const under = marks.filter((mark) => {
      const box = mark.getBoundingClientRect();
      return box.left <= at && at < box.right;
    });
    const meant = under.find((mark) => mark === event.target) ?? under.at(-1);
    tip.hidden = !meant;
    if (!meant) return;
    tip.textContent = meant.querySelector("title").textContent;
    const left = Math.min(at + 12, innerWidth - tip.offsetWidth - 8);
    tip.style.left = `${Math.max(left, 8)}px`;
    tip.style.top = `${event.clientY + 18}px`;
  });

  // Boxes of a list: all at once, and how many there are.
  const boxes = () => [...document.querySelectorAll("input[name=timer]")];
  const counted = () => {
    const [all, count] = [document.getElementById("all"), document.getElementById("count")];
    if (!count) return;
    const chosen = boxes().filter((box) => box.checked).length;
    count.textContent = chosen ? `${chosen} chosen` : "Choose timers by the boxes at their keys.";
    if (all) { all.closest("label").hidden = false; all.checked = chosen > 0 && chosen === boxes().length; }
  };
  document.addEventListener("change", (event) => {
    if (event.target.id === "all") for (const box of boxes()) box.checked = event.target.checked;
    if (event.target.matches("input[type=checkbox]")) counted();
  });

  const prepare = (root) => { confirm(root); zones(root); copies(root); counted(); };
  named();
  prepare(document);

  const path = document.body.dataset.stream;
  const button = document.getElementById("live");
  if (!path || !button || !window.EventSource) return;

  const FLOOR = 2000;
  // The stream says something at least each ten seconds. A connection that is silent for longer has ended without a word:
  // the machine slept, or something between the browser and the service has forgotten it, or keeps what it says.
  const SILENCE = 30000;
  let source = null;
  let retry = null;
  let wait = FLOOR;
  let last = 0;
  let later = null;
  let silence = null;
  let underWay = false;
  let isHeld = false;
  let hears = false;
  let isWanted = sessionStorage.getItem("live") !== "no";

  const show = () => {
    const [text, title] = !isWanted ? ["Paused", "This page stays as it is"]
      : isHeld ? ["Held", "A part of this page stays as it is while it is in use: a box, an open form, a selection"]
      : hears ? ["Live", "This page is refreshed as things happen"]
      : ["Not live", "Nothing is heard from the service: this page asks again by itself"];
    if (button.textContent !== text) button.textContent = text;
    button.title = title;
    button.dataset.state = text === "Live" ? "live" : "not";
    button.setAttribute("aria-pressed", String(isWanted));
  };

  // What tells one stop of the keyboard from the others of a part.
  const nameOf = (stop) => [stop.tagName, stop.id, stop.getAttribute("href"), stop.name, stop.value,
    stop.getAttribute("aria-label"), stop.closest("form")?.getAttribute("action")].join("\n");
  const STOPS = "a, button, summary";
  const twin = (part, fresh) => {
    const focused = document.activeElement;
    if (!part.contains(focused)) return null;
    return [...fresh.querySelectorAll(STOPS)].find((stop) => nameOf(stop) === nameOf(focused)) ?? null;
  };

  // A part with an open form, a choice, a selection, or a focus that has no place in the fresh part stays as it is.
  const isInUse = (part, fresh) => part.querySelector("details[open], input:checked")
    || (part.contains(document.activeElement) && document.activeElement !== document.body && !twin(part, fresh))
    || (!getSelection().isCollapsed && getSelection().containsNode(part, true));

  const replace = (part, fresh) => {
    const copy = document.importNode(fresh, true);
    copy.dataset.shown = fresh.innerHTML;
    const focused = twin(part, copy);
    part.replaceWith(copy);
    prepare(copy);
    focused?.focus({ preventScroll: true });
  };

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
      isHeld = false;
      for (const part of document.querySelectorAll("[data-live]")) {
        const fresh = page.getElementById(part.id);
        if (!fresh || fresh.innerHTML === part.dataset.shown) continue;
        if (isInUse(part, fresh)) { isHeld = true; } else { replace(part, fresh); }
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
      show();
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
    hears = false;
    clearTimeout(retry);
    clearTimeout(later);
    clearTimeout(silence);
    later = null;
  };

  // The browser's own repetition ends with the first answer that is no stream: this one does not.
  const again = () => {
    source?.close();
    source = null;
    hears = false;
    show();
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
    show();
    if (!isWanted || document.hidden) return;
    source = new EventSource(path);
    source.addEventListener("tick", () => { wait = FLOOR; hears = true; show(); alive(); refresh(); });
    source.onerror = again;
    alive();
  };

  button.hidden = false;
  button.addEventListener("click", () => {
    isWanted = !isWanted;
    sessionStorage.setItem("live", isWanted ? "yes" : "no");
    if (isWanted) { last = 0; start(); } else { stop(); show(); }
  });
  document.addEventListener("visibilitychange", start);
  // A page that the browser keeps for its way back has no stream.
  addEventListener("pagehide", stop);
  addEventListener("pageshow", (event) => { if (event.persisted) start(); });
  start();
})();
