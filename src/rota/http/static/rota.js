// The dashboard's only script. Pages work without it; it keeps them live.
//
// A hint arrives (server-sent events), the page fetches itself again, and the new HTML is laid over
// the old one. Elements keep their identity, so focus, typed text and open details survive.

const FRAGMENT = { "x-rota-fragment": "1" };
const QUIET_MS = 250; // At most one fetch in this time, however many hints arrive.
const RETRY_MS = 2000;
const POLL_MS = 3000; // Where the server has no stream.
const TICK_MS = 30000; // "11 min ago" must not stay so when nothing else happens.
const TOPICS = "run,schedule,automation,pipeline,worker";
const EVENTS = document.documentElement.dataset.events;

// -- morph: lay new HTML over old elements ------------------------------------------------------

const keyOf = (node) => (node.nodeType === 1 ? node.id || node.dataset.key || "" : "");

function sameKind(one, other) {
  return one.nodeType === other.nodeType && one.nodeName === other.nodeName && keyOf(one) === keyOf(other);
}

function morphAttributes(old, fresh) {
  for (const { name } of [...old.attributes]) {
    // The reader opened it, so it stays open.
    if (!fresh.hasAttribute(name) && name !== "open") old.removeAttribute(name);
  }
  for (const { name, value } of fresh.attributes) {
    if (name === "hidden" && old.matches("[data-copy]")) continue; // The script has shown it.
    if (old.getAttribute(name) !== value && name !== "open") old.setAttribute(name, value);
  }
}

function isTyped(field) {
  if (field === document.activeElement) return true;
  if (field.type === "checkbox" || field.type === "radio") return field.checked !== field.defaultChecked;
  if (field.tagName === "SELECT") return [...field.options].some((one) => one.selected !== one.defaultSelected);
  return field.value !== field.defaultValue;
}

function morph(old, fresh) {
  if (old.nodeType !== 1) {
    if (old.nodeValue !== fresh.nodeValue) old.nodeValue = fresh.nodeValue;
    return;
  }
  if (old.isEqualNode(fresh)) return;
  if (old.matches("input, textarea, select") && isTyped(old)) return;
  morphAttributes(old, fresh);
  morphChildren(old, fresh);
}

function morphChildren(old, fresh) {
  const keyed = new Map([...old.children].filter(keyOf).map((child) => [keyOf(child), child]));
  const kept = new Set([...fresh.children].map(keyOf));
  let place = old.firstChild;
  for (const wanted of [...fresh.childNodes]) {
    // Remove rows that are gone first: otherwise elements without a key behind them are made again.
    while (place && keyOf(place) && !kept.has(keyOf(place))) {
      const next = place.nextSibling;
      place.remove();
      place = next;
    }
    const known = keyOf(wanted) && keyed.get(keyOf(wanted));
    if (known && sameKind(known, wanted)) {
      if (known === place) place = place.nextSibling;
      else old.insertBefore(known, place);
      morph(known, wanted);
    } else if (place && !keyOf(place) && !keyOf(wanted) && sameKind(place, wanted)) {
      const next = place.nextSibling;
      morph(place, wanted);
      place = next;
    } else {
      old.insertBefore(document.importNode(wanted, true), place);
    }
  }
  while (place) {
    const next = place.nextSibling;
    place.remove();
    place = next;
  }
}

// -- new rows wait behind a button, so that the list does not move under a reader ----------------

function holdNewRows(fresh) {
  for (const list of document.querySelectorAll("[data-hold]")) {
    const other = fresh.querySelector(`#${CSS.escape(list.id)}`);
    if (!other || !list.children.length) continue;
    const shown = new Set([...list.children].map(keyOf));
    const newer = [...other.children].filter((row) => !shown.has(keyOf(row)));
    newer.forEach((row) => row.remove());
    const kept = new Set([...other.children].map(keyOf));
    for (const row of list.children) if (!kept.has(keyOf(row))) other.append(row.cloneNode(true));
    const button = fresh.querySelector(`[data-newer="${CSS.escape(list.id)}"]`);
    if (button && newer.length) {
      button.hidden = false;
      button.textContent = `${newer.length} newer, show`;
    }
  }
}

// -- fetching -----------------------------------------------------------------------------------

function show(html, { hold = false } = {}) {
  const fresh = new DOMParser().parseFromString(html, "text/html");
  if (hold) holdNewRows(fresh);
  for (const id of ["nav", "main"]) {
    const old = document.getElementById(id);
    const next = fresh.getElementById(id);
    if (old && next) morph(old, next);
  }
}

