// Change a tree into another by few changes. Elements that stay keep focus, selection, scrolling and open details.
// Idiomorph (0.8) is no faster, and it unticks boxes and clears fields without a value attribute (its issue 27).
// Rows and forms match by id and address, other nodes by kind and order.
const key = (node) => node.id || (node.nodeName === "FORM" && node.getAttribute("action"))
  || (/^(TR|LI)$/.test(node.nodeName) && node.querySelector("[id]")?.id) || "";

// Pairs of old and new nodes: the longest common subsequence.
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

/** Change `old` into `next`, and use up `next`. Nodes for which `still` returns true are left alone. */
export const morph = (old, next, still) => {
  if (old.isEqualNode(next) || still?.(old, next)) return;
  if (old.nodeType !== 1) {
    old.data = next.data;
    return;
  }
  for (const name of new Set([...old.getAttributeNames(), ...next.getAttributeNames()])) {
    const value = next.getAttribute(name);
    if (name === "open" || old.getAttribute(name) === value) continue; // the user opens and closes details
    if (value === null) old.removeAttribute(name);
    else old.setAttribute(name, value);
  }
  if (old.dataset.chart) return; // charts.js draws its content
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

/** Update the rows of a held list from `next`. Returns the number of new rows, which are not added, and of gone ones. */
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
