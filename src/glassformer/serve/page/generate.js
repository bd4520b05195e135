// A language model's playground: a text goes on, and each token shows what could stand in its place.
import { $, bar, make, rove } from "/page/dom.js";
import { ask, whenQuiet } from "/page/server.js";
import { number, percent, say } from "/page/words.js";

const N_CANDIDATES = 8;
let answer = null, prompt = "", kept = [];  // kept: ids of the tokens up to the one that was chosen last

const request = () => ({
  model: $("generate").querySelector("select.model").value, prompt, kept, candidates: N_CANDIDATES,
  max_tokens: Math.max(1, Math.min(100, Math.round(+$("length").value) || 24)), temperature: +$("heat").value,
});

const write = whenQuiet(async (signal) => {
  $("stop").hidden = false;
  $("go").disabled = true;
  try {
    answer = await ask("/glassformer/continue", request(), signal);
    show();
  } finally {
    $("stop").hidden = true;
    $("go").disabled = false;
  }
});

function show() {
  const tokens = answer.tokens.map((token) => {
    const node = make("span", { className: "token" }, token.piece);
    node.style.setProperty("--strength", 1 - token.probability);
    if (token.piece === "\\n") node.append(make("br"));
    return node;
  });
  $("made-card").hidden = false;
  $("made").replaceChildren(make("span", { className: "soft given" }, prompt), ...tokens);
  if (answer.finish_reason === "eos") $("made").append(make("span", { className: "soft ended", "data-text": "ended" }, say("ended")));
  let shown = -1;
  rove($("made"), tokens, (index) => {
    if (index < 0) return;  // the list stays, so that it can be reached
    tokens[shown]?.classList.remove("lit");
    tokens[index].classList.add("lit");
    shown = index;
    showCandidates(index);
  });
  tokens.forEach((token) => token.addEventListener("keydown", (event) => {
    if (event.key !== "Enter") return;
    event.preventDefault();  // or it would press the button
    $("candidates").querySelector("button")?.focus();
  }));
  showCandidates(-1);
  tokens[kept.length - 1]?.focus();
  $("spoken").textContent = answer.text;
}

function showCandidates(index) {
  $("candidates").hidden = index < 0;
  if (index < 0) return;
  const token = answer.tokens[index];
  const list = make("ol", { className: "bars" }, ...token.candidates.map((other) => {
    const name = other.piece.replaceAll(" ", "␣"), told = percent(other.probability);
    const button = bar(name, other.probability, told, { type: "button", onclick: () => choose(index, other.id) }, "button");
    button.setAttribute("aria-label", say("take", other.piece.trim() || name, told));
    if (other.id === token.id) button.setAttribute("aria-current", "true");
    return make("li", {}, button);
  }));
  $("candidates").replaceChildren(make("h3", {}, say("instead", token.piece.replaceAll(" ", "␣"))), list);
}

function choose(index, id) {
  kept = [...answer.tokens.slice(0, index).map((token) => token.id), id];
  write.now();
}

export function startGenerate() {
  const told = () => { $("heat-now").textContent = number(+$("heat").value, 1); };
  $("heat").addEventListener("input", told);
  addEventListener("words", told);
  told();
  $("go").addEventListener("click", () => { prompt = $("prompt").value; kept = []; write.now(); });
  $("prompt").addEventListener("keydown", (event) => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) $("go").click(); });
  $("stop").addEventListener("click", () => write.cancel());
}