let timer = 0;
let busy = false;
let again = false;

async function refresh(hold = true) {
  if (busy) {
    again = true;
    return;
  }
  busy = true;
  try {
    const answer = await fetch(location.href, { headers: FRAGMENT });
    if (answer.redirected) location.reload();
    else if (answer.ok) show(await answer.text(), { hold });
    away(answer.status === 503);
    if (answer.status === 503) setTimeout(refresh, RETRY_MS); // The database is unavailable.
    if (!EVENTS) say(answer.ok);
  } catch {
    say(false);
  } finally {
    busy = false;
    if (again) {
      again = false;
      soon();
    }
  }
}

// The database does not answer: the page keeps its content and typed text, and disables its buttons.
let seenAt = new Date();

function away(is) {
  const main = document.getElementById("main");
  const known = document.getElementById("away");
  if (!is) seenAt = new Date();
  if (!main || main.dataset.retry || is === Boolean(known)) return;
  for (const one of main.querySelectorAll("button:not([data-copy])")) one.disabled = is;
  known?.remove();
  if (!is) return;
  const banner = document.createElement("div");
  banner.className = "banner bad";
  banner.id = "away";
  banner.setAttribute("role", "alert");
  const said = document.createElement("p");
  const strong = document.createElement("strong");
  strong.textContent = "The database does not answer.";
  const clock = seenAt.toLocaleTimeString("en-GB");
  said.append(strong, ` What you see is from ${clock}; buttons are off until it is back.`);
  banner.append(said);
  main.prepend(banner);
}

function soon() {
  if (paused) return;
  if (!timer) timer = setTimeout(() => { timer = 0; refresh(); }, QUIET_MS);
}

// -- the stream: one tab holds it and passes hints to the others ----------------------------------

const live = document.querySelector(".live");
let paused = false;
let connected = true;

function say(on) {
  if (!live) return;
  connected = on;
  live.classList.toggle("off", !on || paused);
  const text = paused ? "Paused" : on ? "Live" : "Reconnecting";
  if (live.textContent !== text) live.textContent = text;
}

function listen(notify, opened = false) {
  let stream = new EventSource(`${EVENTS}?topics=${TOPICS}`);
  let timer = 0;
  stream.onopen = () => {
    notify({ on: true });
    if (opened) notify({ topic: "reset" }); // Hints may be lost while the stream was down.
    opened = true;
  };
  stream.onerror = () => {
    notify({ on: false });
    // A refusal (too many streams, a restart behind a proxy) ends an EventSource for good.
    if (stream.readyState === EventSource.CLOSED) timer = setTimeout(() => { stream = listen(notify, true); }, RETRY_MS);
  };
  for (const topic of [...TOPICS.split(","), "reset"]) {
    stream.addEventListener(topic, () => notify({ topic }));
  }
  return { close: () => { clearTimeout(timer); stream.close(); } };
}

function receive(hint) {
  if (hint.on !== undefined) say(hint.on);
  const main = document.getElementById("main");
  const topics = (main?.dataset.live ?? "").split(" ");
  if (hint.topic === "reset" || topics.includes(hint.topic)) soon();
}

const holder = document.querySelector("[data-hold-live]");

// A reader may stop the page from changing.
function holdLive() {
  paused = !paused;
  holder.textContent = paused ? "Resume updates" : "Pause updates";
  say(connected);
  soon();
}

function follow() {
  if (!live) return;
  if (holder) {
    holder.hidden = false;
    holder.addEventListener("click", holdLive);
  }
  setInterval(() => {
    if (!document.hidden && document.getElementById("main")?.dataset.live) soon();
  }, TICK_MS);
  if (!EVENTS || !window.EventSource) {
    setInterval(() => { if (!paused && !document.hidden && document.getElementById("main")?.dataset.live) refresh(); }, POLL_MS);
    return;
  }
  if (navigator.locks && window.BroadcastChannel) {
    const channel = new BroadcastChannel("rota");
    channel.onmessage = (event) => receive(event.data);
    const notify = (hint) => {
      receive(hint);
      channel.postMessage(hint);
    };
    navigator.locks.request("rota-stream", () => {
      const stream = listen(notify);
      return new Promise((done) => addEventListener("pagehide", () => { stream.close(); done(); }, { once: true }));
    });
    return;
  }
  let stream = null; // No locks on plain http over a network: a hidden tab gives its stream up.
  const openWhenVisible = () => {
    if (document.hidden) {
      stream?.close();
      stream = null;
    } else if (!stream) {
      stream = listen(receive);
      soon();
    }
  };
  document.addEventListener("visibilitychange", openWhenVisible);
  openWhenVisible();
}

