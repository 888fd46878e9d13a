"""What is wrong with a JSONL file, where a library that failed to read it does not say."""

import json

from remask.pipeline.runtime.storage import read_file


def first_fault(uri: str) -> str | None:
    """The first line of a .jsonl file that is no JSON object, and why; none for other files, for
    one whose lines are all objects, and for one that cannot be read."""
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
