"use strict";
// Loads the report's samples into its player: a run and a sample are chosen from lists.
(() => {
  const data = document.getElementById("showcase");
  if (!data) return;
  const runs = JSON.parse(data.textContent);
  const [section, runChoice, sampleChoice] =
    ["player", "run", "sample"].map((id) => document.getElementById(id));
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
  }

  runChoice.addEventListener("change", chooseRun);
  sampleChoice.addEventListener("change", chooseSample);
  section.hidden = false;
  fillRuns();
  chooseRun();
})();
