"""YAML for recipes: plain values by the core schema of YAML 1.2.

PyYAML reads YAML 1.1, in which 1e-3 is text, 010 is eight, 1:30 is ninety and `off` is false. Here
every usual notation of a number is a number, and the only words with a meaning are true, false and
null. Beyond the schema, digits may be grouped (10_000), and 1e4 is an integer like 10000.
"""

import re
from typing import Any

import yaml

from remask.models.config import check_plain

_TAG = "tag:yaml.org,2002:"
_DIGITS = "[0-9]+(?:_[0-9]+)*"
_SCALARS = {
    "null": ("~|null|Null|NULL|", ["~", "n", "N", ""]),
    "bool": ("true|True|TRUE|false|False|FALSE", [*"tTfF"]),
    "int": (f"[-+]?{_DIGITS}|0o[0-7]+|0x[0-9a-fA-F]+", [*"-+0123456789"]),
    "float": (
        rf"[-+]?(?:\.[0-9]+|{_DIGITS}(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"
        r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
        [*"-+.0123456789"],
    ),
    "merge": ("<<", ["<"]),  # recognised in order to be refused
}
"""Pattern and possible first characters of each type of plain scalar; the first match counts."""


class _Loader(yaml.SafeLoader):
    """A loader without merge keys, a few of which can expand to any number of keys."""

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        for key, _ in node.value:
            if key.tag == f"{_TAG}merge":
                problem = "merge keys (<<) are not supported"
                raise yaml.MarkedYAMLError(problem=problem, problem_mark=key.start_mark)

    def read_int(self, node: yaml.ScalarNode) -> int:
        text = self.construct_scalar(node).replace("_", "")
        return int(text, {"0o": 8, "0x": 16}.get(text[:2], 10))

    def read_float(self, node: yaml.ScalarNode) -> float | int:
        value = self.construct_yaml_float(node)
        is_whole = "." not in node.value and value.is_integer() and abs(value) < 1 << 63
        return int(value) if is_whole else value


class _Dumper(yaml.SafeDumper):
    """A dumper that quotes text which YAML 1.1 or our loader would read as another type."""


_Loader.yaml_implicit_resolvers = {}
for _name, (_pattern, _first) in _SCALARS.items():
    for _kind in (_Loader, _Dumper):
        _kind.add_implicit_resolver(f"{_TAG}{_name}", re.compile(rf"(?:{_pattern})\Z"), _first)
_Loader.add_constructor(f"{_TAG}int", _Loader.read_int)
_Loader.add_constructor(f"{_TAG}float", _Loader.read_float)


def read_yaml(text: str, where: str) -> Any:
    """Parse YAML into plain values; ValueError, with `where` in its message, for anything else."""
    try:
        value = yaml.load(text, _Loader)
    except RecursionError:
        raise ValueError(f"{where} is nested too deeply") from None
    except Exception as error:  # PyYAML lets errors of int() and date() through
        raise ValueError(f"{where} is not YAML: {error}") from error
    check_plain(value, where)
    return value


def write_yaml(values: Any) -> str:
    """Plain values as YAML that reads back as the same values; keys keep their order."""
    return yaml.dump(values, Dumper=_Dumper, sort_keys=False)
