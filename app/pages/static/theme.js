// Runs in the head, so that a page never shows in the wrong theme first.
"use strict";
{
  const kept = localStorage.getItem("holdfast-theme");
  if (kept === "light" || kept === "dark") document.documentElement.dataset.theme = kept;
}
