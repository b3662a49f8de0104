// Contents on a narrow screen, the theme's button, and the search. BOOK: [page, title, anchor, heading, words] a section.
const byId = (id) => document.getElementById(id);
const up = document.body.dataset.up;

byId("menu").addEventListener("click", () => {
  const open = document.body.classList.toggle("open");
  byId("menu").setAttribute("aria-expanded", open);
});
byId("contents").addEventListener("click", (event) => {
  if (event.target.tagName === "A") document.body.classList.remove("open");
});
byId("theme").addEventListener("click", () => {
  const root = document.documentElement.dataset;
  root.theme = root.theme === "dark" ? "light" : "dark";
  try { localStorage.setItem("theme", root.theme); } catch { /* a browser that keeps nothing for files */ }
});

const folded = BOOK.map((row) => [row[3].toLowerCase(), `${row[1]} ${row[3]} ${row[4]}`.toLowerCase()]);

function search(text) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.length || text.trim().length < 2) return [];
  const hits = [];
  folded.forEach(([heading, all], i) => {
    if (!words.every((word) => all.includes(word))) return;
    const named = words.filter((word) => heading.includes(word)).length;
    const often = words.reduce((sum, word) => sum + Math.min(all.split(word).length - 1, 9), 0);
    hits.push([named * 20 + often, i]);
  });
  return hits.sort((a, b) => b[0] - a[0] || a[1] - b[1]).slice(0, 20).map(([, i]) => [i, words]);
}

function around(text, words) {
  const at = Math.max(...words.map((word) => text.toLowerCase().indexOf(word)), 0);
  const start = Math.max(at - 60, 0);
  return (start ? "…" : "") + text.slice(start, at + 90) + "…";
}

function show() {
  const box = byId("found"), text = byId("search").value;
  box.replaceChildren();
  box.hidden = text.trim().length < 2;
  const hits = search(text);
  if (!hits.length) box.textContent = "Nothing found.";
  for (const [i, words] of hits) {
    const [page, title, anchor, heading, all] = BOOK[i];
    const link = document.createElement("a");
    link.href = `${up}${page}#${anchor}`;
    const head = document.createElement("b");
    head.textContent = heading === title ? title : `${title}: ${heading}`;
    const line = document.createElement("span");
    line.textContent = around(all, words);
    link.append(head, line);
    link.addEventListener("click", () => { box.hidden = true; });
    box.append(link);
  }
}
byId("search").addEventListener("input", show);
byId("search").addEventListener("keydown", (event) => {
  if (event.key === "Escape") { event.target.value = ""; show(); }
  if (event.key === "Enter") byId("found").querySelector("a")?.click();
});
document.addEventListener("keydown", (event) => {
  if (event.key === "/" && event.target.tagName !== "INPUT") { event.preventDefault(); byId("search").focus(); }
});
