// Plotly in the colours of the page, loaded on demand.

let loading = null;

/** Load the library from the server. */
export function plotly() {
  loading ??= new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = "static/plotly.min.js";
    script.onload = () => resolve(window.Plotly);
    script.onerror = () => {
      loading = null;
      script.remove();
      reject(new Error("could not load plotly.min.js; install the package plotly on the server"));
    };
    document.head.append(script);
  });
  return loading;
}

/** Return a colour of style.css as numbers: Plotly cannot read light-dark(). */
export function colour(name) {
  const probe = document.body.appendChild(document.createElement("i"));
  probe.style.color = `var(${name})`;
  const value = getComputedStyle(probe).color;
  probe.remove();
  return value;
}

/** Layout of every figure of the page. */
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
