"""The first fault of a JSONL file, which `datasets` does not report when it fails to read one."""

import json

from remask.pipeline.runtime.storage import read_file


def first_fault(uri: str) -> str | None:
    """The first line of a .jsonl file that is not a JSON object, and why.

    Returns None for other files, if all lines are objects, and if the file cannot be read.
    """
    if not uri.endswith(".jsonl"):
        return None
    try:
        lines = read_file(uri).splitlines()
    except ValueError:
        return None
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            return f"line {number} is not JSON: {error}"
        if not isinstance(row, dict):
            return f"line {number} holds {type(row).__name__}, not keys and values"
    return None
