// Adds to a page that is complete without it: values under the pointer, arrow keys inside a matrix, links that open.
"use strict";
const tip = document.getElementById("tip");
const labels = (figure) => [...figure.querySelectorAll("text:not(.axis)")].map((text) => text.textContent);

function show(figure, row, column, x, y) {
  const columns = Number(figure.dataset.columns), values = figure.dataset.values, at = 2 * (row * columns + column);
  const rows = values.length / 2 / columns;
  if (row < 0 || column < 0 || row >= rows || column >= columns) { tip.hidden = true; return; }
  const names = labels(figure), value = parseInt(values.slice(at, at + 2), 36) / 1295 * Number(figure.dataset.largest);
  const [key, query] = [...figure.querySelectorAll(".axis")].map((text) => text.textContent.replace(" →", ""));
  tip.textContent = `${query} ${names[row]}, ${key} ${names[rows + column]}: ${value.toPrecision(3)}`;
  tip.hidden = false;
  tip.style.left = Math.max(8, Math.min(x + 14, innerWidth - tip.offsetWidth - 8)) + "px";
  tip.style.top = Math.max(8, y - 34) + "px";
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
    const columns = Number(figure.dataset.columns), rows = figure.dataset.values.length / 2 / columns;
    row = Math.max(0, Math.min(rows - 1, row + move[0]));
    column = Math.max(0, Math.min(columns - 1, column + move[1]));
    mark(figure, row, column);
  });
}

function openTarget() {
  const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (!target) return;
  for (let node = target; node; node = node.parentElement) if (node.tagName === "DETAILS") node.open = true;
  target.scrollIntoView();
}
addEventListener("hashchange", openTarget);
openTarget();
