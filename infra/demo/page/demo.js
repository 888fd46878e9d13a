// The page: what is asked for, how it is decoded, and the answer in the player.

import { makeBoard } from "/board.js";
import { makePicture } from "/picture.js";
import { outcome, toSample } from "/records.js";

const POLICIES = { revision: "Revision", absorbing: "Absorbing", p2: "P2", remdm: "ReMDM", two_phase: "Two-phase" };
const MASK_SIGN = "▒";
const SIDES = ["a", "b"];

const find = (id) => document.getElementById(id);
const kindChoices = [...document.querySelectorAll("[name=kind]")];
const section = find("player");
const player = makePlayer(section);
const calm = window.matchMedia("(prefers-reduced-motion: reduce)");
const board = makeBoard(find("editor"), find("pad"));
const picture = makePicture(find("drop"), find("preview"), find("file"), complain);

let offered = { models: [], missing: {}, examples: [] };
let kind = "sudoku";
let running = null;  // the AbortController of requests in flight

function complain(sentence) {
  find("problem").textContent = sentence;
}

function option(text, value) {
  const made = document.createElement("option");
  [made.textContent, made.value] = [text, value];
  return made;
}

// The start

function chooseKind(wanted) {
  kind = wanted;
  complain("");
  player.pause();
  find("empty").hidden = false;
  find("result").hidden = true;
  for (const choice of kindChoices) {
    choice.checked = choice.value === kind;
    find(`start-${choice.value}`).hidden = choice.value !== kind || kind in offered.missing;
  }
  const isMissing = kind in offered.missing;
  find("missing").textContent = offered.missing[kind] || "";
  find("missing").hidden = !isMissing;
  find("revise").setAttribute("aria-disabled", isMissing);
  const models = offered.models.filter((model) => model.kind === kind);
  find("model").replaceChildren(...models.map((model) => option(model.name, model.name)));
  find("model-label").hidden = models.length < 2;
  fillExamples();
}

const chosenModel = () => offered.models.find((model) => model.name === find("model").value);

function fillExamples() {
  const model = chosenModel();
  const fitting = offered.examples.filter(({ request }) => model && fits(request, model));
  find("example").replaceChildren(
    ...fitting.map(({ title }) => option(title, title)), option("My own", ""));
  find("example-label").hidden = !fitting.length;
  find("example").value = fitting.length ? fitting[0].title : "";
  if (fitting.length) loadExample();
  else if (kind === "sudoku" && model) board.load("0".repeat(model.columns ** 2), null);
}

function fits(request, model) {
  if (request.kind !== model.kind) return false;
  return request.kind === "sudoku"
    ? request.board.length === model.columns ** 2 : request.checkpoint === model.name;
}

function loadExample() {
  const example = offered.examples.find(({ title }) => title === find("example").value);
  if (!example) return;
  const request = example.request;
  if (kind === "sudoku") board.load(request.board, request.editable);
  if (kind === "text") {
    find("prompt").value = request.prompt;
    find("draft").value = request.draft || "";
    find("length").value = request.length || "";
  }
  if (kind === "image_edit") {
    picture.load(request.picture, example.title);
    find("instruction").value = request.instruction;
  }
}

const isNumber = (id) => find(id).value !== "" && find(id).checkValidity();

function readStart() {
  if (kind === "sudoku") return board.request();
  if (kind === "text") {
    const [prompt, draft] = [find("prompt").value, find("draft").value];
    return {
      prompt,
      ...(draft && { draft }),
      ...(isNumber("length") && { length: Number(find("length").value) }),
    };
  }
  if (!picture.base64()) throw new Error("There is no picture yet; choose one, or an example.");
  return { picture: picture.base64(), instruction: find("instruction").value };
}

// Settings

// A slider whose value is the model's choice until it is moved.
function makeSlider(id, unit) {
  const [slider, shown, auto] = [find(id), find(`${id}-value`), find(`${id}-auto`)];
  let isAuto = true;

  function draw() {
    const text = isAuto ? "automatic" : `${Number(slider.value)}${unit}`;
    shown.textContent = text;
    slider.setAttribute("aria-valuetext", text);
    auto.setAttribute("aria-pressed", isAuto);
    find(`${id}-row`).classList.toggle("unset", isAuto);
  }

  slider.addEventListener("input", () => { isAuto = false; draw(); });
  auto.addEventListener("click", () => {
    isAuto = true;
    slider.value = slider.defaultValue;
    draw();
  });
  draw();
  return () => (isAuto ? null : Number(slider.value));
}

const margin = makeSlider("margin", " nats");
const pace = makeSlider("pace", " of the steps");

function readOptions(side) {
  const policy = find(`policy-${side}`).value;
  const options = { policy, history: find(`history-${side}`).checked, seed: Number(find("seed").value) || 0 };
  if (isNumber("max-steps")) options.max_steps = Number(find("max-steps").value);
  if (policy === "revision") {  // the others have neither
    if (margin() !== null) options.margin = margin();
    if (pace() !== null) options.pace = pace();
  }
  return options;
}

