// What every page does by script: the theme, times in the viewer's zone, keys, the palette, confirmations, and what is
// live. A page without scripts shows the same and does not move.
import { draw } from "./charts.js";
import { follow } from "./live.js";

const root = document.documentElement;
const $ = (selector, within = document) => within.querySelector(selector);
const $$ = (selector, within = document) => [...within.querySelectorAll(selector)];

// Theme: auto, light, dark, and round again.
const themes = ["auto", "light", "dark"];
const theme = () => root.dataset.theme ?? "auto";
for (const button of $$("[data-theme-switch]")) {
  const say = () => { $("span", button).textContent = theme(); };
  button.addEventListener("click", () => {
    const next = themes[(themes.indexOf(theme()) + 1) % themes.length];
    if (next === "auto") {
      delete root.dataset.theme;
      localStorage.removeItem("holdfast-theme");
    } else {
      root.dataset.theme = next;
      localStorage.setItem("holdfast-theme", next);
    }
    say();
    draw(true);
  });
  say();
}

// Times: the viewer's zone in the text, the server's in the title.
const clock = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
const localTimes = (within) => {
  for (const time of $$("time[datetime]", within)) time.textContent = clock.format(new Date(time.dateTime));
};

if (navigator.platform.startsWith("Mac")) for (const key of $$("[data-meta]")) key.textContent = "⌘K";

// Dialogs.
const palette = $("#palette");
const keys = $("#keys");
const openPalette = () => {
  if (!palette || palette.open) return;
  const field = $("input", palette);
  field.value = "";
  palette.showModal();
  window.htmx.trigger(field, "look");
};
for (const button of $$("[data-open=palette]")) button.addEventListener("click", openPalette);
for (const dialog of $$("dialog")) {
  dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
}
palette?.addEventListener("keydown", (event) => {
  const found = $$("#found a");
  const at = found.indexOf(document.activeElement);
  if (event.key === "ArrowDown") found[Math.min(at + 1, found.length - 1)]?.focus();
  else if (event.key === "ArrowUp") (at > 0 ? found[at - 1] : $("input", palette)).focus();
  else if (event.key === "Enter" && at < 0) found[0]?.click();
  else return;
  event.preventDefault();
});

// A change that wants to be confirmed.
document.addEventListener("submit", (event) => {
  const form = event.target;
  if (!form.dataset.confirm || form.dataset.confirmed) return;
  event.preventDefault();
  const dialog = $("#confirm");
  $("h2", dialog).textContent = form.dataset.confirm;
  $("p", dialog).textContent = form.dataset.detail;
  $("[value=yes]", dialog).textContent = form.dataset.word;
  dialog.addEventListener("close", () => {
    if (dialog.returnValue !== "yes") return;
    // What is live may have come anew meanwhile, with a form of its own; without one, somebody else has done it.
    const action = form.getAttribute("action");
    const current = form.isConnected ? form : $$("form[data-confirm]").find((one) => one.getAttribute("action") === action);
    if (!current) return;
    current.dataset.confirmed = "1";
    current.requestSubmit();
  }, { once: true });
  dialog.returnValue = "no";
  dialog.showModal();
});

// What is to be copied is selected, too: some browsers let a page do no more.
document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  const text = document.getElementById(button.dataset.copy);
  getSelection().selectAllChildren(text);
  if (!navigator.clipboard) return;
  await navigator.clipboard.writeText(text.textContent);
  button.textContent = "Copied";
});

// Keys. None while somebody types, or holds a modifier.
const rows = () => $$("[data-row]");
const move = (by) => {
  const all = rows();
  const at = all.indexOf(document.activeElement);
  const next = all[Math.min(Math.max(at < 0 ? (by > 0 ? 0 : all.length - 1) : at + by, 0), all.length - 1)];
  next?.focus();
  next?.scrollIntoView({ block: "nearest" });
};
let went = 0; // when g was pressed
document.addEventListener("keydown", (event) => {
  if ((event.metaKey || event.ctrlKey) && event.key.toLowerCase() === "k") {
    event.preventDefault();
    openPalette();
    return;
  }
  const typing = event.target.closest("input, textarea, select, dialog");
  if (typing || event.metaKey || event.ctrlKey || event.altKey) return;
  const after = performance.now() - went < 1500;
  went = 0;
  const there = after && /^[a-z]$/.test(event.key) && $(`[data-go=${event.key}]`);
  if (there) there.click();
  else if (event.key === "g") went = performance.now();
  else if (event.key === "j") move(1);
  else if (event.key === "k") move(-1);
  else if (event.key === "?") keys?.showModal();
  else if (event.key === "/" && $("[data-filter]")) $("[data-filter]").focus();
  else return;
  event.preventDefault();
});

// A slider over time says where it is while it moves, and goes there once it was let go.
let going;
document.addEventListener("input", ({ target }) => {
  if (!target.matches("[data-goes]")) return;
  const told = clock.format(new Date(Number(target.value)));
  target.setAttribute("aria-valuetext", told);
  $("output", target.form).textContent = told;
});
document.addEventListener("change", ({ target }) => {
  if (!target.matches("[data-goes]")) return;
  clearTimeout(going);
  going = setTimeout(() => target.form.requestSubmit(), 300);
});

// What is shown once is not asked for again by loading the page anew.
const once = $("[data-once]");
if (once) history.replaceState(null, "", once.dataset.once);

localTimes();
draw();
follow(clock, localTimes);
root.dataset.ready = "1";
