// The report of `explain`, beside the text, in a frame that reaches nothing.
import { $, make } from "/page/dom.js";
import { ask, whenQuiet } from "/page/server.js";
import { say } from "/page/words.js";

let request = {}, opener = null;

const load = whenQuiet(async (signal) => {
  $("report-frame").hidden = true;
  $("report-state").textContent = say("making");
  try {
    const page = await ask("/glassformer/explain", { ...request, text: $("sentence").value }, signal, "text");
    const frame = $("report-frame");
    frame.addEventListener("load", () => frame.contentWindow.postMessage(page, "*"), { once: true });  // its origin has no name
    frame.src = "/page/frame.html";
    frame.hidden = false;
  } finally {
    if (!signal.aborted) $("report-state").textContent = "";
  }
});

// Opens the panel for the first of some sentences; the others can be chosen there.
export function openReport(sentences, where) {
  request = where;
  opener = document.activeElement;
  $("sentence").replaceChildren(...sentences.map((text) => make("option", { value: text }, text.length > 90 ? `${text.slice(0, 90)}…` : text)));
  $("sentence").hidden = sentences.length < 2;
  $("report").hidden = false;
  document.body.classList.add("with-report");
  $("report-close").focus();
  load.now();
}

function close() {
  load.cancel();
  $("report").hidden = true;
  $("report-frame").removeAttribute("src");
  document.body.classList.remove("with-report");
  opener?.focus();
}

export function startReport() {
  $("sentence").addEventListener("change", load.now);
  $("report-close").addEventListener("click", close);
  addEventListener("keydown", (event) => { if (event.key === "Escape" && !$("report").hidden && !$("key-box").open) close(); });
}
