"""The page and its files, as they are served: read once, from this package and the report's.

The player is the report's own: `player.js`, `player_controls.html` and `report.css`.
"""

from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from remask.evaluation.report.templates import FOLDER as REPORT

FOLDER = Path(__file__).parent / "page"
JAVASCRIPT, CSS, HTML = "text/javascript", "text/css", "text/html"


def page_files() -> dict[str, tuple[bytes, str]]:
    """Content and media type of each path; nothing else is served."""
    own = {f"/{path.name}": (path.read_bytes(), JAVASCRIPT) for path in FOLDER.glob("*.js")}
    return {
        "/": (_render("index.html"), HTML),
        "/demo.css": ((FOLDER / "demo.css").read_bytes(), CSS),
        "/report.css": ((REPORT / "report.css").read_bytes(), CSS),
        "/player.js": ((REPORT / "player.js").read_bytes(), JAVASCRIPT),
        "/icon.svg": ((FOLDER / "icon.svg").read_bytes(), "image/svg+xml"),
        **own,
    }


def _render(name: str) -> bytes:
    environment = Environment(
        loader=FileSystemLoader([FOLDER, REPORT]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(name).render().encode()
