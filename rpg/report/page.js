
// Draws the charts of a page, each when it comes near the window; all of them before printing.
// Expressions are interpreted ("ast"), since the page allows no code to be made from text.
const NARROW = 800;
const waiting = new Set(document.querySelectorAll(".chart"));

function draw(place) {
  if (!waiting.delete(place)) return;
  const number = place.id.slice("chart".length);
  const spec = JSON.parse(document.getElementById("spec" + number).textContent);
  if (spec.hconcat && innerWidth < NARROW) {  // side by side on wide screens only
    spec.vconcat = spec.hconcat;
    delete spec.hconcat;
  }
  const actions = {export: true, source: false, compiled: false, editor: false};
  vegaEmbed(place, spec, {mode: "vega-lite", renderer: "svg", ast: true, actions});
}

const near = new IntersectionObserver(
  (entries) => entries.filter((entry) => entry.isIntersecting).forEach((entry) => draw(entry.target)),
  {rootMargin: "600px"},
);
waiting.forEach((place) => near.observe(place));
addEventListener("beforeprint", () => [...waiting].forEach(draw));
