"use strict";
// Loads the report's samples into its player: a run and a sample are chosen from lists.
(() => {
  const data = document.getElementById("showcase");
  if (!data) return;
  const runs = JSON.parse(data.textContent);
  const find = (id) => document.getElementById(id);
  const [section, runChoice, sampleChoice] = ["player", "run", "sample"].map(find);
  const player = makePlayer(section);
  let sample;

  function option(text, value) {
    const made = element("option", "", text);
    made.value = value;
    return made;
  }

  function fillRuns() {
    const groups = new Map();
    runs.forEach((run, i) => {
      let parent = runChoice;
      if (run.group) {
        parent = groups.get(run.group);
        if (!parent) {
          parent = element("optgroup");
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
    sample = runs[runChoice.value].samples[sampleChoice.value];
    player.load([sample]);
    const answer = sample.answer;
    for (const id of ["asked", "verdict"]) find(id).hidden = !answer;
    section.classList.toggle("prose", !sample.columns);
    section.classList.toggle("judged", Boolean(sample.solution));
    if (!answer) return;
    find("prompt").textContent = answer.prompt;
    const said = [answer.is_right ? "✓ right" : "✗ wrong", answer.detail];
    if (answer.found && !answer.found.includes("\n")) said.push(`answer found: ${answer.found}`);
    if (answer.expected) said.push(`expected: ${answer.expected}`);
    find("verdict").textContent = `In the end: ${said.filter(Boolean).join(", ")}`;
    find("verdict").classList.toggle("is-wrong", !answer.is_right);
  }

  runChoice.addEventListener("change", chooseRun);
  sampleChoice.addEventListener("change", chooseSample);
  section.hidden = false;
  fillRuns();
  chooseRun();
})();
