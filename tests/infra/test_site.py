"""The documentation site: it builds without a warning, its links lead somewhere, and what its
references say is what the code says."""

import ast
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from remask.infra.cli import VERBS
from remask.infra.keys import recipe_keys, recipe_kinds
from remask.infra.site.api import MODULES, api_page, markdown, public
from remask.infra.site.commands import commands_page
from remask.infra.site.pages import documents, generated, navigation, page_text, pictures
from remask.infra.site.reference import keys_page
from tests.places import ROOT

ASSETS = {"img": "src", "script": "src", "link": "href", "iframe": "src", "source": "srcset"}


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict"]
    config = ROOT / "infra/docs/mkdocs.yml"
    done = subprocess.run(
        [*command, "--config-file", config, "--site-dir", folder],
        capture_output=True,
        text=True,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    return folder


class Page(HTMLParser):
    """The links, assets and ids of a page."""

    def __init__(self, path):
        super().__init__()
        self.links, self.assets, self.ids = [], [], set()
        self.feed(path.read_text())

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.ids.add(attributes.get("id"))
        if tag == "a" and attributes.get("href"):
            self.links.append(attributes["href"])
        if tag in ASSETS and attributes.get(ASSETS[tag]):
            self.assets.append(attributes[ASSETS[tag]])


def target_of(page, link, site):
    """The file that a link leads to."""
    path = unquote(urlsplit(link).path)
    place = site / path.lstrip("/") if path.startswith("/") else page.parent / path
    place = page if not path else Path(os.path.normpath(place))
    return place / "index.html" if place.is_dir() else place


def test_every_link_leads_to_a_page_and_a_heading_of_it(site):
    pages = {path: Page(path) for path in site.rglob("*.html") if path.name != "404.html"}
    assert len(pages) == len(documents()) + len(generated())
    for path, page in pages.items():
        for link in page.links:
            if urlsplit(link).scheme:
                continue
            target = target_of(path, link, site)
            assert target.is_file(), f"{path}: {link}"
            fragment = unquote(urlsplit(link).fragment)
            if fragment and target in pages and fragment != "__tabbed":
                assert fragment in pages[target].ids, f"{path}: {link}"


def test_no_asset_comes_from_another_site(site):
    for path in site.rglob("*.html"):
        for asset in Page(path).assets:
            assert not urlsplit(asset).scheme, f"{path}: {asset}"
            assert not asset.startswith("//"), f"{path}: {asset}"
            assert target_of(path, asset, site).is_file(), f"{path}: {asset}"
    sheets = "".join(x.read_text() for x in site.rglob("*.css"))
    assert not re.findall(r"url\(.?https?:", sheets)
    assert not re.findall(r"@import", sheets)


def flat(nav):
    for item in nav:
        if isinstance(item, str):
            yield item
        else:
            for value in item.values():
                yield from flat([value] if isinstance(value, str) else value)


def test_the_navigation_has_every_page_once():
    assert sorted(flat(navigation())) == sorted([*documents(), *generated()])
    rooms = {f"{x.parent.name}/README.md" for x in ROOT.glob("[a-z]*/README.md")}
    assert rooms <= set(documents())
    assert {f"infra/docs/{x.name}" for x in (ROOT / "infra/docs").glob("*.md")} <= set(documents())


def test_links_to_documents_stay_and_links_to_modules_become_paths(tmp_path):
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "README.md").write_text("# models")
    (tmp_path / "models" / "loop.py").write_text("")
    (tmp_path / "a.png").write_bytes(b"")
    (tmp_path / "README.md").write_text(
        "See [the room](models/README.md#x), [the same](models), [loop.py](models/loop.py),\n"
        "[the loop](models/loop.py), [nothing](none.md), ![a](a.png) and [out](https://a.b/c).\n"
        "- an item\n- another\n\n```\n[kept](models/loop.py)\n```\n"
    )
    assert page_text("README.md", tmp_path) == (
        "See [the room](models/README.md#x), [the same](models/README.md), `models/loop.py`,\n"
        "the loop (`models/loop.py`), [nothing](none.md), ![a](a.png) and [out](https://a.b/c).\n"
        "\n- an item\n- another\n\n```\n[kept](models/loop.py)\n```\n"
    )
    assert pictures(tmp_path) == ["a.png"]


@pytest.mark.parametrize("verb", recipe_kinds())
def test_the_page_of_keys_has_every_key(verb):
    rows = re.findall(r"^\| `([^`]+)` \|", keys_page(verb), re.MULTILINE)
    assert rows == [key.path for section in recipe_keys(verb) for key in section.keys]


def test_the_page_of_commands_has_every_verb_with_its_options():
    page = commands_page()
    for verb in VERBS:
        _, _, text = page.partition(f"### remask {verb}\n")
        text = text.partition("\n### ")[0]
        assert f"remask {verb}" in text
        assert "usage: remask" in text or verb == "harness"
    assert "--budgets BUDGETS [BUDGETS ...]" in page


@pytest.mark.parametrize("module", MODULES)
def test_pages_of_functions_describe_each(module):
    page = api_page(module)
    for name, thing in public(module).items():
        assert f"\n## {name}\n" in page
        assert thing.__doc__, name
        assert re.search(rf"^(def|class) {name}\b", page, re.MULTILINE)
    if module == "remask":
        assert {"build", "train", "evaluate", "load", "revise"} <= set(public(module))


def test_docstrings_become_lists():
    doc = """Do it.

    More of it.

    Args:
        here: Where to do it,
            in two lines.
        **rest: Others.

    Returns:
        What was done.

    Raises ValueError if not.
    """
    lines = markdown("\n".join(x.removeprefix("    ") for x in doc.splitlines()))
    assert [x for x in lines if x.strip()] == [
        "Do it.", "More of it.", "**Args**", "- `here`: Where to do it,", "    in two lines.",
        "- `**rest`: Others.", "**Returns**", "What was done.", "Raises ValueError if not.",
    ]  # fmt: skip


def messages():
    """The texts of the code, with … for what is filled in."""
    for readme in ROOT.glob("[a-z]*/README.md"):
        for path in readme.parent.rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.JoinedStr):
                    parts = (x.value if isinstance(x, ast.Constant) else "…" for x in node.values)
                    yield "".join(parts)
                elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                    yield node.value


def test_troubleshooting_quotes_messages_that_the_code_prints():
    text = (ROOT / "infra/docs/troubleshooting.md").read_text()
    quoted = re.findall(r"^### (`+) ?(.*?) ?\1$", text, re.MULTILINE)
    assert len(quoted) > 20
    known = "\n".join(messages())
    for _, message in quoted:
        assert message in known, message
