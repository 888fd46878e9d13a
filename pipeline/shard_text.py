"""Rows of text as text: tokens as the data's tokenizer writes them, MASK and changes marked.

A data set of text keeps its tokenizer under `inputs/`, beside an inputs.json that says its kind.
"""

import json
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.cells import cell_len
from rich.text import Text

from remask.models.text.prompts import TextTokenizer
from remask.models.text.tokens import FILES
from remask.pipeline.format.rows import Row, states
from remask.pipeline.runtime.storage import Storage
from remask.pipeline.runtime.terminal import visible

INPUTS, DESCRIPTION = "inputs", "inputs.json"
TOKENIZER = (*FILES, "special_tokens_map.json", "chat_template.jinja", "merges.txt")
MASK, END = "▒", "∎"
REVEALED, REMASKED, WRONG = "+", "−", "×"
LEGEND = (
    f"{MASK} MASK, {END} end, {REVEALED} just revealed, {REMASKED} just re-masked, {WRONG} wrong"
)
WINDOW = 16
"""Tokens before a token that may decide what it adds to the text."""
STYLES = {WRONG: "bold red", REVEALED: "green", REMASKED: "yellow"}


def find_tokenizer(uri: str) -> TextTokenizer | None:
    """The tokenizer that a data set of text keeps; None for other data, and for older sets."""
    storage = Storage(uri)
    names = storage.names(INPUTS)
    if DESCRIPTION not in names:
        return None
    try:
        description = json.loads(storage.read(f"{INPUTS}/{DESCRIPTION}"))
        is_text = description["source"]["kind"] == "text"
    except (ValueError, RecursionError, LookupError, TypeError):
        return None
    if not is_text:
        return None
    with tempfile.TemporaryDirectory(prefix="remask-tokenizer-") as folder:
        for name in TOKENIZER:
            if name in names:
                Path(folder, name).write_bytes(storage.read(f"{INPUTS}/{name}"))
        mask = description["source"].get("mask_token")
        try:
            return TextTokenizer(folder, mask_token=mask if isinstance(mask, str) else None)
        except ValueError as error:
            reason = str(error).replace(folder, storage.path(INPUTS))
            raise ValueError(f"{reason}; or name another one with --tokenizer") from error


def text_lines(row: Row, tokenizer: TextTokenizer) -> Iterator[Text]:
    """The states of a row as text, each followed by a line that marks what is to be seen.

    Raises:
        ValueError: The row has other ids than the tokenizer.
    """
    if row.mask_id != tokenizer.mask_id or int(row.target.max(initial=0)) >= tokenizer.size:
        raise ValueError(
            f"tokenizer {tokenizer.name} has MASK at {tokenizer.mask_id} and {tokenizer.size} ids, "
            f"the row MASK at {row.mask_id} and ids up to {row.target.max(initial=0)}; name the "
            "tokenizer that the data were built with"
        )
    before: list[int] | None = None
    target = row.target.tolist()
    for k, state in enumerate(x.tolist() for x in states(row)):
        line = Text(f"{'→' if k == row.step else ' '} {k:3} ")
        below = Text(" " * line.cell_len)
        for i, piece in enumerate(pieces(state, tokenizer)):
            mark = _mark(
                state[i], target[i], state[i] if before is None else before[i], row.mask_id
            )
            line.append(piece, STYLES.get(mark, "yellow" if state[i] == row.mask_id else ""))
            below.append(
                mark.ljust(cell_len(piece)) if cell_len(piece) else "", STYLES.get(mark, "")
            )
        yield line
        if below.plain.strip():
            below.rstrip()
            yield below
        before = state


def pieces(ids: Sequence[int], tokenizer: TextTokenizer) -> list[str]:
    """What each token adds to the text. The bytes of one character may be several tokens, of which
    the last one shows it."""
    shown: list[str] = []
    run: list[int] = []
    for token in ids:
        if token == tokenizer.mask_id or token in tokenizer.end_ids:
            shown.append(MASK if token == tokenizer.mask_id else END)
            run = []
            continue
        run = run[-WINDOW:]
        before = _decode(run, tokenizer).rstrip("\N{REPLACEMENT CHARACTER}")
        run = [*run, token]
        after = _decode(run, tokenizer)
        whole = after.rstrip("\N{REPLACEMENT CHARACTER}")
        piece = whole[len(before) :] if whole.startswith(before) else _decode([token], tokenizer)
        shown.append(_plain(piece))
    return shown


def _decode(ids: list[int], tokenizer: TextTokenizer) -> str:
    return tokenizer.inner.decode(
        ids, skip_special_tokens=False, clean_up_tokenization_spaces=False
    )


def _plain(text: str) -> str:
    """Text in one line of a terminal."""
    return visible(text.replace("\n", "⏎").replace("\t", "⇥"))


def _mark(token: int, target: int, before: int, mask_id: int) -> str:
    if token == mask_id:
        return REMASKED if before != mask_id else ""
    if token != target:
        return WRONG
    return REVEALED if token != before else ""
