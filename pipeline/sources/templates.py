"""Templates of text: `Q: {question}` filled with the fields of a record."""

import re
import string
from collections.abc import Mapping
from typing import Any


def fill(template: str, record: Mapping[str, Any], data: str, number: int) -> str:
    """A template filled with a record's fields; ValueError, with the row, if it does not fit."""
    try:
        return template.format(**record)
    except (KeyError, IndexError, AttributeError, TypeError, ValueError) as error:
        raise ValueError(
            f"{data}: row {number + 1} does not fit a template ({error}); it has the fields "
            f"{sorted(record)}"
        ) from error


def template_fields(template: str) -> list[str]:
    """The record fields a template names."""
    parts = [name for _, name, _, _ in string.Formatter().parse(template) if name]
    return [re.split(r"[.\[]", part)[0] for part in parts]
