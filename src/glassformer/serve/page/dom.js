// Small helpers for the page's elements.
export const $ = (id) => document.getElementById(id);

export function make(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "on") for (const [event, listener] of Object.entries(value)) node.addEventListener(event, listener);
    else if (name in node) node[name] = value;
    else node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}

// A bar of a share in [0, 1] behind a name, with its number.
export function bar(name, share, told, attributes = {}, tag = "li") {
  const node = make(tag, attributes, make("span", { className: "name" }, name), make("span", { className: "told" }, told));
  node.style.setProperty("--share", Math.max(0, share));
  return node;
}

// One stop of the tab key for a group of nodes; arrow keys go from one to the next. `show(index)`, or -1 for none.
export function rove(group, nodes, show) {
  let now = 0;
  nodes.forEach((node, i) => {
    node.tabIndex = i ? -1 : 0;
    node.addEventListener("focus", () => { nodes[now].tabIndex = -1; node.tabIndex = 0; now = i; show(i); });
    node.addEventListener("blur", () => show(-1));
    node.addEventListener("pointerenter", () => show(i));
    node.addEventListener("pointerleave", () => show(nodes.indexOf(document.activeElement)));
  });
  group.onkeydown = (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1, Home: -now, End: nodes.length - 1 - now }[event.key];
    if (step === undefined || !nodes.includes(event.target)) return;
    event.preventDefault();
    nodes[Math.max(0, Math.min(nodes.length - 1, now + step))].focus();
  };
}

// The server counts characters, JavaScript counts UTF-16 units: the unit at which each character begins.
export function unitsOf(text) {
  const units = [];
  let at = 0;
  for (const char of text) {
    units.push(at);
    at += char.length;
  }
  return [...units, at];
}
