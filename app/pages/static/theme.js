// Runs in the head, so that a page never shows in the wrong theme first.
"use strict";
{
  const stored = localStorage.getItem("holdfast-theme");
  if (stored === "light" || stored === "dark") document.documentElement.dataset.theme = stored;
}
