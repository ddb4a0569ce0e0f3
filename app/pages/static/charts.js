// Charts by uPlot from data-chart: {"x": [s since 1970], "unit": "…", "lines": [{"name", "tone", "y"}]}.
const drawn = new Map();

const short = (value) => {
  if (value === null || value === undefined) return "–";
  for (const [unit, size] of [["G", 1e9], ["M", 1e6], ["k", 1e3]]) if (value >= size) return `${+(value / size).toFixed(1)}${unit}`;
  return `${+value.toFixed(1)}`;
};
const time = (ms) => {
  if (ms === null || ms === undefined) return "–";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 120000) return `${+(ms / 1000).toFixed(1)} s`;
  return ms < 7200000 ? `${+(ms / 60000).toFixed(1)} min` : `${+(ms / 3600000).toFixed(1)} h`;
};
const whole = [1, 10, 100, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8].flatMap((n) => [n, 2 * n, 5 * n]);
const spans = [...whole.slice(0, 14), ...[1, 2, 5, 10, 30, 60, 120, 300, 1440, 7200].map((n) => n * 6e4)];
const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });

// A value between two unknown ones has no line: it is drawn as a dot.
const alone = (u, n) => u.data[n].flatMap((y, i, all) => (y === null || (all[i - 1] ?? all[i + 1] ?? null) !== null ? [] : i));

const make = (place) => {
  const chart = JSON.parse(place.dataset.chart);
  const colour = (name) => {
    place.style.color = `var(--${name})`;
    return getComputedStyle(place).color;
  };
  const say = chart.unit === "ms" ? time : short;
  const axis = { stroke: colour("quiet"), grid: { stroke: colour("line"), width: 1 }, ticks: { show: false }, font: "12px system-ui" };
  const size = () => ({ width: Math.max(place.clientWidth, 120), height: 176 });
  const plot = new window.uPlot({
    ...size(),
    cursor: { y: false, points: { size: 6 } },
    legend: { live: true, markers: { fill: (u, n) => u.series[n].stroke(), width: 0 } },
    scales: { y: { range: (_, low, high) => [0, Math.max(high * 1.1, 1)] } },
    axes: [
      { ...axis, size: 30, space: 72, values: (_, at) => at.map((s) => clock.format(new Date(s * 1000))) },
      { ...axis, size: 56, incrs: say === time ? spans : whole, values: (_, at) => at.map(say) },
    ],
    series: [
      { label: "at", value: (_, s) => (s === null ? "–" : clock.format(new Date(s * 1000))) },
      ...chart.lines.map((line) => ({
        label: line.name, stroke: colour(line.tone), width: 1.75, points: { size: 5, fill: colour(line.tone), filter: alone },
        value: (_, y) => say(y),
      })),
    ],
  }, [chart.x, ...chart.lines.map((line) => line.y)], place);
  place.removeAttribute("style");
  const watch = new ResizeObserver(() => plot.setSize(size()));
  watch.observe(place);
  return () => { watch.disconnect(); plot.destroy(); };
};

/** Draw new and changed charts, or all if `anew`, and free the removed ones. */
export const draw = (anew = false) => {
  const there = new Set(window.uPlot ? document.querySelectorAll("[data-chart]") : []);
  for (const [place, [data, end]] of drawn) {
    if (!anew && there.has(place) && place.dataset.chart === data) continue;
    end();
    drawn.delete(place);
  }
  for (const place of there) if (!drawn.has(place)) drawn.set(place, [place.dataset.chart, make(place)]);
};
