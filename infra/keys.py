"""Every key of every recipe, read from the dataclasses: name, type, default, range, meaning.

    from remask.infra.keys import recipe_keys

    (optimizer,) = recipe_keys("train", "optimizer")
    optimizer.keys[1]  # Key(path="optimizer.lr", type="number", default="0.02", ...)

Sections whose keys depend on a registered kind, such as sources, suites, backbones and policies,
appear once for every kind. Nothing is listed here, so the reference is that of the code at hand.
"""

import dataclasses
import functools
import json
import pkgutil
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from remask.evaluation.decoder import TUNED, Decoder
from remask.evaluation.recipe import EvalRecipe
from remask.evaluation.registry import SUITES, find_suite
from remask.infra.field_docs import class_doc, field_docs
from remask.infra.run import STAGES, RunRecipe
from remask.models.backbones import BACKBONES
from remask.models.decoding import POLICIES
from remask.models.ranges import Range
from remask.pipeline.proposal_kinds import PROPOSALS
from remask.pipeline.recipe import ProposalConfig
from remask.training.objective import OBJECTIVES, ObjectiveConfig
from remask.training.recipe import TrainRecipe

REQUIRED = "required"
NAMES: dict[Any, str] = {
    int: "integer",
    float: "number",
    str: "text",
    bool: "true | false",
    type(None): "none",
    Any: "any value",
}
COMMON = {
    "seed": "Seed of the random draws.",
    "side": "Cells of a row of a board, or pixels of a side of a picture.",
    "train": "Number of training examples.",
    "held_out": "Number of held-out examples.",
    "mask_token_id": "Id of MASK.",
    **dict.fromkeys(("d_model", "hidden_size", "width"), "Width of the model."),
    **dict.fromkeys(("n_layers", "num_hidden_layers", "layers"), "Number of blocks."),
    **dict.fromkeys(("n_heads", "num_attention_heads", "heads"), "Number of attention heads."),
    **dict.fromkeys(("n_kv_heads", "num_key_value_heads"), "Number of heads of keys and values."),
    **dict.fromkeys(
        ("mlp_hidden_size", "intermediate_size", "feed_forward"),
        "Width of the feed-forward layers.",
    ),
    **dict.fromkeys(
        ("max_sequence_length", "max_position_embeddings"), "Limit on the tokens of a row."
    ),
    "rope_theta": "Base of the rotary embedding's wavelengths.",
    "rms_norm_eps": "ε of the norms.",
}
"""Meanings of names that many sections share, for fields without a text of their own."""


@dataclass(frozen=True)
class Key:
    """A key of a recipe."""

    path: str
    """With the sections that lead to it, as in an override: `optimizer.lr`."""
    type: str
    """Its type in words, or its choices."""
    default: str
    """As YAML has it; `required` if there is none, empty for a section with defaults."""
    range: str
    """An interval, or empty."""
    meaning: str


@dataclass(frozen=True)
class Section:
    """The keys of one dataclass at one place of a recipe."""

    path: str
    """Empty for the recipe itself; `[]` stands for each item of a list, NAME for any name."""
    when: tuple[str, ...]
    """The kinds that the section needs, such as `kind: text`, outermost first."""
    meaning: str
    keys: tuple[Key, ...]
    presets: tuple[str, ...]
    """Values that the key `preset` takes; the other keys override the preset's."""

    @property
    def title(self) -> str:
        needs = f" ({', '.join(self.when)})" if self.when else ""
        return f"{self.path or 'top level'}{needs}"


@dataclass(frozen=True)
class Registered:
    """A field whose keys depend on a registered name."""

    key: str
    """The key that holds the name: `kind` or `policy`."""
    kinds: Mapping[str, type]
    suffix: str = ""
    """Put after the field's path."""


def recipe_kinds() -> dict[str, type]:
    """The dataclass of each verb's recipe."""
    kinds = {verb: pkgutil.resolve_name(name) for verb, name in STAGES.items() if name}
    return kinds | {"run": RunRecipe}


def recipe_keys(verb: str, section: str = "", kind: str = "") -> list[Section]:
    """The sections of a verb's recipe with their keys, in the order of the dataclasses.

    Args:
        verb: Such as `train`.
        section: A section, whose inner sections follow it, or a single key, such as
            `optimizer.lr`. Defaults to all.
        kind: Only the sections of this kind, such as `text`.

    Raises ValueError, naming what there is, for anything that is not there.
    """
    kinds = recipe_kinds()
    if verb not in kinds:
        raise ValueError(f"there is no recipe of {verb!r}; recipes are of {', '.join(kinds)}")
    sections = _all_sections(verb)
    chosen = [x for x in sections if _is_within(x.path, section)]
    if not chosen:
        single = [(x, k) for x in sections for k in x.keys if k.path == section]
        chosen = [dataclasses.replace(x, keys=(key,)) for x, key in single]
    if not chosen:
        paths = ", ".join(dict.fromkeys(x.path for x in sections if x.path))
        raise ValueError(f"{verb} recipes have no section or key {section!r}; sections: {paths}")
    if kind:
        named = [x for x in chosen if any(need.endswith(f": {kind}") for need in x.when)]
        if not named:
            there = dict.fromkeys(need.split(": ")[1] for x in chosen for need in x.when)
            has = f"its kinds are {', '.join(there)}" if there else "it has no kinds"
            raise ValueError(f"{section} of a {verb} recipe has no kind {kind!r}; {has}")
        chosen = named
    return chosen


@functools.cache
def _all_sections(verb: str) -> list[Section]:
    return list(_sections(recipe_kinds()[verb], "", ()))


def _is_within(path: str, section: str) -> bool:
    return not section or path == section or path.startswith((f"{section}.", f"{section}["))


