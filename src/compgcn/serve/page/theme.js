// Light, dark or as the system has it. A plain script in the head, so that no page is drawn in the wrong colours first.
"use strict";
(() => {
  const CHOICES = ["system", "light", "dark"];
  const root = document.documentElement;

  function stored() {
    try {
      return CHOICES.includes(localStorage.getItem("theme")) ? localStorage.getItem("theme") : "system";
    } catch {
      return "system"; // storage may be forbidden
    }
  }

  function apply(choice) {
    if (choice === "system") root.removeAttribute("data-theme");
    else root.setAttribute("data-theme", choice);
    const button = document.getElementById("theme");
    if (button) {
      button.textContent = { system: "◐ Auto", light: "○ Light", dark: "● Dark" }[choice];
      button.setAttribute("aria-label", `Colours: ${choice === "system" ? "as the system" : choice}. Change.`);
    }
  }

  let choice = stored();
  apply(choice);
  document.addEventListener("DOMContentLoaded", () => {
    apply(choice);
    document.getElementById("theme").addEventListener("click", () => {
      choice = CHOICES[(CHOICES.indexOf(choice) + 1) % CHOICES.length];
      try {
        localStorage.setItem("theme", choice);
      } catch {
        // it then lasts as long as the page
      }
      apply(choice);
      dispatchEvent(new Event("theme"));
    });
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => dispatchEvent(new Event("theme")));
})();
