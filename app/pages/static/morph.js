// One tree becomes as another is by few changes: what stays keeps its focus, selection, scrolling, and what was opened.
// Idiomorph (0.8) takes as long, and unticks boxes and clears fields that have no value attribute (its issue 27).
// Rows and forms are known by their ids and addresses, the rest by kind and order.
const key = (node) => node.id || (node.nodeName === "FORM" && node.getAttribute("action"))
  || (/^(TR|LI)$/.test(node.nodeName) && node.querySelector("[id]")?.id) || "";

// Which of the old ones go on as which of the new ones: the most pairs in both orders.
const pairs = (old, next) => {
  const [a, b] = [old, next].map((nodes) => nodes.map((node) => `${node.nodeName} ${key(node)}`));
  const most = Array.from({ length: a.length + 1 }, () => new Uint16Array(b.length + 1));
  for (let i = a.length; i--;) {
    for (let j = b.length; j--;) most[i][j] = a[i] === b[j] ? most[i + 1][j + 1] + 1 : Math.max(most[i + 1][j], most[i][j + 1]);
  }
  const found = new Map();
  for (let i = 0, j = 0; i < a.length && j < b.length;) {
    if (a[i] === b[j]) found.set(next[j++], old[i++]);
    else if (most[i + 1][j] >= most[i][j + 1]) i += 1;
    else j += 1;
  }
  return found;
};

/** `old` becomes as `next`, which is used up; not what `still` says true of. */
export const morph = (old, next, still) => {
  if (old.isEqualNode(next) || still?.(old, next)) return;
  if (old.nodeType !== 1) {
    old.data = next.data;
    return;
  }
  for (const name of new Set([...old.getAttributeNames(), ...next.getAttributeNames()])) {
    const value = next.getAttribute(name);
    if (name === "open" || old.getAttribute(name) === value) continue; // who opened it closes it
    if (value === null) old.removeAttribute(name);
    else old.setAttribute(name, value);
  }
  if (old.dataset.chart) return; // what is drawn in it is its script's
  const [before, after] = [[...old.childNodes], [...next.childNodes]];
  const found = pairs(before, after);
  const stay = new Set(found.values());
  for (const node of before) if (!stay.has(node)) node.remove();
  let at = old.firstChild;
  for (const node of after) {
    const same = found.get(node);
    if (same) {
      at = same.nextSibling;
      morph(same, node, still);
    } else old.insertBefore(node, at);
  }
};

/** The rows of a list that holds still become as those of `next`: how many there are beside, and how many are gone. */
export const inPlace = (old, next) => {
  const [rows, now] = [old, next].map((list) => [...list.querySelectorAll("tbody > tr")]);
  const by = new Map(now.map((row) => [key(row), row]));
  for (const row of rows) {
    const same = by.get(key(row));
    if (same && same.cells.length === row.cells.length) morph(row, same);
    row.toggleAttribute("data-gone", !same);
  }
  const gone = rows.filter((row) => !by.delete(key(row))).length;
  return [by.size, gone];
};
