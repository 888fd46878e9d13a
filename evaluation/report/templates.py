"""The report's Jinja2 templates: `*.html` beside this file. Every value is escaped."""

from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

FOLDER = Path(__file__).parent

_ENVIRONMENT = Environment(
    loader=FileSystemLoader(FOLDER),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)
_ENVIRONMENT.policies["json.dumps_kwargs"] = {"separators": (",", ":")}


def render_template(name: str, **values: Any) -> Markup:
    """A template with its values filled in. The result is HTML and is not escaped again."""
    return Markup(_ENVIRONMENT.get_template(name).render(values))


def read_own(name: str) -> Markup:
    """A file of this folder, such as the style sheet, as it stands."""
    return Markup((FOLDER / name).read_text(encoding="utf-8"))
