// In the head and at once, so that no page is seen in the other theme first.
"use strict";
{
  const kept = localStorage.getItem("holdfast-theme");
  if (kept === "light" || kept === "dark") document.documentElement.dataset.theme = kept;
}