def _sections(kind: type, path: str, when: tuple[str, ...]) -> Iterator[Section]:
    """The section of a dataclass, then those inside it."""
    hints, docs = get_type_hints(kind, include_extras=True), field_docs(kind)
    keys, inner = [], []
    for field in dataclasses.fields(kind):
        if not field.init or _is_tag(field, hints[field.name]):
            continue
        place = f"{path}.{field.name}" if path else field.name
        registered = _registered(kind, field.name)
        parts = list(_parts(hints[field.name], place, registered))
        inner += parts
        own = docs.get(field.name) or COMMON.get(field.name, "")
        if not own and len({part for _, part, _ in parts}) == 1:
            own = class_doc(parts[0][1])
        hint, range_ = _without_range(hints[field.name])
        default = _default(field)
        keys.append(Key(place, _type(kind, field.name, hint, registered), default, range_, own))
    presets = tuple(getattr(kind, "PRESETS", {}))
    yield Section(path, when, class_doc(kind), tuple(keys), presets)
    for place, part, need in inner:
        yield from _sections(part, place, (*when, need) if need else when)


def _parts(hint: Any, place: str, registered: Registered | None) -> Iterator[tuple[str, type, str]]:
    """(path, dataclass, kind that it needs) of the sections that a field may hold."""
    if registered is not None:
        for name, kind in registered.kinds.items():
            yield f"{place}{registered.suffix}", kind, f"{registered.key}: {name}"
        return
    hint, _ = _without_range(hint)
    origin, arguments = get_origin(hint), get_args(hint)
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        yield place, hint, ""
    elif origin is tuple:
        yield from _parts(arguments[0], f"{place}[]", None)
    elif origin is dict:
        yield from _parts(arguments[1], f"{place}.NAME", None)
    elif origin in (Union, types.UnionType):
        parts = [part for choice in arguments for part in _parts(choice, place, None)]
        for where, kind, need in parts:
            tag = get_type_hints(kind).get("kind")
            needs_tag = len(parts) > 1 and get_origin(tag) is Literal
            yield where, kind, f"kind: {get_args(tag)[0]}" if needs_tag else need


def _registered(owner: type, name: str) -> Registered | None:
    """What a registry says about a field; None if its type says all."""
    match owner, name:
        case (kind, "model") if kind is TrainRecipe:
            shapes = {name: BACKBONES[name].config_type for name in sorted(BACKBONES)}
            return Registered("kind", shapes)
        case (kind, "suites") if kind is EvalRecipe:
            suites = {name: suite for name in SUITES if (suite := find_suite(name))}
            return Registered("kind", suites, ".NAME")
        case (kind, "settings") if kind is Decoder:
            return Registered("policy", dict(POLICIES))
    return None


def _choices(owner: type, name: str) -> tuple[str, ...]:
    """The names that a text field may hold, if a registry has them."""
    match owner, name:
        case (kind, "kind") if kind is ProposalConfig:
            return tuple(PROPOSALS)
        case (kind, "kind") if kind is ObjectiveConfig:
            return tuple(OBJECTIVES)
        case (kind, "policy") if kind is Decoder:
            return (*POLICIES, TUNED)
    return ()


def _is_tag(field: dataclasses.Field[Any], hint: Any) -> bool:
    """Whether a field only names its class among others."""
    return field.name == "kind" and get_origin(hint) is Literal and len(get_args(hint)) == 1


def _type(owner: type, name: str, hint: Any, registered: Registered | None) -> str:
    if registered is not None:
        keys = f"keys with {registered.key}: {' | '.join(registered.kinds)}"
        return f"{keys}; by name" if registered.suffix else keys
    return " | ".join(_choices(owner, name)) or _in_words(hint)


def _in_words(hint: Any) -> str:
    hint, _ = _without_range(hint)
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Literal:
        return " | ".join(map(str, arguments))
    if origin in (Union, types.UnionType):
        if all(dataclasses.is_dataclass(x) for x in arguments):
            tags = (get_args(get_type_hints(x)["kind"])[0] for x in arguments)
            return f"keys with kind: {' | '.join(tags)}"
        return " | ".join(dict.fromkeys(map(_in_words, arguments)))
    if origin is tuple and arguments[-1] is Ellipsis:
        return f"list of {_in_words(arguments[0])}"
    if origin is tuple:
        return f"[{', '.join(map(_in_words, arguments))}]"
    if origin is dict:
        return f"{_in_words(arguments[1])}, by name"
    if dataclasses.is_dataclass(hint):
        return "keys"
    return NAMES[hint]


def _without_range(hint: Any) -> tuple[Any, str]:
    """A type without its range, and the range."""
    if get_origin(hint) is not Annotated:
        return hint, ""
    hint, *extras = get_args(hint)
    return hint, next((x.interval for x in extras if isinstance(x, Range)), "")


def _default(field: dataclasses.Field[Any]) -> str:
    if field.default is not dataclasses.MISSING:
        return _plain(field.default)
    if field.default_factory is not dataclasses.MISSING:
        value = field.default_factory()
        return "" if dataclasses.is_dataclass(value) else _plain(value)
    return REQUIRED


def _plain(value: Any) -> str:
    """A value as YAML has it, in one line."""
    match value:
        case None:
            return "none"
        case bool():
            return str(value).lower()
        case str():
            return (
                value if value.isprintable() and value.strip() == value != "" else json.dumps(value)
            )
        case tuple() | list():
            return f"[{', '.join(map(_plain, value))}]"
        case dict():
            return f"{{{', '.join(f'{k}: {_plain(v)}' for k, v in value.items())}}}"
    return "{}" if dataclasses.is_dataclass(value) else str(value)
