// How alike texts are: the cosine of their vectors.
import { $, bar } from "/page/dom.js";
import { ask, whenQuiet } from "/page/server.js";
import { number } from "/page/words.js";

const dot = (a, b) => a.reduce((sum, value, i) => sum + value * b[i], 0);
const cosine = (a, b) => dot(a, b) / Math.max(Math.sqrt(dot(a, a) * dot(b, b)), 1e-12);

const compare = whenQuiet(async (signal) => {
  const first = $("first").value.trim(), lines = $("lines").value.split("\n").map((line) => line.trim()).filter(Boolean);
  if (!first || !lines.length) {
    $("alike").hidden = true;
    return $("likeness").replaceChildren();
  }
  const content = { model: $("embed").querySelector("select.model").value, input: [first, ...lines] };
  const { data } = await ask("/v1/embeddings", content, signal);
  const [query, ...vectors] = data.map((row) => row.embedding);
  const ranked = vectors.map((vector, i) => [cosine(query, vector), lines[i]]).sort((a, b) => b[0] - a[0]);
  $("likeness").replaceChildren(...ranked.map(([value, line]) => bar(line, value, number(value, 3))));
  $("alike").hidden = false;
});

export function startCompare() {
  for (const event of ["input", "change"]) $("embed").addEventListener(event, () => compare());
}
