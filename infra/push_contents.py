"""What `remask push` uploads: a model's files, without what belongs to this machine alone.

They are the files that the model's SHA256SUMS lists, and the recipe and the versions of the run
that made it. Paths of this machine are cut to their last part, a file with an access token in it is
refused, and the checksums are those of the files as they are uploaded.
"""

import hashlib
import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from remask.infra.push_card import Facts, make_card
from remask.models.checkpoints import adapter
from remask.models.checkpoints.checkpoint import CARD, outline
from remask.models.checkpoints.folder import (
    CONFIG,
    DECODING,
    SUMS,
    check_inside,
    read_sums,
    sha256_of,
)
from remask.models.checkpoints.hub import IMAGE_TOKENIZER, TEXTS
from remask.models.checkpoints.hub_name import is_hub_name, parse_hub_name
from remask.models.checkpoints.shipped import is_shipped
from remask.models.text.tokens import tokenizer_files
from remask.pipeline.runtime.provenance import PROVENANCE, RECIPE
from remask.training.run.folder import RunFolder

INPUTS = "inputs.json"
WHOLE = (CONFIG, DECODING, adapter.CONFIG, adapter.SETTINGS, RECIPE, PROVENANCE)
"""JSON files in which any text may be a path; in others only the values of `PLACES` are."""
PLACES = re.compile(r"(^|_)(path|file|dir|folder|data|images|cache|output|tokenizer)$")
TOKEN = re.compile(rb"\bhf_[A-Za-z0-9]{30,}")
"""An access token of the hub."""
SECRET = re.compile(r"(secret|password|api_key|access_key|hf_token)$", re.IGNORECASE)


@dataclass(frozen=True)
class Upload:
    """A file to upload: where it is, or its bytes if they differ from those on disk."""

    name: str
    source: Path | bytes

    @property
    def size(self) -> int:
        if isinstance(self.source, bytes):
            return len(self.source)
        return self.source.stat().st_size


def find_model(path: Path) -> tuple[Path, Path | None]:
    """The model of a run or of a model's folder, and the folder of its run, if there is one.

    Raises ValueError if there is no model, or its run is not finished.
    """
    if not path.is_dir():
        raise ValueError(f"there is no folder {path}; give a run of `remask train`, or its model")
    if _is_model(path):
        is_of_run = path.name == "model" and (path.parent / RECIPE).is_file()
        model, run = path, path.parent if is_of_run else None
    elif (path / RECIPE).is_file() and (path / PROVENANCE).is_file():
        model, run = path / "model", path
    else:
        inner = sorted(x.parent.name for x in path.glob("*/model") if _is_model(x))
        hint = f"; it holds {', '.join(inner[:5])}, each of which can be pushed" if inner else ""
        raise ValueError(f"{path} is neither a run of `remask train` nor a model{hint}")
    outcome = RunFolder(run).outcome() if run else None
    if run and (outcome is None or not outcome.is_finished or not _is_model(model)):
        raise ValueError(f"{run} is not a finished run; give its `remask train` command again")
    return model, run


def collect(path: Path, repo: str, *, license: str | None, base: str | None) -> list[Upload]:
    """All files to upload, the checksums last.

    Args:
        path: A run's or a model's folder.
        repo: owner/name that it is uploaded to, for the card.
        license: The model's licence, for the card.
        base: The adapter's base model on the hub, if its own name for it is a folder.

    Raises:
        ValueError: The folder is no finished model, is damaged, or has a token in it.
    """
    model, run = find_model(path)
    uploads = {name: Upload(name, model / name) for name in _listed(model)}
    for name in (RECIPE, PROVENANCE) if run else ():
        uploads[name] = Upload(name, Path(run or "", name))
    for upload in uploads.values():
        if upload.name.endswith(".json"):
            uploads[upload.name] = _without_places(upload)
    facts = _facts(model, run, repo, license)
    if adapter.is_adapter(model):
        facts, settings = _with_base(facts, model, base)
        uploads[adapter.SETTINGS] = Upload(adapter.SETTINGS, settings)
    elif base is not None:
        raise ValueError(f"--base is for adapters, and {model} is a whole model; leave it out")
    card = (model / CARD).read_text("utf-8") if CARD in uploads else ""
    uploads[CARD] = Upload(CARD, make_card(_without_folders(card, model, run), facts).encode())
    for upload in uploads.values():
        _check_no_token(upload)
    files = [uploads[name] for name in sorted(uploads)]
    lines = [f"{_sha256(x)}  {x.name}\n" for x in files]
    return [*files, Upload(SUMS, "".join(lines).encode())]


def _is_model(folder: Path) -> bool:
    return (folder / CONFIG).is_file() or adapter.is_adapter(folder)


def _listed(model: Path) -> list[str]:
    """The files that a model's SHA256SUMS lists, whose sums are checked, and those of the image
    tokeniser inside it."""
    names = _checked_names(model)
    inner = model / IMAGE_TOKENIZER
    if (inner / SUMS).is_file() and not any(x.startswith(f"{IMAGE_TOKENIZER}/") for x in names):
        names += [f"{IMAGE_TOKENIZER}/{x}" for x in [*_checked_names(inner), SUMS]]
    return names


