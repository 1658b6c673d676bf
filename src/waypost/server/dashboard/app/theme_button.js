// Light, dark, or as the system says; remembered on this device.

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
      // It holds for this visit.
    }
    show();
  });
  show();
}