// -- forms ----------------------------------------------------------------------------------------

async function send(form, submitter) {
  // The fields are read before the button is disabled: a disabled button is not sent.
  const body = new URLSearchParams(new FormData(form, submitter));
  const action = submitter?.getAttribute("formaction") || form.getAttribute("action") || location.href;
  if (submitter) submitter.disabled = true;
  try {
    const answer = await fetch(action, { method: "POST", headers: FRAGMENT, body });
    if (answer.redirected) history.replaceState(null, "", answer.url);
    if (answer.ok) {
      form.closest("details.fold")?.removeAttribute("open");
      form.reset();
    } // A refused form keeps what was typed.
    if (answer.status === 503) away(true);
    else show(await answer.text());
    document.getElementById("said")?.focus();
    if (answer.status === 503) setTimeout(refresh, RETRY_MS);
  } catch {
    say(false);
  } finally {
    if (submitter && !document.getElementById("away")) submitter.disabled = false;
  }
}

document.addEventListener("submit", (event) => {
  const form = event.target;
  if (!form.matches("form[data-inline]") || event.submitter?.hasAttribute("data-plain")) return;
  event.preventDefault();
  send(form, event.submitter);
});

let previewTimer = 0;
document.addEventListener("input", (event) => {
  const form = event.target.closest("form[data-preview]");
  if (!form) return;
  clearTimeout(previewTimer);
  previewTimer = setTimeout(async () => {
    const body = new URLSearchParams(new FormData(form));
    const answer = await fetch(form.dataset.preview, { method: "POST", headers: FRAGMENT, body });
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    const old = document.getElementById("preview");
    const next = fresh.getElementById("preview");
    if (old && next) morph(old, next);
  }, QUIET_MS);
});

document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-newer], [data-copy], [data-close], [data-keys]");
  if (button?.dataset.newer) refresh(false);
  if (button?.dataset.copy) {
    navigator.clipboard?.writeText(button.dataset.copy).then(() => { button.textContent = "Copied"; });
  }
  if (button?.hasAttribute("data-close")) button.closest("dialog").close();
  if (button?.hasAttribute("data-keys")) document.getElementById("keys")?.showModal();
  for (const fold of document.querySelectorAll("details.fold[open]")) {
    if (!fold.contains(event.target)) fold.removeAttribute("open");
  }
});

// -- keys: they navigate, they never answer -----------------------------------------------------------

const PLACES = { o: "/", r: "/runs", s: "/schedules", a: "/automations", p: "/pipelines", w: "/workers" };
let going = false;

function row(step) {
  const rows = [...document.querySelectorAll(".tbl tbody a, .inbox .t a")].filter((one) => one.offsetParent);
  const at = rows.indexOf(document.activeElement);
  rows[Math.max(0, Math.min(rows.length - 1, at + step))]?.focus();
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.matches("input, textarea, select")) return;
  if (event.key === "Escape") for (const one of document.querySelectorAll("details.fold[open]")) one.removeAttribute("open");
  if (going) {
    going = false;
    if (PLACES[event.key]) location.href = PLACES[event.key];
    return;
  }
  if (event.key === "/") {
    event.preventDefault();
    document.querySelector("#f-q, #q")?.focus();
  } else if (event.key === "g") going = true;
  else if (event.key === "j") row(1);
  else if (event.key === "k") row(-1);
  else if (event.key === "?") document.getElementById("keys")?.showModal();
});

// -- the time zone of the reader ------------------------------------------------------------------

const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
if (zone && document.documentElement.dataset.zone !== zone && !document.cookie.includes("rota_zone=")) {
  document.cookie = `rota_zone=${encodeURIComponent(zone)}; Path=/; Max-Age=31536000; SameSite=Lax`;
  if (live) refresh(false);
}

for (const one of document.querySelectorAll("[data-keys], [data-copy]")) one.hidden = false; // They need this script.

const tab = document.querySelector(".tabs [aria-current]"); // On a phone the tabs scroll sideways.
if (tab) tab.parentElement.scrollLeft = tab.offsetLeft - tab.parentElement.offsetLeft - 48;

if (document.getElementById("main")?.dataset.retry) setTimeout(refresh, RETRY_MS);
follow();
