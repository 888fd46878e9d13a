"""Make one self-contained HTML page of evaluations: tables, curves, samples step by step.

    remask report runs/sudoku/eval
    remask report runs/sudoku/eval runs/sudoku4/eval --output sudoku.html

The folders are what `remask eval` wrote, on any storage. The page needs no network and opens in any
browser; without --output it is report.html in the first folder.
"""

import argparse

from evaluation.page import render
from evaluation.results import read_evaluation
from pipeline.storage import Storage, StorageError


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="remask report", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "folders", nargs="+", metavar="EVAL_FOLDER", help="outputs of `remask eval`"
    )
    parser.add_argument("--output", help="file to write (default: report.html in the first folder)")
    arguments = parser.parse_args(argv)
    try:
        written = write_report(arguments.folders, arguments.output)
    except ValueError as error:
        parser.exit(2, f"remask report: {' '.join(str(error).split())}\n")
    except StorageError as error:
        parser.exit(1, f"remask report: {error}\n")
    print(f"report: {written}")


def write_report(folders: list[str], output: str | None = None) -> str:
    """Write the report of some folders, whole or not at all; returns where it is."""
    page = render([read_evaluation(folder) for folder in folders])
    folder, _, name = (output or f"{folders[0].rstrip('/')}/report.html").rpartition("/")
    if not name:
        raise ValueError(f"--output must be a file, got the folder {output}")
    if output is not None and output.startswith("/") and not folder:
        folder = "/"
    storage = Storage(folder or ".")
    storage.write(name, page.encode())
    return storage.path(name)


if __name__ == "__main__":
    main()
