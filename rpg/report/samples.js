
// Filters, the list of samples, and the chosen one beside another of its problem. What comes from
// a data set or a model is set as text and never as markup. The address keeps the choice.
const SHOWN = 200;
const {problems, samples} = JSON.parse(document.getElementById("data").textContent);
const part = (name) => document.getElementById(name);
const isPlace = (text) => /^\d+$/.test(text ?? "") && Number(text) < samples.length;
const choice = new URLSearchParams(location.hash.slice(1));

function element(name, text, className = "") {
  const made = document.createElement(name);
  made.textContent = text;
  made.className = className;
  return made;
}

function fill(select, values) {
  for (const value of [...new Set(values)].sort()) {
    const option = element("option", value);
    option.value = value;
    select.append(option);
  }
}

// Problems that some variant solves in a published sample and another does not.
function differing() {
  const verdicts = problems.map(() => new Set());
  samples.forEach((sample) => verdicts[sample.problem].add(sample.correct));
  return verdicts.map((each) => each.size > 1);
}

const differs = differing();
const kinds = {
  "all": () => true,
  "right": (sample) => sample.correct,
  "wrong": (sample) => !sample.correct,
  "unread": (sample) => sample.unread,
  "truncated": (sample) => sample.truncated,
  "variants differ": (sample) => differs[sample.problem],
};

function matches(sample) {
  const problem = problems[sample.problem];
  const words = part("words").value.toLowerCase();
  const variant = part("variant").value;
  const benchmark = part("benchmark").value;
  return kinds[part("kind").value](sample)
    && (!variant || sample.variant === variant)
    && (!benchmark || problem.benchmark === benchmark)
    && (!words || [problem.id, problem.text, sample.response].some((text) => text.toLowerCase().includes(words)));
}

const verdict = (sample) => (sample.correct ? "right" : sample.unread ? "unread" : "wrong") + (sample.truncated ? ", cut off" : "");

function row(sample, place) {
  const made = document.createElement("tr");
  const problem = problems[sample.problem];
  const open = element("button", `${problem.benchmark} / ${problem.id}`);
  open.type = "button";
  const first = document.createElement("td");
  first.append(open);
  const cells = [sample.variant, sample.sample, verdict(sample), sample.tokens];
  made.append(first, ...cells.map((text) => element("td", text)));
  made.setAttribute("aria-selected", String(place) === choice.get("sample"));
  open.addEventListener("click", () => choose(place, ""));
  return made;
}

function list() {
  const places = [...samples.keys()].filter((place) => matches(samples[place]));
  const cut = places.length > SHOWN ? `, the first ${SHOWN} are listed` : "";
  part("matches").textContent = `${places.length} of ${samples.length} samples${cut}`;
  part("rows").replaceChildren(...places.slice(0, SHOWN).map((place) => row(samples[place], place)));
  return places;
}

function side(sample) {
  const made = document.createElement("section");
  made.append(
    element("h2", `${sample.variant}, seed ${sample.seed}, step ${sample.step}, sample ${sample.sample}`),
    element("p", verdict(sample), sample.correct ? "right" : "wrong"),
    element("p", `Extracted ${JSON.stringify(sample.extracted)}; ${sample.reason}; ${sample.tokens} tokens`),
    element("pre", sample.response),
  );
  return made;
}

function others(place) {
  const box = document.createElement("select");
  box.append(element("option", "no other"));
  samples.forEach((sample, other) => {
    if (other === place || sample.problem !== samples[place].problem) return;
    const option = element("option", `${sample.variant}, sample ${sample.sample}: ${verdict(sample)}`);
    option.value = other;
    box.append(option);
  });
  box.firstChild.value = "";
  box.value = isPlace(choice.get("beside")) ? choice.get("beside") : "";
  box.addEventListener("change", () => choose(place, box.value));
  const label = element("label", "Beside it, of the same problem ");
  label.append(box);
  return label;
}

function show() {
  if (!isPlace(choice.get("sample"))) return;
  const place = Number(choice.get("sample"));
  const problem = problems[samples[place].problem];
  const sides = element("div", "", "sides");
  sides.append(side(samples[place]));
  if (isPlace(choice.get("beside"))) sides.append(side(samples[Number(choice.get("beside"))]));
  part("chosen").replaceChildren(
    element("h2", `${problem.benchmark} / ${problem.id}; expected ${JSON.stringify(problem.answer)}`),
    element("pre", problem.text),
    others(place),
    sides,
  );
}

function choose(place, beside) {
  choice.set("sample", place);
  choice.set("beside", beside);
  history.replaceState(null, "", "#" + choice);
  list();
  show();
}

fill(part("variant"), samples.map((sample) => sample.variant));
fill(part("benchmark"), problems.map((problem) => problem.benchmark));
part("filters").addEventListener("input", list);
part("filters").addEventListener("submit", (event) => event.preventDefault());
const found = list();
if (isPlace(choice.get("sample"))) show();
else if (found.length) choose(found[0], "");
