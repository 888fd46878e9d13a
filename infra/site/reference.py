"""Pages of recipe keys, from `remask.infra.keys`."""

from remask.infra.field_docs import class_doc
from remask.infra.keys import Key, Section, recipe_keys, recipe_kinds

HEAD = ("| key | type | default | meaning |", "| --- | --- | --- | --- |")


def keys_overview() -> str:
    """The page that lists the recipes and their sections."""
    lines = [
        "# Recipe keys",
        "",
        "A recipe is YAML that is read into a dataclass; unknown keys are errors. Any key can be",
        "set on the command line: `remask build sudoku4 source.train=1000`. These pages are made",
        "from the dataclasses; `remask recipes keys train optimizer` prints the same.",
        "",
        "| recipe | what it is | sections |",
        "| --- | --- | --- |",
    ]
    for verb, kind in recipe_kinds().items():
        sections = dict.fromkeys(x.path for x in recipe_keys(verb) if x.path)
        outer = ", ".join(f"`{x}`" for x in sections if "." not in x.removesuffix(".NAME"))
        lines.append(f"| [{verb}]({verb}.md) | {class_doc(kind)} | {outer or 'none'} |")
    return "\n".join(lines) + "\n"


def keys_page(verb: str) -> str:
    """The page of one verb's recipe: a table for each section."""
    kind = recipe_kinds()[verb]
    lines = [f"# Keys of `remask {verb}`", "", class_doc(kind)]
    for section in recipe_keys(verb):
        lines += ["", f"## {section.title}", "", *_section(section)]
    return "\n".join(lines) + "\n"


def _section(section: Section) -> list[str]:
    lines = [section.meaning, ""] if section.meaning and section.path else []
    if section.presets:
        lines += [f"`preset` may be {_choices(' | '.join(section.presets))}.", ""]
    return [*lines, *HEAD, *map(_row, section.keys)] if section.keys else lines


def _row(key: Key) -> str:
    range_ = f" in {key.range}" if key.range else ""
    default = f"`{_cell(key.default)}`" if key.default else ""
    cells = (f"`{key.path}`", _choices(key.type) + range_, default, _cell(key.meaning))
    return f"| {' | '.join(cells)} |"


def _choices(text: str) -> str:
    return _cell(text.replace(" | ", " or "))


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")
