// The translator: live, with alternatives, and the source words that each target word looked at.
import { $, bar, make, rove, unitsOf } from "/page/dom.js";
import { watchFiles } from "/page/files.js";
import { remember, startHistory } from "/page/history.js";
import { openReport } from "/page/report.js";
import { ask, tell, whenQuiet } from "/page/server.js";
import { languageName, number, percent, say } from "/page/words.js";

const BY_MODEL = "model:", N_OTHERS = 3, SETTLED_MS = 2000;
let languages = [], most = Infinity, answer = null, asked = null, settled, dropped;

// What is asked for, from the two choices of languages.
function direction() {
  const from = $("source").value;
  return from.startsWith(BY_MODEL) ? { model: from.slice(BY_MODEL.length) } : { source: from, target: $("target").value };
}

const translateLater = whenQuiet(async (signal) => {
  const text = $("text").value;
  if (!text.trim()) return;
  $("state").textContent = say("working");
  try {
    const request = { text, ...direction(), alternatives: N_OTHERS };
    answer = await ask("/glassformer/translate", request, signal);
    asked = request;
    show();
    settled = setTimeout(settle, SETTLED_MS);
  } finally {
    if (!signal.aborted) $("result").removeAttribute("aria-busy");
    if ($("state").textContent === say("working")) $("state").textContent = "";
  }
}, () => Math.min(1500, 300 + $("text").value.length / 20));

// A document goes to the server whole; what comes back is a link to it.
const sendDocument = whenQuiet(async (signal) => {
  const form = new FormData(), { source, target } = direction();
  form.append("file", dropped);
  form.append("source", source);
  form.append("target", target);
  $("state").textContent = say("working");
  $("result").setAttribute("aria-busy", "true");
  try {
    const { pathname } = new URL((await ask("/translate_file", form, signal)).translatedFileUrl);
    const name = decodeURIComponent(pathname.slice(pathname.indexOf(".") + 1));
    $("result").replaceChildren(make("a", { href: pathname, download: name }, say("save", name)));
    $("spoken").textContent = say("save", name);
  } finally {
    if (!signal.aborted) {
      $("result").removeAttribute("aria-busy");
      $("state").textContent = "";
    }
  }
});

function send(file) {
  if (direction().model) return tell(say("by_languages"));
  dropped = file;
  $("text").value = "";
  changed();
  sendDocument.now();
}

function changed() {
  clearTimeout(settled);
  sendDocument.cancel();
  const text = $("text").value, n = [...text].length;
  $("mirror").textContent = `${text}\n`;
  $("count").textContent = text ? say("chars", number(n), number(most)) : "";
  $("looks").textContent = "";
  if (!text.trim() || n > most) {
    translateLater.cancel();
    empty();
    tell(n > most ? say("long", number(n), number(most)) : "");
    return;
  }
  $("result").setAttribute("aria-busy", "true");
  translateLater();
}

function empty() {
  answer = asked = null;
  $("result").replaceChildren();
  $("result").removeAttribute("aria-busy");
  $("state").textContent = "";
  $("others").hidden = $("why").hidden = true;
}

function show() {
  const [best, ...others] = answer.translations;
  showWords(best.text);
  $("why").hidden = !answer.segments.length;
  $("state").textContent = answer.segments.some((segment) => segment.finish_reason === "length") ? say("unread") : "";
  const auto = $("source").querySelector('option[value="auto"]');
  if (auto) auto.textContent = answer.detected ? say("detected", languageName(answer.detected.language)) : say("detect");
  $("others").hidden = !others.length;
  $("alternatives").replaceChildren(...others.map((other) => {
    const share = Math.exp(other.log_prob / other.tokens);
    const node = bar(other.text, share, say("per", percent(share)), { title: `score ${number(other.score, 3)}, log p ${number(other.log_prob, 3)}` });
    if (answer.segments.length) node.append(make("button", { type: "button", className: "quiet", onclick: () => why(other.text) }, say("whynot")));
    return node;
  }));
}

// The text with its places [start, end] in spans; returns the spans.
function spans(box, text, places, className) {
  const units = unitsOf(text), nodes = [];
  let at = 0;
  box.replaceChildren();
  for (const [start, end] of places) {
    box.append(text.slice(at, units[start]));
    nodes.push(make("span", { className }, text.slice(units[start], units[end])));
    box.append(nodes.at(-1));
    at = units[end];
  }
  box.append(text.slice(at));
  return nodes;
}

