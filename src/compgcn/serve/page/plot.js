// Plotly, loaded only when a view draws with it, in the colours of the page.

let loading = null;

/** The library, from the server's own copy. */
export function plotly() {
  loading ??= new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = "static/plotly.min.js";
    script.onload = () => resolve(window.Plotly);
    script.onerror = () => {
      loading = null;
      script.remove();
      reject(new Error("plotly.min.js could not be loaded; the server needs the package plotly"));
    };
    document.head.append(script);
  });
  return loading;
}

/** A colour of style.css as numbers, such as `colour("--accent")`: Plotly cannot read light-dark(). */
export function colour(name) {
  const probe = document.body.appendChild(document.createElement("i"));
  probe.style.color = `var(${name})`;
  const value = getComputedStyle(probe).color;
  probe.remove();
  return value;
}

/** What every figure of the page shares. */
export function layout(changes) {
  return {
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: "system-ui, sans-serif", size: 13, color: colour("--text") },
    margin: { l: 48, r: 12, t: 12, b: 44 },
    hoverlabel: { bgcolor: colour("--surface"), bordercolor: colour("--line"), font: { color: colour("--text") } },
    ...changes,
  };
}

export const axis = (changes) => ({
  gridcolor: colour("--line"),
  linecolor: colour("--line"),
  zeroline: false,
  ...changes,
});

export const CONFIG = {
  responsive: true,
  displaylogo: false,
  modeBarButtonsToRemove: ["toImage", "select2d", "lasso2d", "autoScale2d"],
};
