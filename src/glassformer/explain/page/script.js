// Adds to a page that is complete without it: values under the pointer, arrow keys inside a matrix, links that open.
"use strict";
const tip = document.getElementById("tip");
const labels = (figure) => [...figure.querySelectorAll("text:not(.axis)")].map((text) => text.textContent);

// A number of a matrix, as pictures.py packed it; 1295 stands for minus infinity.
function number(figure, row, column) {
  const { rows, columns, low, high, head = 0, values } = figure.dataset;
  const at = 2 * ((head * rows + row) * columns + column), packed = parseInt(values.slice(at, at + 2), 36);
  return packed === 1295 ? -Infinity : +low + packed / 1294 * (high - low);
}

function show(figure, row, column, x, y) {
  const { rows, columns } = figure.dataset;
  if (row < 0 || column < 0 || row >= rows || column >= columns) { tip.hidden = true; return; }
  const names = labels(figure), value = number(figure, row, column);
  const [key, query] = [...figure.querySelectorAll(".axis")].map((text) => text.textContent.replace(" →", ""));
  tip.textContent = `${query} ${names[row]}, ${key} ${names[+rows + column]}: ${value === -Infinity ? "−∞ (hidden)" : value.toPrecision(3)}`;
  tip.hidden = false;
  tip.style.left = Math.max(8, Math.min(x + 14, innerWidth - tip.offsetWidth - 8)) + "px";
  tip.style.top = Math.max(8, y - 34) + "px";
}

// Draws the head that is chosen, with the shades that pictures.py gives the first one.
function draw(figure) {
  const { rows, columns, low, high } = figure.dataset, paths = {};
  for (let row = 0; row < rows; row++) for (let column = 0; column < columns; column++) {
    const value = number(figure, row, column), strength = Math.abs(value) / Math.max(-low, high, 1e-30);
    if (!(strength >= 0.02 && strength < Infinity)) continue;
    const shade = (value < 0 ? "n" : "l") + Math.min(9, Math.ceil(9 * strength));
    paths[shade] = (paths[shade] || "") + `M${column} ${row}h1v1h-1z`;
  }
  figure.querySelector("g").innerHTML = Object.entries(paths).map(([shade, d]) => `<path class="${shade}" d="${d}"/>`).join("");
}

function place(figure, event) {
  const box = figure.getBoundingClientRect(), { left, top, cell } = figure.dataset;
  return [Math.floor((event.clientY - box.top - top) / cell), Math.floor((event.clientX - box.left - left) / cell)];
}

function mark(figure, row, column) {
  const { left, top, cell } = figure.dataset;
  let frame = figure.querySelector(".mark");
  if (!frame) {
    frame = document.createElementNS("http://www.w3.org/2000/svg", "rect");
    frame.setAttribute("class", "mark");
    figure.append(frame);
  }
  const size = { x: +left + column * cell, y: +top + row * cell, width: cell, height: cell };
  for (const [name, value] of Object.entries(size)) frame.setAttribute(name, value);
  const box = frame.getBoundingClientRect();
  show(figure, row, column, box.right, box.top);
}

for (const figure of document.querySelectorAll("svg.matrix")) {
  let row = 0, column = 0;
  figure.addEventListener("pointermove", (event) => show(figure, ...place(figure, event), event.clientX, event.clientY));
  figure.addEventListener("pointerleave", () => { tip.hidden = true; });
  figure.addEventListener("blur", () => { tip.hidden = true; figure.querySelector(".mark")?.remove(); });
  figure.addEventListener("keydown", (event) => {
    const move = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (!move) return;
    event.preventDefault();
    const { rows, columns } = figure.dataset;
    row = Math.max(0, Math.min(rows - 1, row + move[0]));
    column = Math.max(0, Math.min(columns - 1, column + move[1]));
    mark(figure, row, column);
  });
}

// Steps inside a kernel: a choice of head in place of the first one.
for (const first of document.querySelectorAll("figcaption .head")) {
  const figure = first.closest("figure").querySelector("svg.matrix"), { rows, columns, values } = figure.dataset;
  const choice = document.createElement("select");
  choice.setAttribute("aria-label", "head");
  for (let head = 1; head <= values.length / 2 / rows / columns; head++) choice.add(new Option(head, head - 1));
  choice.addEventListener("change", () => { figure.dataset.head = choice.value; draw(figure); });
  first.replaceWith(choice);
}

// The head view: one attention and one head, or all of them.
const choose = document.querySelector(".choose");
if (choose) {
  choose.hidden = false;
  const [map, head] = choose.querySelectorAll("select");
  choose.addEventListener("change", () => {
    for (const part of document.querySelectorAll("details[data-map]")) {
      part.hidden = map.value !== "" && part.dataset.map !== map.value;
      part.open = part.dataset.map === map.value || (map.value === "" && head.value !== "");
      for (const figure of part.querySelectorAll("figure")) figure.hidden = head.value !== "" && figure.dataset.head !== head.value;
    }
  });
}

function openTarget() {
  const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (!target) return;
  for (let node = target; node; node = node.parentElement) {
    node.hidden = false;
    if (node.tagName === "DETAILS") node.open = true;
  }
  target.scrollIntoView();
}
addEventListener("hashchange", openTarget);
openTarget();
