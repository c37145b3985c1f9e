// Charts: the values at the step under the pointer, or chosen with the arrow keys.
for (const figure of document.querySelectorAll("figure.chart")) {
  const json = figure.querySelector("script[type='application/json']");
  if (!json) continue;
  const data = JSON.parse(json.textContent);
  const [first, last] = data.range;
  const value = figure.querySelector(".value");
  const lines = figure.querySelectorAll(".crosshair");
  const number = (y) => (y === null ? "-" : String(Number(y.toPrecision(5))));
  let chosen = -1;
  const show = (i) => {
    chosen = i;
    const x = i < 0 ? 0 : (1000 * (data.x[i] - first)) / (last - first);
    for (const line of lines) {
      line.setAttribute("visibility", i < 0 ? "hidden" : "visible");
      line.setAttribute("x1", x);
      line.setAttribute("x2", x);
    }
    if (i < 0) { value.textContent = ""; return; }
    const shown = data.series.filter(({ y }) => y[i] !== null || data.series.length === 1);
    const values = shown.map(({ name, y }) => (data.series.length > 1 ? `${name} ${number(y[i])}` : number(y[i])));
    value.textContent = `step ${data.x[i]}: ${values.join(", ")}`;
  };
  const showAt = (event) => {
    const edge = event.currentTarget.getBoundingClientRect();
    const step = first + ((event.clientX - edge.left) / edge.width) * (last - first);
    let low = 0, high = data.x.length - 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((data.x[middle] + data.x[middle + 1]) / 2 < step) low = middle + 1; else high = middle;
    }
    show(low);
  };
  for (const svg of figure.querySelectorAll(".plot svg")) {
    svg.addEventListener("pointerdown", showAt);
    svg.addEventListener("pointermove", showAt);
    svg.addEventListener("pointerleave", () => show(-1));
    svg.tabIndex = 0;
    svg.addEventListener("keydown", (event) => {
      const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!by) return;
      show(Math.min(Math.max(chosen + by, 0), data.x.length - 1));
      event.preventDefault();
    });
    svg.addEventListener("blur", () => show(-1));
  }
  value.setAttribute("aria-live", "polite");
}
document.documentElement.dataset.charts = document.querySelectorAll("figure.chart .plot:not(.log) svg[tabindex]").length;
