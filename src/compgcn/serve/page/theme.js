// Light, dark or system colours. A plain script in the head: the page never starts in the wrong colours.
"use strict";
(() => {
  const CHOICES = ["system", "light", "dark"];
  const root = document.documentElement;

  function stored() {
    try {
      return CHOICES.includes(localStorage.getItem("theme")) ? localStorage.getItem("theme") : "system";
    } catch {
      return "system"; // the browser may forbid storage
    }
  }

  function apply(choice) {
    if (choice === "system") root.removeAttribute("data-theme");
    else root.setAttribute("data-theme", choice);
    const button = document.getElementById("theme");
    if (button) {
      button.textContent = { system: "◐ Auto", light: "○ Light", dark: "● Dark" }[choice];
      button.setAttribute("aria-label", `Colours: ${choice}. Change.`);
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
        // then the choice lasts as long as the page
      }
      apply(choice);
      dispatchEvent(new Event("theme"));
    });
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => dispatchEvent(new Event("theme")));
})();
