// From the server's records to the samples that the player shows.

const MASK = "·";

export function toSample(record, title) {
  const isPicture = record.kind === "image_edit";
  const symbols = isPicture ? null : [MASK];
  const numbers = new Map([[MASK, 0]]);
  const numberOf = (cell) => {
    if (isPicture) return cell === MASK ? 0 : Number(cell) + 1;
    if (!numbers.has(cell)) {
      numbers.set(cell, symbols.length);
      symbols.push(cell);
    }
    return numbers.get(cell);
  };
  const states = record.steps.map((step) => step.cells.map(numberOf));
  return {
    sample_id: title,
    columns: record.columns,
    box: record.box,
    states,
    symbols,
    editable: isPicture ? null : record.editable,
    p_mask: record.steps.map((step) => step.p_mask),
    state_pictures: isPicture ? record.steps.map((step) => step.picture) : null,
    broken: record.kind === "sudoku"
      ? record.steps.map((step) => inConflict(step.cells, record.columns, record.box))
      : null,
  };
}

// Cells of a board whose digit stands twice in its row, column or box.
function inConflict(cells, side, box) {
  const groups = new Map();
  cells.forEach((digit, i) => {
    if (digit === MASK) return;
    const [row, column] = [Math.floor(i / side), i % side];
    const inBox = Math.floor(row / box) * box + Math.floor(column / box);
    for (const group of [`row ${row}`, `column ${column}`, `box ${inBox}`]) {
      const key = `${group} ${digit}`;
      groups.set(key, [...(groups.get(key) || []), i]);
    }
  });
  const broken = cells.map(() => false);
  for (const members of groups.values()) {
    if (members.length > 1) members.forEach((i) => { broken[i] = true; });
  }
  return broken;
}

export function outcome(record) {
  const { steps, forward_passes: passes, remasked, revealed, replaced } = record.counts;
  const many = (count, word) => `${count} ${word}${count === 1 ? "" : "s"}`;
  const done = steps
    ? `${many(steps, "step")}, ${many(passes, "forward pass").replace("passs", "passes")}; in all `
      + `${remasked} re-masked, ${revealed} revealed, ${many(replaced, "token")} replaced.`
    : "Nothing to do: this decoder only fills in MASKs, and there are none.";
  return record.note ? `${done} ${capital(record.note)}.` : done;
}

const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);
