// A Sudoku board to edit: by mouse, by touch with the pad, and by keyboard.

export function makeBoard(holder, pad) {
  let side = 0, digits = [], locked = [], cells = [], chosen = 0;

  function build(wanted) {
    if (wanted === side) return;
    [side, chosen] = [wanted, 0];
    holder.classList.toggle("small", side < 9);
    const box = Math.sqrt(side);
    const table = document.createElement("table");
    table.setAttribute("role", "grid");
    table.setAttribute("aria-label", "Board to revise");
    const body = table.createTBody();
    cells = Array.from({ length: side * side }, (_, i) => {
      const [row, column] = [Math.floor(i / side), i % side];
      if (column === 0) body.insertRow();
      const cell = body.rows[row].insertCell();
      cell.setAttribute("role", "gridcell");
      cell.classList.toggle("box-top", row > 0 && row % box === 0);
      cell.classList.toggle("box-left", column > 0 && column % box === 0);
      cell.addEventListener("click", () => choose(i));
      return cell;
    });
    holder.replaceChildren(table);
    const button = (text, className, act) => {
      const made = document.createElement("button");
      [made.type, made.textContent, made.className] = ["button", text, className];
      made.addEventListener("click", act);
      return made;
    };
    const keys = Array.from({ length: side }, (_, k) => button(String(k + 1), "", () => put(k + 1)));
    pad.replaceChildren(
      ...keys,
      button("MASK", "wide", () => put(0)),
      button("Lock", "", toggleLock),
      button("Lock all digits", "lock", () => lockAll(true)),
      button("Unlock all", "lock", () => lockAll(false)),
    );
  }

  function load(text, editable) {
    build(Math.sqrt(text.length));
    digits = [...text].map((character) => (character === "." ? 0 : Number(character)));
    locked = digits.map((digit, i) => Boolean(digit) && Boolean(editable) && editable[i] === "0");
    draw();
  }

  function draw() {
    cells.forEach((cell, i) => {
      cell.textContent = digits[i] || "·";
      cell.classList.toggle("blank", !digits[i]);
      cell.classList.toggle("locked", locked[i]);
      cell.tabIndex = i === chosen ? 0 : -1;
      const place = `row ${Math.floor(i / side) + 1} column ${(i % side) + 1}`;
      const said = `${digits[i] || "MASK"}${locked[i] ? ", locked" : ""}`;
      cell.setAttribute("aria-label", `${place}: ${said}`);
    });
  }

  function choose(i) {
    chosen = i;
    draw();
    cells[i].focus();
  }

  function put(digit) {
    digits[chosen] = digit;
    if (!digit) locked[chosen] = false;  // a MASK that may not change could never be filled in
    holder.dispatchEvent(new Event("change"));
    draw();
  }

  function toggleLock() {
    locked[chosen] = Boolean(digits[chosen]) && !locked[chosen];
    draw();
  }

  function lockAll(wanted) {
    locked = digits.map((digit) => Boolean(digit) && wanted);
    draw();
  }

  holder.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    const [row, column] = [Math.floor(chosen / side), chosen % side];
    const moves = {
      ArrowLeft: column > 0 ? -1 : 0,
      ArrowRight: column < side - 1 ? 1 : 0,
      ArrowUp: row > 0 ? -side : 0,
      ArrowDown: row < side - 1 ? side : 0,
      Home: -column,
      End: side - 1 - column,
    };
    if (event.key in moves) choose(chosen + moves[event.key]);
    else if (/^[1-9]$/.test(event.key) && Number(event.key) <= side) put(Number(event.key));
    else if (["0", ".", "Delete", "Backspace", " "].includes(event.key)) put(0);
    else if (event.key.toLowerCase() === "l") toggleLock();
    else return;
    event.preventDefault();
  });

  holder.addEventListener("paste", (event) => {
    const text = event.clipboardData.getData("text").replace(/\s/g, "");
    if (text.length !== side * side || !/^[0-9.]+$/.test(text)) return;
    event.preventDefault();
    load(text, null);
    holder.dispatchEvent(new Event("change"));
  });

  return {
    load,
    request: () => ({
      board: digits.join(""),
      ...(locked.includes(true) && { editable: locked.map((is) => (is ? "0" : "1")).join("") }),
    }),
  };
}
