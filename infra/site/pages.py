"""Which documents the site has, where they stand, and their texts as MkDocs reads them.

A document keeps its path in the repository, so that links between documents work on the site as
they do in the repository. Links to other files, such as modules, become their paths.
"""

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from remask import CLONE
from remask.infra.keys import recipe_kinds
from remask.infra.site.api import MODULES, api_page
from remask.infra.site.commands import commands_page
from remask.infra.site.reference import keys_overview, keys_page

ROOMS = ("pipeline", "training", "evaluation", "models", "kernels", "infra")
DOCS = "infra/docs"
RESULTS = "evaluation/results"
PICTURES = (".png", ".svg", ".gif", ".jpg", ".webp")
_FENCE = re.compile(r"^(\s*)(```|~~~)")
_LINK = re.compile(r"(!?)\[([^\]\[]*(?:\[[^\]]*\])?[^\]\[]*)\]\(([^)\s]+)\)")
_ITEM = re.compile(r"^\s*([-*]|\d+\.) ")


def documents(root: Path = CLONE) -> list[str]:
    """Paths of the documents in the repository that are pages of the site."""
    found = [
        "README.md",
        *(f"{room}/README.md" for room in ROOMS),
        *_names(root, DOCS),
        *_names(root, RESULTS),
        "CONTRIBUTING.md",
        "CHANGELOG.md",
    ]
    return [path for path in found if (root / path).is_file()]


def generated() -> dict[str, str]:
    """The texts of the pages that are made from the code, by path."""
    pages = {"reference/keys/README.md": keys_overview(), "reference/commands.md": commands_page()}
    pages |= {f"reference/keys/{verb}.md": keys_page(verb) for verb in recipe_kinds()}
    return pages | {f"reference/api/{name}.md": api_page(name) for name in MODULES}


def navigation(root: Path = CLONE) -> list[dict[str, object]]:
    """The site's navigation; every page is in it."""
    results = [x for x in _names(root, RESULTS) if not x.endswith("README.md")]
    keys = [{verb: f"reference/keys/{verb}.md"} for verb in recipe_kinds()]
    return [
        {"Home": "README.md"},
        {
            "Start": [
                {"Getting started": f"{DOCS}/getting_started.md"},
                {"Your own text": f"{DOCS}/own_text.md"},
                {"The method in short": f"{DOCS}/method.md"},
                {"Installing": f"{DOCS}/install.md"},
                {"On a cluster": f"{DOCS}/cluster.md"},
            ]
        },
        {
            "Help": [
                {"Troubleshooting": f"{DOCS}/troubleshooting.md"},
                {"Questions": f"{DOCS}/faq.md"},
            ]
        },
        {
            "Reference": [
                {"Commands": "reference/commands.md"},
                {"Recipe keys": [{"All recipes": "reference/keys/README.md"}, *keys]},
                {"Python": [{name: f"reference/api/{name}.md"} for name in MODULES]},
            ]
        },
        {"Rooms": [{room: f"{room}/README.md"} for room in ROOMS]},
        {"Results": [{"Overview": f"{RESULTS}/README.md"}, *results]},
        {"Project": [{"Contributing": "CONTRIBUTING.md"}, {"Changes": "CHANGELOG.md"}]},
    ]


def page_text(path: str, root: Path = CLONE) -> str:
    """A document as MkDocs reads it."""
    known = set(documents(root))
    lines = []
    for is_code, line in split_code((root / path).read_text("utf-8")):
        if not is_code:
            line = _LINK.sub(lambda match: _link(match, path, known, root), line)
            if _ITEM.match(line) and lines and lines[-1].strip() and not _continues(lines[-1]):
                lines.append("")  # a list directly after a sentence
        lines.append(line)
    return "\n".join(lines) + "\n"


def pictures(root: Path = CLONE) -> list[str]:
    """Paths of the pictures that documents show."""
    found = set()
    for path in documents(root):
        for is_code, line in split_code((root / path).read_text("utf-8")):
            if not is_code:
                targets = (_resolve(path, match[3]) for match in _LINK.finditer(line))
                found |= {x for x in targets if x.endswith(PICTURES) and (root / x).is_file()}
    return sorted(found)


def split_code(text: str) -> Iterator[tuple[bool, str]]:
    """Each line of a document, and whether it belongs to a fenced block."""
    fence = None
    for line in text.splitlines():
        match = _FENCE.match(line)
        yield fence is not None or match is not None, line
        if match:
            fence = None if fence == match[2] else fence or match[2]


def _names(root: Path, folder: str) -> list[str]:
    names = sorted(x.name for x in (root / folder).glob("*.md"))
    return [f"{folder}/{name}" for name in sorted(names, key=lambda x: x != "README.md")]


def _continues(before: str) -> bool:
    """Whether an item after this line belongs to a list that has begun."""
    return bool(_ITEM.match(before)) or before.startswith(" ")


def _link(match: re.Match[str], path: str, known: set[str], root: Path) -> str:
    bang, text, target = match.groups()
    if re.match(r"[a-z]+:|#", target):
        return match[0]
    place, _, fragment = target.partition("#")
    resolved = _resolve(path, place)
    inside = f"{resolved.rstrip('/')}/README.md"
    if resolved not in known and inside in known:
        resolved = inside
        start = posixpath.dirname(path) or "."
        target = posixpath.relpath(resolved, start) + (f"#{fragment}" if fragment else "")
        return f"{bang}[{text}]({target})"
    is_page = resolved in known or bang or not (root / resolved).exists()
    if is_page:  # a link to nothing is left to MkDocs, which refuses it
        return match[0]
    name = text.strip("`")
    return f"`{resolved}`" if PurePosixPath(name).name in resolved else f"{text} (`{resolved}`)"


def _resolve(path: str, target: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
