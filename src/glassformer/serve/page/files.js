// Files, dropped or opened: plain text is read here, documents are sent to the server.
import { tell } from "/page/server.js";
import { say } from "/page/words.js";

const PLAIN = ["text/*", ".txt", ".md", ".csv", ".tsv"];

async function read(file, put, documents) {
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
    if (text.includes("\0")) throw new TypeError("no text");
    put(text.replace(/\r\n?/g, "\n"));
  } catch (error) {
    if (!(error instanceof TypeError)) throw error;
    tell(say("notext", file.name, documents.join(", ")));
  }
}

// `put` takes a text, `send` a file whose name ends like one of the formats.
export function watchFiles(zone, input, formats, put, send) {
  const documents = formats.filter((format) => format !== ".txt");
  input.accept = [...PLAIN, ...documents].join();
  const take = (files) => {
    if (files.length !== 1) return tell(say("many_files"));
    const name = files[0].name.toLowerCase();
    if (documents.some((format) => name.endsWith(format))) send(files[0]);
    else read(files[0], put, documents);
  };
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
    take(event.dataTransfer.files);
  });
  input.addEventListener("change", () => {
    if (input.files.length) take(input.files);
    input.value = "";
  });
}
