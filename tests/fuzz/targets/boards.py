"""Sudoku boards: files of solved ones to build from, and boards to revise."""

from random import Random

from remask.infra import revise
from remask.pipeline import build
from tests.fuzz.bases import CHECKPOINT, checkpoint
from tests.fuzz.case import Case, Target
from tests.fuzz.mutate import mutate_bytes, mutate_text

SMALL, OTHER = "1234341221434321", "4321214334121234"
LARGE = "534678912672195348198342567859761423426853791713924856961537284287419635345286179"
PARTS = (
    "0",
    ".",
    "5",
    "9",
    "a",
    " ",
    "\n",
    "\n\n",
    SMALL,
    LARGE,
    "٣",
    "²",
    "𝟙",
    "-1",
    "\r\n",
    "\x85",
)
NAMES = ("boards.txt", "records", "usage")
RECIPE = b"""output: data-of-fuzz
source: {kind: sudoku, side: 4, file: boards.txt}
trajectories: {horizon: 4, noisy_rate: [0.2, 0.9]}
run: {workers: 0}
"""


def make_file(rng: Random) -> Case:
    """A file of boards, one a line."""
    lines = "\n".join([LARGE if rng.random() < 0.1 else SMALL] * rng.randint(1, 4))
    if rng.random() < 0.3:
        chosen = [rng.choice((SMALL, SMALL, OTHER, OTHER, "", " ", LARGE)) for _ in range(3)]
        files = {"boards.txt": "\n".join(chosen).encode(), "recipe.yaml": RECIPE}
        return Case(files, notes=tuple(chosen), names=NAMES)
    if rng.random() < 0.2:
        data, notes = mutate_bytes(lines.encode(), rng)
    else:
        changed, notes = mutate_text(lines, rng, PARTS)
        data = changed.encode(errors="surrogatepass")
    files = {"boards.txt": data, "recipe.yaml": RECIPE}
    return Case(files, notes=tuple(notes), names=NAMES)


def make_arguments(rng: Random) -> Case:
    """Boards on the command line, or in a file, some with a mask of what may change."""
    case = make_file(rng)
    board = rng.choice((SMALL, SMALL.replace("1", "0"), f"{SMALL} 0000110000000001"))
    changed, notes = mutate_text(board, rng, PARTS)
    said = changed.replace("\0", "").encode(errors="ignore").decode()
    boards = rng.choice((["boards.txt"], [said], [said, "boards.txt"]))
    given = ("boards.txt", "board", "--", "usage", *(x[:20] for x in boards))
    return Case(case.files | checkpoint(), tuple(boards), (*case.notes, *notes), given)


def run_build(case: Case) -> None:
    build.main(["recipe.yaml"])


def run_revise(case: Case) -> None:
    revise.main(["--checkpoint", CHECKPOINT, "--max-steps", "2", "--show", "--", *case.arguments])


TARGETS = (
    Target("boards-build", make_file, run_build),
    Target("boards-revise", make_arguments, run_revise),
)
