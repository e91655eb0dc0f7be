
// Draws the charts of a page, each when it comes near the window; all of them before printing, then
// as on a light page.
// Expressions are interpreted ("ast"), since the page allows no code to be made from text.
const NARROW = 800;
const places = [...document.querySelectorAll(".chart")];
const waiting = new Set(places);
const dark = matchMedia("(prefers-color-scheme: dark)").matches;
const shades = new Map(Object.entries(JSON.parse(document.getElementById("shades").textContent)));
const ON_DARK = {title: {color: "#D6D6D6"}, legend: {labelColor: "#D6D6D6", titleColor: "#D6D6D6"}};

const DATA = ["data", "datasets", "domain"];  // whose texts are no colours

function shaded(value) {
  if (Array.isArray(value)) return value.map(shaded);
  if (value && typeof value === "object") {
    return Object.fromEntries(Object.entries(value).map(([name, each]) => [name, DATA.includes(name) ? each : shaded(each)]));
  }
  return shades.get(value) ?? value;
}

function draw(place, onDark = dark) {
  waiting.delete(place);
  const number = place.id.slice("chart".length);
  let spec = JSON.parse(document.getElementById("spec" + number).textContent);
  if (spec.hconcat && innerWidth < NARROW) {  // side by side on wide screens only
    spec.vconcat = spec.hconcat;
    delete spec.hconcat;
  }
  if (onDark) spec = shaded(spec);
  const config = onDark ? ON_DARK : {};
  const actions = {export: true, source: false, compiled: false, editor: false};
  vegaEmbed(place, spec, {mode: "vega-lite", renderer: "svg", ast: true, actions, config});
}

const near = new IntersectionObserver(
  (entries) => entries.forEach((entry) => entry.isIntersecting && waiting.has(entry.target) && draw(entry.target)),
  {rootMargin: "600px"},
);
places.forEach((place) => near.observe(place));
addEventListener("beforeprint", () => (dark ? places : [...waiting]).forEach((place) => draw(place, false)));
