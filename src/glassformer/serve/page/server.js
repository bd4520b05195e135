// Requests to the server: the key, its refusals in words, and at most one request of a kind at a time.
import { say } from "/page/words.js";

const KEY = "glassformer.key";
const notice = document.getElementById("notice");
let asking = null;

export class Failure extends Error {}

export function tell(message) {
  notice.textContent = message || "";
  notice.hidden = !message;
}

// Asks for a key once, however many requests wait for it; true when there is a new one.
function askForKey(isWrong) {
  asking ||= new Promise((done) => {
    const box = document.getElementById("key-box"), input = document.getElementById("key");
    document.getElementById("key-why").textContent = say(isWrong ? "wrong" : "asked");
    document.getElementById("key-open").hidden = false;
    input.value = "";
    box.returnValue = "";
    box.addEventListener("close", () => {
      const key = input.value.trim();
      if (box.returnValue === "use" && key) sessionStorage.setItem(KEY, key);
      asking = null;
      done(box.returnValue === "use" && key !== "");
    }, { once: true });
    box.showModal();
  });
  return asking;
}

export async function changeKey() {
  if (await askForKey(false)) location.reload();
}

// The JSON answer, or another `kind` of it, to an object or a form; Failure with a message for the reader.
export async function ask(path, content, signal, kind = "json") {
  const key = sessionStorage.getItem(KEY), headers = {}, isForm = content instanceof FormData;
  if (key) headers.Authorization = `Bearer ${key}`;
  if (content && !isForm) headers["Content-Type"] = "application/json";
  let response;
  try {
    response = await fetch(path, { method: content ? "POST" : "GET", headers, signal, body: isForm ? content : content && JSON.stringify(content) });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Failure(say("away"));
  }
  if (response.ok) return response[kind]();
  if (response.status === 401 || response.status === 403) {
    const isNew = sessionStorage.getItem(KEY) !== key;  // another request has asked meanwhile
    if (isNew || (await askForKey(Boolean(key)))) return ask(path, content, signal, kind);
  }
  const wait = response.headers.get("Retry-After");
  if (wait) throw new Failure(say("busy", wait));
  const refusal = await response.json().catch(() => ({}));
  throw new Failure(refusal.error?.message || refusal.error || refusal.message || `${response.status}`);
}

// A function that waits until the reader pauses, gives up its last request, and starts the next one.
export function whenQuiet(work, waitFor = () => 300) {
  let timer, control;
  const start = async () => {
    control = new AbortController();
    const { signal } = control;
    try {
      await work(signal);
      if (!signal.aborted) tell("");
    } catch (error) {
      if (signal.aborted) return;
      if (!(error instanceof Failure)) throw error;
      tell(error.message);
    }
  };
  const cancel = () => {
    clearTimeout(timer);
    control?.abort();
  };
  const later = () => {
    cancel();
    timer = setTimeout(start, waitFor());
  };
  return Object.assign(later, { cancel, now: () => (cancel(), start()) });
}
