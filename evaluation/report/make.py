"""Make one self-contained HTML page from evaluations: tables, curves, samples step by step.

    remask report runs/sudoku/eval
    remask report runs/sudoku/eval runs/sudoku4/eval --output sudoku.html
    remask report runs/emoji/eval --sheet edits.png

The folders are outputs of `remask eval`, on any storage. The page needs no network and opens in any
browser; it defaults to report.html in the first folder.
"""

import argparse
import time

from remask.evaluation.report.page import render
from remask.evaluation.report.results import read_evaluation
from remask.evaluation.report.sheet import draw_sheet
from remask.pipeline.edits.images import to_png
from remask.pipeline.runtime.ending import duration, say_next
from remask.pipeline.runtime.storage import Storage, StorageError
from remask.pipeline.runtime.terminal import fail, say


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="remask report", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "folders", nargs="+", metavar="EVAL_FOLDER", help="outputs of `remask eval`"
    )
    parser.add_argument("--output", help="file to write (default: report.html in the first folder)")
    parser.add_argument("--sheet", help="also draw edited pictures side by side into this PNG file")
    arguments = parser.parse_args(argv)
    started = time.monotonic()
    try:
        written = write_report(arguments.folders, arguments.output)
        if arguments.sheet:
            sheet = to_png(draw_sheet(read_evaluation(arguments.folders[0])))
            _write(arguments.sheet, sheet, "--sheet")
    except ValueError as error:
        fail("remask report", 2, error)
    except StorageError as error:
        fail("remask report", 1, error)
    say(f"report: one page in {duration(time.monotonic() - started)}: {written}")
    say_next(f"open {written} in a browser")


def write_report(folders: list[str], output: str | None = None) -> str:
    """Write the report of some folders atomically, and return its path."""
    page = render([read_evaluation(folder) for folder in folders])
    data = page.encode(errors="backslashreplace")  # lone surrogates are shown by their number
    return _write(output or f"{folders[0].rstrip('/')}/report.html", data, "--output")


def _write(file: str, data: bytes, option: str) -> str:
    folder, _, name = file.rpartition("/")
    if not name:
        raise ValueError(f"{option} must be a file, got the folder {file}")
    if file.startswith("/") and not folder:
        folder = "/"
    storage = Storage(folder or ".")
    storage.write(name, data)
    return storage.path(name)


if __name__ == "__main__":
    main()
