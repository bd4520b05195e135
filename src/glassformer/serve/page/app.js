// The start of the page: what this server's models can do, and a view for each kind of task.
import { $, make } from "/page/dom.js";
import { ask, changeKey, Failure, tell } from "/page/server.js";
import { languageName, number, say, switchLanguage, writeWords } from "/page/words.js";
import { startCompare } from "/page/compare.js";
import { startGenerate } from "/page/generate.js";
import { startClassify, startLabel } from "/page/labels.js";
import { startReport } from "/page/report.js";
import { startTranslate } from "/page/translate.js";

const VIEWS = { translate: startTranslate, generate: startGenerate, embed: startCompare, classify: startClassify, label: startLabel };
let models = [];

function describe(model) {
  const parts = [];
  if (model.source) parts.push(`${languageName(model.source)} → ${languageName(model.target)}`);
  if (model.labels) parts.push(say("labels", number(model.labels.length)), model.labels.slice(0, 12).join(", "));
  if (model.dimensions) parts.push(say("width", number(model.dimensions)));
  if (model.max_model_len) parts.push(say("context", number(model.max_model_len)));
  return parts.join(" · ");
}

function writeModels() {
  $("models").replaceChildren(...models.map((model) =>
    make("tr", {}, make("th", { scope: "row" }, model.id), make("td", {}, say(model.task)), make("td", {}, describe(model)))));
  for (const link of $("views").children) link.textContent = say(link.hash.slice(1));
}

function show() {
  const wanted = location.hash.slice(1), kinds = [...$("views").children].map((link) => link.hash.slice(1));
  const kind = kinds.includes(wanted) ? wanted : kinds[0];
  for (const name of Object.keys(VIEWS)) $(name).hidden = name !== kind;
  for (const link of $("views").children) {
    if (link.hash.slice(1) === kind) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
}

// Waits until the models are there; the server says so by itself.
async function untilReady() {
  while (!(await fetch("/ready").then((answer) => answer.ok, () => false))) {
    tell(say("loading"));
    await new Promise((done) => setTimeout(done, 1000));
  }
  tell("");
}

async function start() {
  writeWords();
  $("interface").addEventListener("click", switchLanguage);
  $("key-open").addEventListener("click", changeKey);
  $("key-cancel").addEventListener("click", () => $("key-box").close());
  await untilReady();
  const [{ data }, languages, settings] = await Promise.all([ask("/v1/models"), ask("/languages"), ask("/frontend/settings")]);
  models = data;
  $("key-open").hidden = !settings.keyRequired;
  startReport();
  for (const [kind, startView] of Object.entries(VIEWS)) {
    const able = models.filter((model) => model.task === kind);
    if (!able.length) continue;
    $("views").append(make("a", { href: `#${kind}` }));
    const choice = $(kind).querySelector("select.model");
    choice?.append(...able.map((model) => make("option", { value: model.id }, model.id)));
    if (choice) choice.parentElement.hidden = able.length === 1;
    startView(able, { languages, settings });
  }
  addEventListener("hashchange", show);
  addEventListener("words", writeModels);
  writeModels();
  show();
  if (matchMedia("(hover: hover)").matches) $("text").focus();  // a phone would open its keyboard
  document.body.dataset.ready = "yes";
}

start().catch((error) => {
  if (!(error instanceof Failure)) throw error;
  tell(error.message);
});
