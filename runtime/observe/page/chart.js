// Charts: the values at the step under the pointer, or chosen with the arrow keys.
for (const figure of document.querySelectorAll("figure.chart")) {
  const json = figure.querySelector("script[type='application/json']");
  if (!json) continue;
  const data = JSON.parse(json.textContent);
  const svg = figure.querySelector("figcaption ~ svg");
  const line = svg.querySelector(".crosshair");
  const value = figure.querySelector(".value");
  const number = (y) => (y === null ? "-" : String(Number(y.toPrecision(5))));
  let chosen = -1;
  const show = (i) => {
    chosen = i;
    line.setAttribute("visibility", i < 0 ? "hidden" : "visible");
    if (i < 0) { value.textContent = ""; return; }
    line.setAttribute("x1", data.px[i]);
    line.setAttribute("x2", data.px[i]);
    const values = data.series.map(({ name, y }) => (data.series.length > 1 ? `${name} ${number(y[i])}` : number(y[i])));
    value.textContent = `step ${data.x[i]}: ${values.join(", ")} ${data.unit}`;
  };
  svg.addEventListener("pointermove", (event) => {
    const edge = svg.getBoundingClientRect();
    const x = ((event.clientX - edge.left) / edge.width) * svg.viewBox.baseVal.width;
    let low = 0, high = data.px.length - 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((data.px[middle] + data.px[middle + 1]) / 2 < x) low = middle + 1; else high = middle;
    }
    show(low);
  });
  svg.addEventListener("pointerleave", () => show(-1));
  svg.tabIndex = 0;
  value.setAttribute("aria-live", "polite");
  svg.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!by) return;
    show(Math.min(Math.max(chosen + by, 0), data.px.length - 1));
    event.preventDefault();
  });
  svg.addEventListener("blur", () => show(-1));
}
document.documentElement.dataset.charts = document.querySelectorAll("figure.chart svg[tabindex]").length;
