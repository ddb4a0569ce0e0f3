// Scripts of every page: theme, local times, keyboard shortcuts, the palette, confirmations, live updates.
// Without scripts, a page shows the same but does not update.
import { draw } from "./charts.js";
import { follow } from "./live.js";

const root = document.documentElement;
const $ = (selector, within = document) => within.querySelector(selector);
const $$ = (selector, within = document) => [...within.querySelectorAll(selector)];

// Theme: auto, light, dark.
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

// Times: the viewer's zone in the text, UTC in the title.
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

// Forms that need a confirmation.
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
    // A live update may have replaced the form. If it removed it, another user has made the change.
    const action = form.getAttribute("action");
    const current = form.isConnected ? form : $$("form[data-confirm]").find((one) => one.getAttribute("action") === action);
    if (!current) return;
    current.dataset.confirmed = "1";
    current.requestSubmit();
  }, { once: true });
  dialog.returnValue = "no";
  dialog.showModal();
});

// Copy buttons. The text is selected too, as some browsers give no access to the clipboard.
document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  const text = document.getElementById(button.dataset.copy);
  getSelection().selectAllChildren(text);
  if (!navigator.clipboard) return;
  await navigator.clipboard.writeText(text.textContent);
  button.textContent = "Copied";
});

// Keyboard shortcuts. They are off in text fields and with modifiers.
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

// The time slider shows its time while it moves, and opens the page for it on release.
let going;
document.addEventListener("input", ({ target }) => {
  if (!target.matches("[data-goes]")) return;
  const text = clock.format(new Date(Number(target.value)));
  target.setAttribute("aria-valuetext", text);
  $("output", target.form).textContent = text;
});
document.addEventListener("change", ({ target }) => {
  if (!target.matches("[data-goes]")) return;
  clearTimeout(going);
  going = setTimeout(() => target.form.requestSubmit(), 300);
});

// A secret is shown once: replace the address, so that a reload does not send the form again.
const once = $("[data-once]");
if (once) history.replaceState(null, "", once.dataset.once);

localTimes();
draw();
follow(clock, localTimes);
root.dataset.ready = "1";
