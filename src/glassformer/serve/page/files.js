// Plain text files, dropped or opened.
import { tell } from "/page/server.js";
import { say } from "/page/words.js";

async function read(files, put) {
  if (files.length !== 1) return tell(say("many_files"));
  const [file] = files;
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
    if (text.includes("\0")) throw new TypeError("no text");
    put(text.replace(/\r\n?/g, "\n"));
  } catch (error) {
    if (!(error instanceof TypeError)) throw error;
    tell(say("notext", file.name));
  }
}

export function watchFiles(zone, input, put) {
  const isFile = (event) => event.dataTransfer.types.includes("Files");
  zone.addEventListener("dragover", (event) => {
    if (!isFile(event)) return;
    event.preventDefault();
    zone.classList.add("over");
  });
  zone.addEventListener("dragleave", () => zone.classList.remove("over"));
  zone.addEventListener("drop", (event) => {
    zone.classList.remove("over");
    if (!isFile(event)) return;
    event.preventDefault();
    read(event.dataTransfer.files, put);
  });
  input.addEventListener("change", () => {
    if (input.files.length) read(input.files, put);
    input.value = "";
  });
}
