// Live updates by server-sent events, or by polling without a stream. Hidden pages, and pages behind a dialog, wait.
import { draw } from "./charts.js";
import { inPlace, morph } from "./morph.js";

const TICK_MS = 5000;
const SILENCE_MS = 30000; // the service sends at least a beat every 10 s
const LONGEST_MS = 300000; // the longest pause before the stream is tried again
const $ = (selector, within = document) => within.querySelector(selector);

/** Keep this page up to date. `clock` formats a time, `times` puts times into the viewer's zone. */
export const follow = (clock, times) => {
  const lost = $("#lost");
  let good = new Date();
  const known = (fresh) => {
    if (fresh) good = new Date();
    if (!lost) return;
    $("span", lost).textContent = clock.format(good);
    lost.hidden = fresh;
  };

  let latest = ""; // the last update, with rows that a held list does not show
  const show = (html, all) => {
    const live = $("#live");
    const made = document.createElement("template");
    made.innerHTML = html;
    const next = $("#live", made.content);
    if (!live || !next) return;
    latest = html;
    times(next);
    const focused = document.activeElement.id;
    let news = [0, 0];
    morph(live, next, (old, now) => {
      if (all || !old.dataset || !("held" in old.dataset && "held" in now.dataset)) return false;
      news = inPlace(old, now);
      return true;
    });
    const notice = $("[data-news]", live);
    if (notice) {
      $("span", notice).textContent = `${news[0]} new, ${news[1]} gone`;
      notice.hidden = !(news[0] + news[1]);
    }
    draw();
    if (focused && document.activeElement === document.body) document.getElementById(focused)?.focus({ preventScroll: true });
  };
  document.addEventListener("click", ({ target }) => { if (target.closest("[data-show]")) show(latest, true); });

  // A stream counts as open once something was received: a proxy may hold it back.
  let source, heard, silence, again;
  let tries = 0;
  let waiting = "";
  const behind = () => document.hidden || $("dialog[open]");
  const tick = () => document.body.dispatchEvent(new Event("tick"));
  const close = () => {
    source?.close();
    source = heard = null;
    clearTimeout(silence);
    clearTimeout(again);
  };
  const lose = () => {
    const had = heard;
    close();
    if (had && !behind()) tick(); // checks whether the service answers and the session is valid
    again = setTimeout(open, Math.min(1000 * 2 ** tries, LONGEST_MS) * (0.5 + Math.random()));
    tries += 1;
  };
  const expect = () => {
    clearTimeout(silence);
    silence = setTimeout(lose, SILENCE_MS);
  };
  const hear = () => {
    heard = true;
    tries = 0;
    known(true);
    expect();
  };
  const open = () => {
    const address = $("#live")?.getAttribute("hx-get");
    if (source || document.hidden || !address) return;
    source = new EventSource(address);
    expect();
    source.addEventListener("beat", hear);
    source.addEventListener("page", ({ data }) => {
      hear();
      if (behind()) waiting = data;
      else show(data);
    });
    source.addEventListener("error", lose); // a lost connection, or the service's error event
  };
  document.addEventListener("close", () => {
    if (waiting) show(waiting);
    waiting = "";
  }, true);
  document.addEventListener("visibilitychange", () => {
    close();
    tries = 0;
    open();
  });
  addEventListener("pagehide", close);
  addEventListener("pageshow", open);

  setInterval(() => { if (!heard && !behind()) tick(); }, TICK_MS);
  document.body.addEventListener("htmx:beforeSwap", ({ detail }) => {
    if (detail.target.id !== "live" || !detail.shouldSwap) return;
    detail.shouldSwap = false;
    show(detail.serverResponse);
  });
  document.body.addEventListener("htmx:afterRequest", ({ detail }) => {
    if (detail.xhr?.status === 401) location.reload();
    if (detail.target.id === "live") known(detail.successful);
  });
  open();
};
