// What was translated, in this browser only.
import { $, make } from "/page/dom.js";
import { number, say } from "/page/words.js";

const STORED = "glassformer.history", MOST = 50, MOST_CHARS = 2000;
let take;

function entries() {
  try {
    return JSON.parse(localStorage.getItem(STORED)) || [];
  } catch {
    return [];
  }
}

// Adds an entry; one that was being written goes on in its place.
export function remember(entry) {
  if (entry.text.length > MOST_CHARS) return;
  const rest = entries(), last = rest[0];
  if (last && (entry.text.startsWith(last.text) || last.text.startsWith(entry.text)) && last.target === entry.target) rest.shift();
  localStorage.setItem(STORED, JSON.stringify([entry, ...rest].slice(0, MOST)));
  show();
}

function show() {
  const all = entries();
  $("past-count").textContent = all.length ? number(all.length) : "";
  $("forget").hidden = !all.length;
  $("entries").replaceChildren(...(all.length ? all.map((entry) => make("li", {},
    make("button", { type: "button", className: "entry", title: say("use_entry"), onclick: () => take(entry) },
      make("span", {}, entry.text), make("span", { className: "soft" }, entry.translation)))) : [make("li", { className: "soft" }, say("nothing"))]));
}

export function startHistory(onTake) {
  take = onTake;
  $("forget").addEventListener("click", () => { localStorage.removeItem(STORED); show(); $("past").querySelector("summary").focus(); });
  addEventListener("words", show);
  show();
}
