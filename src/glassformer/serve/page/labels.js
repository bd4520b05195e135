// Labels of texts, and of the words of texts.
import { $, bar, make, unitsOf } from "/page/dom.js";
import { ask, whenQuiet } from "/page/server.js";
import { percent, say } from "/page/words.js";

const N_SHOWN = 12;
const modelOf = (view) => $(view).querySelector("select.model").value;
let classifiers = [];

const classify = whenQuiet(async (signal) => {
  const isPair = takesPairs(), text = $("class-text").value, second = $("class-second").value;
  if (!text.trim() || (isPair && !second.trim())) return $("classes").replaceChildren();
  const found = await ask("/glassformer/classify", { model: modelOf("classify"), text, ...(isPair && { second }) }, signal);
  $("classes").replaceChildren(...found.labels.slice(0, N_SHOWN).map(({ label, probability }) =>
    bar(label, probability, percent(probability), { className: found.chosen.includes(label) ? "chosen" : "" })));
  if (found.is_cut) $("classes").append(make("li", { className: "soft" }, say("cut")));
});

function takesPairs() {
  return classifiers.find((model) => model.id === modelOf("classify")).takes_pairs;
}

export function startClassify(models) {
  classifiers = models;
  const fit = () => { $("second-card").hidden = !takesPairs(); };
  $("classify").addEventListener("change", () => { fit(); classify(); });
  $("classify").addEventListener("input", () => classify());
  fit();
}

// A model whose labels mark entities (B-PER, I-PER) has spans; one that tags words has a label for each.
const label = whenQuiet(async (signal) => {
  const text = $("label-text").value, units = unitsOf(text);
  if (!text.trim()) return $("labels").replaceChildren();
  const found = await ask("/glassformer/label", { model: modelOf("label"), text }, signal);
  const isTagged = found.words.some((word) => !/^(O|[A-Z]-.*)$/.test(word.label));
  const marks = isTagged ? found.words.map((word) => ({ ...word, type: word.label })) : found.entities;
  const kinds = [...new Set(marks.map((mark) => mark.type))];
  let at = 0;
  const parts = marks.flatMap((mark) => {
    const before = text.slice(at, units[mark.start]);
    at = units[mark.end];
    const node = make("mark", { className: `kind-${kinds.indexOf(mark.type) % 6}`, title: percent(mark.probability) },
      mark.text, "\u00a0", make("span", { className: "kind" }, mark.type));
    return [before, node];
  });
  $("labels").replaceChildren(...parts, text.slice(at));
  if (!marks.length) $("labels").append(make("span", { className: "soft" }, ` (${say("none")})`));
});

export function startLabel() {
  for (const event of ["input", "change"]) $("label").addEventListener(event, () => label());
}
