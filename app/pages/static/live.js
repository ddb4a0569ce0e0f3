// What is live comes by a stream of events; without one, by a tick. A page that nobody sees is left alone, and one behind
// a dialog.
import { draw } from "./charts.js";
import { inPlace, morph } from "./morph.js";

const TICK_MS = 5000;
const SILENCE_MS = 30000; // the service says something every 10 s
const LONGEST_MS = 300000; // until it is tried again
const $ = (selector, within = document) => within.querySelector(selector);

/** Follow what is live on this page. `clock` says a time, `times` puts times into the viewer's zone. */
export const follow = (clock, times) => {
  const lost = $("#lost");
  let good = new Date();
  const known = (fresh) => {
    if (fresh) good = new Date();
    if (!lost) return;
    $("span", lost).textContent = clock.format(good);
    lost.hidden = fresh;
  };

  let latest = ""; // also what a list that holds still does not show
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
    const told = $("[data-news]", live);
    if (told) {
      $("span", told).textContent = `${news[0]} more, ${news[1]} gone`;
      told.hidden = !(news[0] + news[1]);
    }
    draw();
    if (focused && document.activeElement === document.body) document.getElementById(focused)?.focus({ preventScroll: true });
  };
  document.addEventListener("click", ({ target }) => { if (target.closest("[data-show]")) show(latest, true); });

  // One that was not heard of yet counts for nothing: a proxy may hold it back.
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
    if (had && !behind()) tick(); // which tells whether the service is there, and the session good
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
    source.addEventListener("error", lose); // the connection's, and the service's last word
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
