"""YAML as recipes have it: plain values by the core schema of YAML 1.2.

PyYAML reads YAML 1.1, by which 1e-3 is text, 010 is eight, 1:30 is ninety and `off` is false. Here
a number is what it looks like, and nothing but true, false and null is read as a word. Beyond the
schema, digits may be grouped (10_000), and 1e4 is as whole a number as 10000.
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
    "merge": ("<<", ["<"]),  # only to be refused
}
"""What a scalar without quotes is, the first that matches; and the characters it may begin with."""


class _Loader(yaml.SafeLoader):
    """YAML without merge keys, a few of which can stand for any number of keys."""

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        for key, _ in node.value:
            if key.tag == f"{_TAG}merge":
                raise yaml.MarkedYAMLError(problem="<< is not read", problem_mark=key.start_mark)

    def read_int(self, node: yaml.ScalarNode) -> int:
        text = self.construct_scalar(node).replace("_", "")
        return int(text, {"0o": 8, "0x": 16}.get(text[:2], 10))

    def read_float(self, node: yaml.ScalarNode) -> float | int:
        value = self.construct_yaml_float(node)
        is_whole = "." not in node.value and value.is_integer() and abs(value) < 1 << 63
        return int(value) if is_whole else value


class _Dumper(yaml.SafeDumper):
    """Puts text in quotes that a reader of YAML 1.1 or of ours would take for something else."""


_Loader.yaml_implicit_resolvers = {}
for _name, (_pattern, _first) in _SCALARS.items():
    for _kind in (_Loader, _Dumper):
        _kind.add_implicit_resolver(f"{_TAG}{_name}", re.compile(rf"(?:{_pattern})\Z"), _first)
_Loader.add_constructor(f"{_TAG}int", _Loader.read_int)
_Loader.add_constructor(f"{_TAG}float", _Loader.read_float)


def read_yaml(text: str, where: str) -> Any:
    """The plain values that a text holds; ValueError, naming `where`, for anything else."""
    try:
        value = yaml.load(text, _Loader)
    except RecursionError:
        raise ValueError(f"{where} is nested too deeply") from None
    except Exception as error:  # what PyYAML makes of `!!int x` or of a 13th month is not its own
        raise ValueError(f"{where} is not YAML: {error}") from error
    check_plain(value, where)
    return value


def write_yaml(values: Any) -> str:
    """Plain values as a text that reads as they are, its keys in their order."""
    return yaml.dump(values, Dumper=_Dumper, sort_keys=False)