def _checked_names(folder: Path) -> list[str]:
    if not (folder / SUMS).is_file():
        raise ValueError(
            f"{folder} has no {SUMS}, so it is not known to be complete; load the model and save "
            "it with remask.models.save, and push that"
        )
    sums = read_sums(folder)
    for name in sums:
        check_inside(name)
        if not name.endswith((".safetensors", ".md", *TEXTS)):
            raise ValueError(f"{folder / name} is neither safetensors, JSON nor text; remove it")
        if not (folder / name).is_file():
            raise ValueError(f"{folder} lacks {name}, which its {SUMS} lists")
    actual = sha256_of([folder / name for name in sums])
    for (name, expected), found in zip(sums.items(), actual, strict=True):
        if found != expected:
            raise ValueError(
                f"{folder / name} does not match its checksum in {SUMS}: it is damaged, or was "
                "changed; save the model again"
            )
    return list(sums)


def _facts(model: Path, run: Path | None, repo: str, license: str | None) -> Facts:
    """What the card's header says about a model."""
    task = None
    if (model / INPUTS).is_file():
        source = _read(model / INPUTS).get("source")
        kind = source.get("kind") if isinstance(source, dict) else None
        task = {"text": "text-generation", "image_edit": "image-to-image"}.get(str(kind))
    elif not adapter.is_adapter(model):
        edits_images = outline(model).layout is not None
        task = "text-generation" if tokenizer_files(model) else None
        task = "image-to-image" if edits_images else task
    base = None
    if run:
        started_from = _read(run / PROVENANCE).get("hub")
        models = started_from.get("models") if isinstance(started_from, dict) else None
        base = next(iter(models), None) if isinstance(models, dict) else None
    return Facts(repo=repo, task=task, base=base, is_adapter=False, license=license)


def _with_base(facts: Facts, model: Path, base: str | None) -> tuple[Facts, bytes]:
    """The facts of an adapter, and its settings with a base model that others can load."""
    settings = _read(model / adapter.SETTINGS)
    name = base or settings["base"]
    if not is_hub_name(name) and not is_shipped(name):
        raise ValueError(
            f"{model} is an adapter of a model in a folder of this machine, which others do not "
            "have; name that model on the hub with --base hf:owner/name, or push what `remask "
            "merge` makes of both"
        )
    published = parse_hub_name(name).repo if is_hub_name(name) else None
    facts = Facts(facts.repo, facts.task, published, True, facts.license)
    return facts, _to_json(settings | {"base": name})


def _without_places(upload: Upload) -> Upload:
    """The file without secrets, and with paths of this machine cut to their last part."""
    assert isinstance(upload.source, Path)
    values = _read(upload.source)
    public = _public(values, anywhere=upload.name in WHOLE)
    return upload if public == values else Upload(upload.name, _to_json(public))


def _public(value: Any, *, anywhere: bool, key: str = "") -> Any:
    if isinstance(value, dict):
        return {
            name: _public(x, anywhere=anywhere, key=str(name))
            for name, x in value.items()
            if not SECRET.search(str(name))
        }
    if isinstance(value, list):
        return [_public(x, anywhere=anywhere, key=key) for x in value]
    is_place = anywhere or PLACES.search(key) or key == "name_or_path"
    if isinstance(value, str) and is_place and _is_of_this_machine(value):
        return value.rstrip("/").replace("\\", "/").rpartition("/")[2]
    return value


def _is_of_this_machine(text: str) -> bool:
    """Is a text an absolute path, or a URI of storage that others cannot read?"""
    scheme, is_uri, _ = text.partition("://")
    if is_uri:
        return scheme not in ("http", "https") or "@" in text
    return os.path.isabs(text) or text.startswith("~") or bool(re.match(r"[A-Za-z]:[\\/]", text))


def _without_folders(card: str, model: Path, run: Path | None) -> str:
    """A card in which folders of this machine are cut to their last part."""
    folders = {Path.home(), Path.cwd(), model.absolute().parent, (run or model).absolute().parent}
    folders |= {x.resolve() for x in folders}
    for folder in sorted(folders, key=lambda x: len(str(x)), reverse=True):
        if folder.name:
            card = card.replace(f"{folder}/", "")
            card = re.sub(rf"{re.escape(str(folder))}(?![\w.-])", folder.name, card)
    return card


def _check_no_token(upload: Upload) -> None:
    if upload.name.endswith(".safetensors"):
        return
    data = upload.source if isinstance(upload.source, bytes) else upload.source.read_bytes()
    if TOKEN.search(data):
        raise ValueError(
            f"{upload.name} holds what looks like an access token of the hub; remove it there, and "
            "revoke the token if others may have seen it"
        )


def _sha256(upload: Upload) -> str:
    if isinstance(upload.source, bytes):
        return hashlib.sha256(upload.source).hexdigest()
    return sha256_of([upload.source])[0]


def _read(path: Path) -> dict[str, Any]:
    try:
        values = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"{path} cannot be read as JSON: {error}") from error
    if not isinstance(values, dict):
        raise ValueError(f"{path} must hold keys and values")
    return values


def _to_json(values: dict[str, Any]) -> bytes:
    return (json.dumps(values, indent=2) + "\n").encode()