function showWords(text) {
  const all = answer.segments.map((segment) => segment.words || { source: [], target: [], weights: [] });
  const lights = spans($("mirror"), asked.text, all.flatMap((words) => words.source), "light");
  $("mirror").append("\n");
  const words = spans($("result"), text, all.flatMap((segment) => segment.target), "word");
  let first = 0;
  const rows = all.flatMap(({ source, weights }) => {
    const start = first;
    first += source.length;
    return weights.map((row) => ({ start, row }));
  });
  rove($("result"), words, (index) => {
    words.forEach((word, i) => word.classList.toggle("lit", i === index));
    for (const light of lights) light.style.removeProperty("--light");
    $("looks").textContent = index < 0 ? "" : look(words[index], rows[index], lights);
    if (index >= 0 && document.activeElement === words[index]) $("spoken").textContent = $("looks").textContent;
  });
}

// Lights the source words of one target word; returns what it looked at, in words.
function look(word, { start, row }, lights) {
  const top = Math.max(...row);
  row.forEach((weight, i) => lights[start + i].style.setProperty("--light", weight / top));
  const best = row.map((weight, i) => [weight, lights[start + i].textContent]).sort((a, b) => b[0] - a[0]).slice(0, 3);
  return say("looks", word.textContent, best.filter(([weight]) => weight > 0.01).map(([weight, text]) => `${text} ${percent(weight)}`).join(", "));
}

function settle() {
  const [best] = answer.translations;
  remember({ text: asked.text, translation: best.text, source: asked.source, target: asked.target, model: asked.model });
  if (document.activeElement === $("text")) $("spoken").textContent = best.text;
}

// The report of the sentence that has the focus, or of the first one; and of why another translation was not taken.
function why(reference) {
  const units = unitsOf(asked.text);
  const sentences = answer.segments.map(({ source: [start, end] }) => asked.text.slice(units[start], units[end]));
  const { alternatives, text, ...where } = asked;
  if (where.source === "auto") where.source = answer.detected.language;
  openReport(sentences, { ...where, ...(reference && { reference }) });
}

async function copy() {
  if (!answer) return;
  const text = answer.translations[0].text;
  try {
    await navigator.clipboard.writeText(text);
  } catch {  // over plain HTTP from another machine there is no clipboard
    getSelection().selectAllChildren($("result"));
    document.execCommand("copy");
  }
  settle();
  $("copy").textContent = $("spoken").textContent = say("copied");
  setTimeout(() => { $("copy").textContent = say("copy"); }, 1500);
}

const targetsOf = (code) => languages.find((language) => language.code === code)?.targets ?? [...new Set(languages.flatMap((language) => language.targets))].sort();

function fillTargets() {
  const from = $("source").value, before = $("target").value, codes = targetsOf(from);
  $("target").hidden = from.startsWith(BY_MODEL);
  $("target").replaceChildren(...codes.map((code) => make("option", { value: code }, languageName(code))));
  if (codes.includes(before)) $("target").value = before;
  $("swap").disabled = !languages.some(({ code, targets }) => code === $("target").value && (from === "auto" || targets.includes(from)));
}

function fillLanguages(models) {
  const before = $("source").value, options = [];
  if (languages.length > 1) options.push(make("option", { value: "auto" }, say("detect")));
  options.push(...languages.map(({ code }) => make("option", { value: code }, languageName(code))));
  const others = models.filter((model) => !model.source);
  if (others.length) options.push(make("optgroup", { label: say("moreby") }, ...others.map(({ id }) => make("option", { value: BY_MODEL + id }, id))));
  $("source").replaceChildren(...options);
  if (before) $("source").value = before;
  fillTargets();
}

function swap() {
  const from = $("source").value === "auto" ? answer?.detected?.language : $("source").value;
  const to = $("target").value;
  if (answer) $("text").value = answer.translations[0].text;
  $("source").value = to;
  fillTargets();
  if (from) $("target").value = from;
  fillTargets();
  changed();
}

export function startTranslate(models, known) {
  languages = known.languages;
  most = known.settings.charLimit;
  fillLanguages(models);
  addEventListener("words", () => { fillLanguages(models); if (answer) show(); });
  $("text").addEventListener("input", changed);
  $("source").addEventListener("change", () => { fillTargets(); changed(); });
  $("target").addEventListener("change", () => { fillTargets(); changed(); });
  $("swap").addEventListener("click", swap);
  $("clear").addEventListener("click", () => { $("text").value = ""; changed(); $("text").focus(); });
  $("copy").addEventListener("click", copy);
  $("why").addEventListener("click", () => why());
  const put = (text) => { $("text").value = text; changed(); };
  watchFiles($("drop"), $("file"), known.settings.supportedFilesFormat, put, send);
  startHistory((entry) => {
    const from = entry.model ? BY_MODEL + entry.model : entry.source;
    if ([...$("source").options].some((option) => option.value === from)) $("source").value = from;
    fillTargets();
    if (entry.target) $("target").value = entry.target;
    put(entry.text);
    $("text").focus();
  });
  changed();
}
