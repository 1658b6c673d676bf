// Sets the theme before anything is drawn. "auto" follows the system.
(() => {
  let chosen = "auto";
  try {
    chosen = localStorage.getItem("waypost.theme") || "auto";
  } catch {
    // Storage may be disabled; then every visit starts with the theme of the system.
  }
  document.documentElement.dataset.theme = chosen;
})();
