"use strict";
// Steps through the states of a sample. Everything shown is set as text, never as markup.
(() => {
  const data = document.getElementById("showcase");
  if (!data) return;
  const runs = JSON.parse(data.textContent);
  const find = (id) => document.getElementById(id);
  const [player, runChoice, sampleChoice, board] = ["player", "run", "sample", "board"].map(find);
  const [status, slider, playButton] = ["status", "step", "play"].map(find);
  const calm = window.matchMedia("(prefers-reduced-motion: reduce)");
  let sample, cells, step, timer = null;

  function make(tag, className, text) {
    const element = document.createElement(tag);
    if (className) element.className = className;
    if (text !== undefined) element.textContent = text;
    return element;
  }

  function option(text, value) {
    const element = make("option", "", text);
    element.value = value;
    return element;
  }

  function fillRuns() {
    const groups = new Map();
    runs.forEach((run, i) => {
      let parent = runChoice;
      if (run.group) {
        parent = groups.get(run.group);
        if (!parent) {
          parent = make("optgroup");
          parent.label = run.group;
          groups.set(run.group, parent);
          runChoice.append(parent);
        }
      }
      parent.append(option(run.name, i));
    });
  }

  // Keeps the sample if the other run has it too, so that runs can be compared.
  function chooseRun() {
    const samples = runs[runChoice.value].samples;
    const wanted = sample ? samples.findIndex((other) => other.sample_id === sample.sample_id) : 0;
    sampleChoice.replaceChildren(...samples.map((s, i) =>
      option(s.note ? `${s.sample_id} (${s.note})` : s.sample_id, i)));
    sampleChoice.value = Math.max(wanted, 0);
    chooseSample();
  }

  function chooseSample() {
    pause();
    sample = runs[runChoice.value].samples[sampleChoice.value];
    const table = make("table", sample.state_pictures ? "picture" : "");
    const [widest, narrow] = [26 / sample.columns, 82 / sample.columns];
    table.style.setProperty("--side", `min(${widest}rem, ${narrow}vw)`);
    table.append(make("caption", "hidden", `Sample ${sample.sample_id}`));
    const body = table.createTBody();
    cells = sample.states[0].map((_, i) => {
      const [row, column] = [Math.floor(i / sample.columns), i % sample.columns];
      if (column === 0) body.insertRow();
      const cell = body.rows[row].insertCell();
      cell.dataset.box = [
        row && sample.box && row % sample.box === 0 ? "box-top" : "",
        column && sample.box && column % sample.box === 0 ? "box-left" : "",
      ].join(" ");
      return cell;
    });
    board.replaceChildren(table);
    slider.max = sample.states.length - 1;
    show(0);
  }

  // The token of a cell, and how it changed since the step before.
  function look(i) {
    const now = sample.states[step][i];
    const before = step ? sample.states[step - 1][i] : now;
    return {
      now,
      before,
      masked: now === 0,
      remasked: now === 0 && before !== 0,
      revealed: now !== 0 && now !== before,
      wrong: Boolean(sample.solution) && now !== 0 && now !== sample.solution[i],
    };
  }

  function draw(cell, i, seen) {
    const kinds = ["masked", "remasked", "revealed", "wrong"].filter((kind) => seen[kind]);
    cell.className = ["cell", cell.dataset.box, ...kinds].join(" ").replace(/\s+/g, " ").trim();
    const isPicture = Boolean(sample.state_pictures);  // the picture shows the token, its number means nothing
    const named = (token) => (sample.symbols ? sample.symbols[token] : String(token - isPicture));
    const parts = [make("span", "digit", seen.masked ? "·" : isPicture ? "" : named(seen.now))];
    if (seen.remasked) parts.push(make("span", "was", isPicture ? "−" : `−${named(seen.before)}`));
    if (seen.revealed) parts.push(make("span", "new", "+"));
    if (seen.wrong) parts.push(make("span", "bad", "×"));
    cell.replaceChildren(...parts);
    const said = [seen.masked ? "masked" : (isPicture ? "code " : "") + named(seen.now)];
    if (seen.remasked) said.push(`just re-masked, was ${named(seen.before)}`);
    if (seen.revealed) said.push("just revealed");
    if (seen.wrong) said.push("wrong");
    const [row, column] = [Math.floor(i / sample.columns) + 1, (i % sample.columns) + 1];
    cell.setAttribute("aria-label", `row ${row} column ${column}: ${said.join(", ")}`);
  }

  function show(wanted) {
    const last = sample.states.length - 1;
    step = Math.min(Math.max(wanted, 0), last);
    if (sample.state_pictures) {
      const picture = `url("data:image/png;base64,${sample.state_pictures[step]}")`;
      board.firstChild.style.backgroundImage = picture;
    }
    const seen = cells.map((_, i) => look(i));
    cells.forEach((cell, i) => draw(cell, i, seen[i]));
    const count = (kind) => seen.filter((cell) => cell[kind]).length;
    const [wrong, masked] = [count("wrong"), count("masked")];
    const said = step ? [`${count("remasked")} re-masked`, `${count("revealed")} revealed`] : [];
    if (sample.solution) said.push(`${wrong} wrong ${step ? "left" : "at the start"}`);
    if (masked) said.push(`${masked} masked`);
    if (!wrong && !masked && sample.solution) said.push(sample.state_pictures ? "as the target" : "solved");
    status.textContent = `step ${step} of ${last}: ${said.join(", ")}`;
    slider.value = step;
    slider.setAttribute("aria-valuetext", status.textContent);
    // `disabled` would remove the focus from the button at either end.
    for (const id of ["first", "previous"]) find(id).setAttribute("aria-disabled", step === 0);
    for (const id of ["next", "last"]) find(id).setAttribute("aria-disabled", step === last);
    if (step === last) pause();
  }

  function pause() {
    clearInterval(timer);
    timer = null;
    playButton.textContent = "Play";
  }

  function play() {
    if (step === sample.states.length - 1) show(0);
    playButton.textContent = "Pause";
    timer = setInterval(() => show(step + 1), calm.matches ? 2000 : 900);
  }

  const goTo = (wanted) => { pause(); show(wanted); };
  const toggle = () => (timer === null ? play() : pause());
  const first = () => goTo(0);
  const previous = () => goTo(step - 1);
  const next = () => goTo(step + 1);
  const last = () => goTo(sample.states.length - 1);

  runChoice.addEventListener("change", chooseRun);
  sampleChoice.addEventListener("change", chooseSample);
  slider.addEventListener("input", () => goTo(Number(slider.value)));
  for (const [id, act] of Object.entries({ first, previous, play: toggle, next, last })) {
    find(id).addEventListener("click", act);
  }
  player.addEventListener("keydown", (event) => {
    const keys = { ArrowLeft: previous, ArrowRight: next, Home: first, End: last, " ": toggle };
    const act = keys[event.key];
    const isOwn = event.target.tagName === "SELECT"  // lists and buttons handle keys themselves
      || (event.key === " " && event.target.tagName === "BUTTON");
    if (!act || isOwn || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    act();
  });

  player.hidden = false;
  fillRuns();
  chooseRun();
})();
