"use strict";
// Runs before the page is drawn: keeps the first error where a test can read it, and sets colours.
addEventListener("error", (event) => {
  document.documentElement.dataset.error ??= `${event.message} (line ${event.lineno})`;
});
{
  const themes = ["automatic", "light", "dark"];
  const remembered = () => {
    try { return localStorage.getItem("troupe-colours"); } catch { return null; }
  };
  const choose = (theme) => {
    const chosen = themes.includes(theme) ? theme : themes[0];
    document.documentElement.dataset.theme = chosen;
    try { localStorage.setItem("troupe-colours", chosen); } catch { /* A file without storage. */ }
    return chosen;
  };
  const asked = new URLSearchParams(location.search).get("colours");
  choose(asked ?? remembered());
  addEventListener("DOMContentLoaded", () => {
    const button = document.getElementById("theme");
    const name = () => { button.textContent = `Colours: ${document.documentElement.dataset.theme}`; };
    button.addEventListener("click", () => {
      choose(themes[(themes.indexOf(document.documentElement.dataset.theme) + 1) % themes.length]);
      name();
    });
    name();
  });
}
