"use strict";
// Steps through the states of samples, which are shown side by side and move together. Everything
// shown is set as text, never as markup.
//
// A sample has `states`, the tokens of every state with 0 for MASK, and optionally `symbols` (what
// tokens are called), `columns` (without, cells flow like words), `box`, `solution` or `broken`
// (cells that break a rule, by state), `state_pictures`, `p_mask` (by state) and `editable`.

const element = (tag, className, text) => {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
};

// One sample on a board, with its status and, if the page has room for it, a reading of one cell.
function makeView(board, status, reading) {
  let sample, cells, step = 0;

  function load(loaded) {
    sample = loaded;
    const parent = sample.columns ? makeTable() : element("div", "flow");
    if (!sample.columns) parent.setAttribute("role", "list");
    cells = sample.states[0].map((_, i) => (sample.columns ? tableCell(parent, i) : wordCell(parent)));
    board.replaceChildren(parent);
  }

  function makeTable() {
    const table = element("table", sample.state_pictures ? "picture" : "");
    const [widest, narrow] = [26 / sample.columns, 82 / sample.columns];
    table.style.setProperty("--side", `min(${widest}rem, ${narrow}vw)`);
    table.append(element("caption", "hidden", `Sample ${sample.sample_id}`));
    table.createTBody();
    return table;
  }

  function tableCell(table, i) {
    const [row, column] = [Math.floor(i / sample.columns), i % sample.columns];
    const body = table.tBodies[0];
    if (column === 0) body.insertRow();
    const cell = body.rows[row].insertCell();
    cell.dataset.box = [
      row && sample.box && row % sample.box === 0 ? "box-top" : "",
      column && sample.box && column % sample.box === 0 ? "box-left" : "",
    ].join(" ");
    return cell;
  }

  function wordCell(flow) {
    const cell = element("span");
    cell.setAttribute("role", "listitem");
    flow.append(cell);
    return cell;
  }

  // The token of a cell, and how it changed since the step before.
  function look(i) {
    const now = sample.states[step][i];
    const before = step ? sample.states[step - 1][i] : now;
    const differs = Boolean(sample.solution) && now !== sample.solution[i];
    return {
      now,
      before,
      masked: now === 0,
      remasked: now === 0 && before !== 0,
      revealed: now !== 0 && now !== before,
      wrong: now !== 0 && (differs || Boolean(sample.broken && sample.broken[step][i])),
      fixed: Boolean(sample.editable) && !sample.editable[i],
      doubt: sample.p_mask ? sample.p_mask[step][i] : undefined,
    };
  }

  function named(token) {
    return sample.symbols ? sample.symbols[token] : String(token - Boolean(sample.state_pictures));
  }

  const visible = (text) => (text.trim() ? text : text.replace(/\n/g, "↵").replace(/ /g, "␣"));

  function draw(cell, i, seen) {
    const kinds = ["masked", "remasked", "revealed", "wrong", "fixed"].filter((kind) => seen[kind]);
    cell.className = ["cell", cell.dataset.box, ...kinds].join(" ").replace(/\s+/g, " ").trim();
    const isPicture = Boolean(sample.state_pictures);  // the picture shows the token, its number means nothing
    const parts = [element("span", "digit", seen.masked ? "·" : isPicture ? "" : visible(named(seen.now)))];
    if (seen.remasked) {
      parts.push(element("span", "was", isPicture ? "−" : `−${visible(named(seen.before))}`));
    }
    if (seen.revealed) parts.push(element("span", "new", "+"));
    if (seen.wrong) parts.push(element("span", "bad", "×"));
    if (seen.doubt >= 0.01) {
      const bar = element("span", "doubt");
      bar.style.width = `${100 * seen.doubt}%`;
      parts.push(bar);
    }
    cell.replaceChildren(...parts);
    cell.setAttribute("aria-label", describe(i, seen));
  }

  function describe(i, seen) {
    const isPicture = Boolean(sample.state_pictures);
    const said = [seen.masked ? "masked" : (isPicture ? "code " : "") + visible(named(seen.now))];
    if (seen.remasked) said.push(`just re-masked, was ${visible(named(seen.before))}`);
    if (seen.revealed) said.push("just revealed");
    if (seen.wrong) said.push(sample.solution ? "wrong" : "breaks a rule");
    if (seen.fixed) said.push("fixed");
    if (Number.isFinite(seen.doubt)) said.push(`p(MASK) ${seen.doubt.toFixed(3)}`);
    const columns = sample.columns;
    const place = columns
      ? `row ${Math.floor(i / columns) + 1} column ${(i % columns) + 1}`
      : `token ${i + 1}`;
    return `${place}: ${said.join(", ")}`;
  }

  function show(wanted) {
    const last = sample.states.length - 1;
    step = Math.min(wanted, last);
    if (sample.state_pictures) {
      const picture = `url("data:image/png;base64,${sample.state_pictures[step]}")`;
      board.firstChild.style.backgroundImage = picture;
    }
    const seen = cells.map((_, i) => look(i));
    cells.forEach((cell, i) => draw(cell, i, seen[i]));
    status.textContent = summary(seen, last);
  }

  function summary(seen, last) {
    const count = (kind) => seen.filter((cell) => cell[kind]).length;
    const [wrong, masked] = [count("wrong"), count("masked")];
    const said = step ? [`${count("remasked")} re-masked`, `${count("revealed")} revealed`] : [];
    if (sample.solution) said.push(`${wrong} wrong ${step ? "left" : "at the start"}`);
    if (sample.broken && wrong) said.push(`${wrong} in conflict`);
    if (masked) said.push(`${masked} masked`);
    if (!wrong && !masked && sample.solution) said.push(sample.state_pictures ? "as the target" : "solved");
    if (!wrong && !masked && sample.broken) said.push("valid");
    return `step ${step} of ${last}${said.length ? `: ${said.join(", ")}` : ""}`;
  }

  // Marks a cell and says what the model thinks of it; -1 marks none.
  function read(i) {
    cells.forEach((cell, k) => cell.classList.toggle("read", k === i));
    if (!reading) return;
    const cell = cells[i];
    reading.textContent = cell ? cell.getAttribute("aria-label") : reading.dataset.empty;
  }

  return {
    load, show, read,
    length: () => sample.states.length,
    columns: () => sample.columns,
    cells: () => cells,
  };
}

