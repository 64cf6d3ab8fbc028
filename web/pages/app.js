// The server draws the page. This script only asks for it again when something
// happened, changes what differs, and counts the seconds. Without it the page works,
// and stands still.
"use strict";

const main = document.getElementById("main");
const live = document.getElementById("live");
let ahead = 0; // how far the server's clock is ahead of this one

const serverNow = () => Date.now() + ahead;

// The same words as format.go.
function coarse(ms) {
  const s = Math.ceil(ms / 1000);
  if (s < 120) return `${s} s`;
  if (s < 7200) return `${Math.floor(s / 60)} min`;
  if (s < 172800) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86400)} days`;
}

function relative(ms) {
  if (ms > 0) return `in ${coarse(ms)}`;
  return ms > -1000 ? "now" : `${coarse(-ms)} ago`;
}

function tick() {
  for (const el of main.querySelectorAll("time[data-relative], time[data-elapsed]")) {
    const ms = Date.parse(el.dateTime) - serverNow();
    const text = "elapsed" in el.dataset ? coarse(Math.max(1, -ms)) : relative(ms);
    if (el.textContent !== text) el.textContent = text;
  }
}

// morph makes one element like another and leaves alone what is alike already, so
// that focus, selection and scrolling stay where they are.
function morph(from, to) {
  if (from.isEqualNode(to)) return;
  if (from.nodeType !== to.nodeType || from.nodeName !== to.nodeName) {
    from.replaceWith(to);
    return;
  }
  if (from.nodeType !== Node.ELEMENT_NODE) {
    from.nodeValue = to.nodeValue;
    return;
  }
  for (const { name } of [...from.attributes]) if (!to.hasAttribute(name)) from.removeAttribute(name);
  for (const { name, value } of to.attributes) if (from.getAttribute(name) !== value) from.setAttribute(name, value);

  const named = new Map([...from.children].filter((el) => el.id).map((el) => [el.id, el]));
  let here = from.firstChild;
  for (const next of [...to.childNodes]) {
    const twin = next.id ? named.get(next.id) : here && !here.id ? here : null;
    if (!twin) {
      if (next.nodeName === "TR") next.classList.add("fresh");
      from.insertBefore(next, here);
      continue;
    }
    if (twin !== here) from.insertBefore(twin, here);
    const after = twin.nextSibling;
    morph(twin, next);
    here = after;
  }
  while (here) {
    const after = here.nextSibling;
    here.remove();
    here = after;
  }
}

let wanted = false;
let busy = false;

// refresh asks at once, and then not more than once a second, however much happens.
async function refresh() {
  wanted = true;
  if (busy) return;
  busy = true;
  while (wanted) {
    wanted = false;
    await redraw();
    await new Promise((done) => setTimeout(done, 1000));
  }
  busy = false;
}

async function redraw() {
  try {
    const res = await fetch(location.href, { headers: { Accept: "text/html" } });
    if (res.status === 401) return location.reload(); // to sign in
    if (!res.ok) return;
    const page = new DOMParser().parseFromString(await res.text(), "text/html");
    const fresh = page.getElementById("main");
    ahead = Number(fresh.dataset.now) - Date.now();
    morph(main, document.adoptNode(fresh));
    tick();
  } catch {
    say("reconnecting"); // the stream says when it is back
  }
}

function say(state) {
  live.textContent = state;
  live.className = `live ${state}`;
}

let stream = null;

// A browser allows six connections to a host, so tabs that nobody sees give theirs back.
function follow() {
  if (document.hidden) {
    stream?.close();
    stream = null;
    return;
  }
  if (stream || !document.body.dataset.stream) return;
  stream = new EventSource(document.body.dataset.stream);
  stream.onopen = () => (say("live"), refresh());
  stream.onmessage = refresh;
  stream.onerror = () => {
    say("reconnecting");
    if (stream?.readyState !== EventSource.CLOSED) return;
    stream = null; // it was refused, and the browser gave up
    refresh();
    setTimeout(follow, 5000);
  };
}

if (live) {
  ahead = Number(main.dataset.now) - Date.now();
  tick();
  setInterval(tick, 1000);
  setInterval(() => document.hidden || refresh(), 10000); // masters and replicas make no events
  document.addEventListener("visibilitychange", follow);
  document.addEventListener("submit", (e) => {
    const question = e.target.dataset.confirm;
    if (question && !confirm(question)) e.preventDefault();
  });
  follow();
}
