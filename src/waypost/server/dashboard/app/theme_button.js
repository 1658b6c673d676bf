// Light, dark, or the theme of the system; remembered on this device.

const NEXT = { auto: "light", light: "dark", dark: "auto" };
const WORDS = { auto: "Auto", light: "Light", dark: "Dark" };

export function themeButton(button) {
  const root = document.documentElement;
  function show() {
    const now = root.dataset.theme;
    button.textContent = `◐ ${WORDS[now]}`;
    button.setAttribute("aria-label", `Theme: ${WORDS[now]}. Change to ${WORDS[NEXT[now]]}.`);
  }
  button.addEventListener("click", () => {
    root.dataset.theme = NEXT[root.dataset.theme] ?? "auto";
    try {
      localStorage.setItem("waypost.theme", root.dataset.theme);
    } catch {
      // The choice applies to this visit only.
    }
    show();
  });
  show();
}