function showSettings() {
  const policies = SIDES.map((side) => find(`policy-${side}`).value);
  find("history-b").disabled = !policies[1];
  for (const id of ["margin", "pace"]) {
    const isOff = !policies.includes("revision");
    find(`${id}-row`).classList.toggle("off", isOff);
    find(id).disabled = isOff;
  }
}

const titleOf = (options) =>
  `${POLICIES[options.policy]}${options.history ? "" : ", without history"}`;

// Asking and showing

async function ask(request, signal) {
  let answer;
  try {
    answer = await fetch("/revise", {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(request),
      signal,
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("The server does not answer; is `remask demo` still running?");
  }
  const values = await answer.json().catch(() => ({ error: `The server answered ${answer.status}.` }));
  if (!answer.ok) throw new Error(values.error);
  return values;
}

async function revise(event) {
  event.preventDefault();
  if (running || kind in offered.missing) return;
  complain("");
  running = new AbortController();
  setBusy(true);
  try {
    const common = { kind, checkpoint: find("model").value, ...readStart() };
    const sides = SIDES.filter((side) => find(`policy-${side}`).value);
    const requests = sides.map((side) => ({ ...common, options: readOptions(side) }));
    const records = await Promise.all(requests.map((request) => ask(request, running.signal)));
    showRecords(records, requests);
  } catch (error) {
    if (error.name !== "AbortError") complain(capital(error.message));
    running.abort();  // the other request, if there are two
  } finally {
    running = null;
    setBusy(false);
  }
}

const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);

function setBusy(isBusy) {
  section.setAttribute("aria-busy", isBusy);
  find("revise").textContent = isBusy ? "Revising…" : "Revise";
  find("revise").setAttribute("aria-disabled", isBusy || kind in offered.missing);
  find("stop").hidden = !isBusy;
}

function showRecords(records, requests) {
  find("empty").hidden = true;
  find("result").hidden = false;
  section.classList.toggle("compared", records.length > 1);
  section.classList.toggle("rules", kind === "sudoku");
  SIDES.forEach((side, i) => {
    const record = records[i];
    find(`view-${side}`).hidden = !record;
    if (!record) return;
    find(`title-${side}`).textContent = titleOf(requests[i].options);
    find(`given-${side}`).textContent = record.prompt;
    find(`given-${side}`).hidden = !record.prompt;
    find(`outcome-${side}`).textContent = outcome(record);
  });
  find("command").textContent = commandFor(requests[0]);
  player.load(records.map((record, i) => toSample(record, titleOf(requests[i].options))));
  section.querySelector(".board").focus({ preventScroll: true });
  section.scrollIntoView({ behavior: calm.matches ? "auto" : "smooth", block: "nearest" });
  if (!calm.matches) player.play();
}

function commandFor(request) {
  const shown = request.picture ? { ...request, picture: "…base64…" } : request;
  const body = JSON.stringify(shown).replaceAll("'", "'\\''");
  return `curl -H 'Content-Type: application/json' ${window.location.origin}/revise \\\n  -d '${body}'`;
}

// Beginning

function insertMask() {
  const draft = find("draft");
  draft.setRangeText(MASK_SIGN, draft.selectionStart, draft.selectionEnd, "end");
  draft.focus();
  isOwn();
}

const isOwn = () => { find("example").value = ""; };

for (const side of SIDES) {
  const names = Object.entries(POLICIES).map(([value, name]) => option(name, value));
  find(`policy-${side}`).replaceChildren(...(side === "b" ? [option("nothing", "")] : []), ...names);
  find(`policy-${side}`).addEventListener("change", showSettings);
}
for (const choice of kindChoices) choice.addEventListener("change", () => chooseKind(choice.value));
for (const id of ["prompt", "draft", "instruction", "file"]) find(id).addEventListener("input", isOwn);
find("editor").addEventListener("change", isOwn);
find("model").addEventListener("change", fillExamples);
find("example").addEventListener("change", loadExample);
find("insert-mask").addEventListener("click", insertMask);
find("stop").addEventListener("click", () => running && running.abort());
find("ask").addEventListener("submit", revise);
find("settings").open = window.matchMedia("(min-width: 56rem)").matches;
showSettings();

try {
  offered = await (await fetch("/models")).json();
} catch {
  complain("The server does not answer; is `remask demo` still running?");
}
for (const choice of kindChoices) {
  const isMissing = choice.value in offered.missing;
  choice.parentElement.classList.toggle("unavailable", isMissing);
  choice.setAttribute("aria-disabled", isMissing);
}
chooseKind(kindChoices.map((choice) => choice.value).find((value) => !(value in offered.missing)) || "sudoku");
find("ask").dataset.ready = "true";
