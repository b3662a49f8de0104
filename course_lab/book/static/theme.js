// Before the page is shown: the theme that was chosen here, else the system's.
const chosen = (() => { try { return localStorage.getItem("theme"); } catch { return null; } })();
const dark = chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
document.documentElement.dataset.theme = dark ? "dark" : "light";
