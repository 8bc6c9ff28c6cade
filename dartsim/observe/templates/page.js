"use strict";
// Draws every chart in the colours of the reader's theme, and again when the theme changes.
const darkTheme = window.matchMedia("(prefers-color-scheme: dark)");
const css = name => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();

function themed(layout) {
  const axis = own => ({
    gridcolor: css("grid"), linecolor: css("line"), zeroline: false, automargin: true, ...own,
    title: { standoff: 10, font: { size: 12, color: css("muted") }, ...(own && own.title) },
    tickfont: { size: 12, color: css("muted") },
  });
  return {
    // The tools that show on hover have the uppermost stripe to themselves.
    margin: { l: 8, r: 14, t: layout.title || layout.showlegend !== false ? 52 : 30, b: 34 },
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: getComputedStyle(document.body).fontFamily, size: 13, color: css("ink") },
    hoverlabel: { bgcolor: css("hover"), bordercolor: css("line"), font: { color: css("ink"), size: 13 }, align: "left", namelength: -1 },
    legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", bgcolor: "rgba(0,0,0,0)" },
    modebar: { bgcolor: "rgba(0,0,0,0)", color: css("muted"), activecolor: css("accent") },
    ...layout,
    ...(layout.title && { title: { x: 0.5, font: { size: 14 }, ...layout.title } }),
    xaxis: axis(layout.xaxis), yaxis: axis(layout.yaxis),
  };
}

const plots = JSON.parse(document.getElementById("plots").textContent);
const options = {
  responsive: true, displaylogo: false, displayModeBar: "hover",
  modeBarButtonsToRemove: ["lasso2d", "select2d", "autoScale2d", "zoomIn2d", "zoomOut2d"],
};

function drawPlots() {
  return Promise.all([...document.querySelectorAll("[data-plot]")].map(node => {
    const chart = plots[node.dataset.plot];
    // No tools where there is nothing to zoom, or where they would lie over legend and title.
    const fixed = ["xaxis", "yaxis"].every(axis => (chart.layout[axis] || {}).fixedrange);
    const tools = !fixed && node.clientWidth >= 520;
    return Plotly.react(node, chart.data, themed(chart.layout), { ...options, displayModeBar: tools ? "hover" : false });
  }));
}

// plotly.js is three quarters of a page, and packed a third of that.
async function loadPlotly() {
  const packed = Uint8Array.from(atob(document.getElementById("plotlyjs").textContent), byte => byte.charCodeAt(0));
  const script = document.createElement("script");
  script.textContent = await new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
  document.head.append(script);
}

loadPlotly().then(drawPlots).then(() => {
  document.documentElement.dataset.drawn = "true";
  darkTheme.addEventListener("change", drawPlots);
});