// The player of a page: boards with the class `board`, and the controls of `player_controls.html`.
function makePlayer(player) {
  const find = (id) => player.querySelector(`#${id}`);
  const all = (name) => [...player.querySelectorAll(`.${name}`)];
  const [slider, playButton, boards] = [find("step"), find("play"), all("board")];
  const [statuses, readings] = [all("status"), all("reading")];
  const views = boards.map((board, i) => makeView(board, statuses[i], readings[i]));
  const calm = window.matchMedia("(prefers-reduced-motion: reduce)");
  let shown = [], step = 0, marked = -1, timer = null;

  const lastStep = () => Math.max(...shown.map((view) => view.length())) - 1;

  function load(samples) {
    pause();
    marked = -1;
    shown = views.slice(0, samples.length);
    samples.forEach((sample, i) => views[i].load(sample));
    slider.max = lastStep();
    show(0);
  }

  function show(wanted) {
    const last = lastStep();
    step = Math.min(Math.max(wanted, 0), last);
    for (const view of shown) view.show(step);
    read(marked);
    slider.value = step;
    slider.setAttribute("aria-valuetext", statuses[0].textContent);
    // `disabled` would remove the focus from the button at either end.
    for (const id of ["first", "previous"]) find(id).setAttribute("aria-disabled", step === 0);
    for (const id of ["next", "last"]) find(id).setAttribute("aria-disabled", step === last);
    if (step === last) pause();
  }

  function read(i) {
    marked = i;
    for (const view of shown) view.read(i);
  }

  function pause() {
    clearInterval(timer);
    timer = null;
    playButton.textContent = "Play";
  }

  function play() {
    if (step === lastStep()) show(0);
    playButton.textContent = "Pause";
    timer = setInterval(() => show(step + 1), calm.matches ? 2000 : 900);
  }

  const goTo = (wanted) => { pause(); show(wanted); };
  const toggle = () => (timer === null ? play() : pause());
  const first = () => goTo(0);
  const previous = () => goTo(step - 1);
  const next = () => goTo(step + 1);
  const last = () => goTo(lastStep());

  // Moves the mark over the cells of the board in focus.
  function walk(event) {
    const view = shown[boards.indexOf(event.target)];
    if (!view || !readings.length) return null;
    const row = view.columns() || 1;
    const moves = { ArrowUp: -row, ArrowDown: row };
    if (event.shiftKey) Object.assign(moves, { ArrowLeft: -1, ArrowRight: 1 });
    const move = moves[event.key];
    if (!move) return null;
    const wanted = marked < 0 ? 0 : marked + move;
    return () => read(wanted >= 0 && wanted < view.cells().length ? wanted : marked);
  }

  slider.addEventListener("input", () => goTo(Number(slider.value)));
  for (const [id, act] of Object.entries({ first, previous, play: toggle, next, last })) {
    find(id).addEventListener("click", act);
  }
  if (readings.length) {
    boards.forEach((board, i) => {
      board.addEventListener("pointerover", (event) => {
        const cell = event.target.closest(".cell");
        if (cell && shown[i]) read(shown[i].cells().indexOf(cell));
      });
    });
  }
  player.addEventListener("keydown", (event) => {
    const keys = { ArrowLeft: previous, ArrowRight: next, Home: first, End: last, " ": toggle };
    const act = walk(event) || (event.shiftKey ? null : keys[event.key]);
    const isOwn = event.target.tagName === "SELECT"  // lists and buttons handle keys themselves
      || (event.key === " " && event.target.tagName === "BUTTON");
    if (!act || isOwn || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    act();
  });

  return { load, play, pause };
}
