// Light or dark, before anything is drawn. "auto" follows the system.
(() => {
  let chosen = "auto";
  try {
    chosen = localStorage.getItem("waypost.theme") || "auto";
  } catch {
    // Storage may be switched off; then every visit begins with the system's choice.
  }
  document.documentElement.dataset.theme = chosen;
})();
