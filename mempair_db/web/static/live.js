"use strict";
// The server says that something changed; the page asks for itself again and exchanges the parts marked data-live.
// Without this script a page reloads by itself; without the stream it asks every few seconds.
(() => {
  const FOCUSABLE = "a[href], button, summary, input, select";
  const state = document.getElementById("connection");
  let busy = false, again = false, timer = 0;

  function say(text, tone) {
    if (state && state.textContent !== text) { state.textContent = text; state.className = tone; }
  }

  function exchange(part, fresh) {
    if (part.innerHTML === fresh.innerHTML) return;
    const places = [...part.querySelectorAll(FOCUSABLE)], place = places.indexOf(document.activeElement);
    const open = [...part.querySelectorAll("details")].map(d => d.open);
    part.replaceChildren(...[...fresh.childNodes].map(node => document.importNode(node, true)));
    part.querySelectorAll("details").forEach((d, i) => { d.open = Boolean(open[i]); });
    if (place >= 0) (part.querySelectorAll(FOCUSABLE)[place] || part).focus();
  }

  async function renew() {
    if (busy) { again = true; return; }
    busy = true;
    try {
      const form = document.querySelector("form[data-again]");
      const answer = await fetch(form ? form.action : location.href, {
        ...(form ? { method: "POST", body: new URLSearchParams(new FormData(form)) } : {}),
        headers: { accept: "text/html" }, credentials: "same-origin", cache: "no-store",
      });
      if (!answer.ok || answer.redirected) throw new Error(String(answer.status));
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
      document.querySelectorAll("[data-live]").forEach(part => {
        const other = fresh.getElementById(part.id);
        if (other) exchange(part, other);
      });
      say(timer ? "looking every 5 s" : "live", "good");
    } catch {
      say("not live: trying again", "wait");
    } finally {
      busy = false;
      if (again) { again = false; renew(); }
    }
  }

  function poll(on) {
    if (on && timer) return;  // the browser tries the stream again every two seconds, and says each time that it failed
    clearInterval(timer);
    timer = on ? setInterval(renew, 5000) : 0;
  }

  if (!document.querySelector("[data-live]")) return;
  const stream = new EventSource("/live");
  stream.addEventListener("changed", renew);
  stream.addEventListener("open", () => { poll(false); say("live", "good"); });
  stream.addEventListener("error", () => { if (!timer) say("not live: trying again", "wait"); poll(true); });
  addEventListener("pagehide", () => stream.close());
  addEventListener("pageshow", event => { if (event.persisted) location.reload(); });
})();
