// One frame at a time, chosen by a slider, a dot of a curve, or the play button.
"use strict";
const frames = [...document.querySelectorAll(".frame-of-film")], bar = document.querySelector(".film-bar");
const slider = document.getElementById("slider"), play = document.getElementById("play");
let timer = 0;

function project(number) {
  frames.forEach((frame, i) => { frame.hidden = i !== number; });
  slider.value = number;
  bar.querySelector("output").textContent = frames[number].dataset.says;
  slider.setAttribute("aria-valuetext", frames[number].dataset.says);
  for (const dot of document.querySelectorAll("[data-frame]")) dot.classList.toggle("now", dot.dataset.frame === frames[number].id);
}

function stop() {
  clearInterval(timer);
  timer = 0;
  play.textContent = "▶ play";
}

play.addEventListener("click", () => {
  if (timer) { stop(); return; }
  if (+slider.value === frames.length - 1) project(0);
  play.textContent = "■ stop";
  timer = setInterval(() => {
    project(+slider.value + 1);
    if (+slider.value === frames.length - 1) stop();
  }, 900);
});
slider.addEventListener("input", () => { stop(); project(+slider.value); });

// What is opened in one frame is open in all.
for (const part of document.querySelectorAll("details[data-key]")) {
  part.addEventListener("toggle", () => {
    for (const same of document.querySelectorAll(`details[data-key="${part.dataset.key}"]`)) same.open = part.open;
  });
}

function projectTarget() {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1))), frame = target?.closest(".frame-of-film");
  if (!frame) return false;
  stop();
  project(frames.indexOf(frame));
  return true;
}

bar.hidden = false;
if (!projectTarget()) project(frames.length - 1);
addEventListener("hashchange", projectTarget);
for (const dot of document.querySelectorAll(".curve a")) {
  dot.addEventListener("click", (event) => {
    event.preventDefault(); // the curves stay in sight
    stop();
    project(frames.findIndex((frame) => frame.id === dot.getAttribute("href").slice(1)));
  });
}
