"""Repositories on the Hugging Face hub as folders on this disk, fetched by huggingface_hub.

A name such as `hf:owner/name` is resolved to a commit, and the files that are read are fetched into
the hub's cache: safetensors, JSON and text, never a pickle or code. A file that is there already is
not fetched again, and processes on one machine wait for each other. With HF_HUB_OFFLINE=1 no
connection is made, and a name with a commit whose files are there needs none. The user's token is
found and sent by huggingface_hub.
"""

import functools
import glob
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from remask.models.checkpoints.folder import CONFIG, CheckpointError, check_inside
from remask.models.checkpoints.hub_errors import hub_errors
from remask.models.checkpoints.hub_name import HubName, is_hub_name, parse_hub_name

RepoType = Literal["model", "dataset"]
Choose = Callable[[Mapping[str, int]], list[str]]
"""Chooses the files to fetch from the names and sizes of all files in a repository."""

TEXTS = (".json", ".txt", ".jinja")
"""Suffixes of settings and of tokenizer files."""
NAMED = ("README.md", "SHA256SUMS")
"""Further files that are fetched with a model."""
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".msgpack", ".h5")
IMAGE_TOKENIZER = "image_tokenizer"
"""Subfolder of a model that edits pictures."""
MAX_TEXT_BYTES = 1 << 28
"""Limit of a JSON or text file, which is read as a whole."""

_resolved: dict[str, dict[str, str]] = {}


def model_files(name: str, *, needs_weights: bool = True) -> Path:
    """The folder of a model on the hub.

    Args:
        name: Such as `hf:owner/name@revision`.
        needs_weights: Fetch the weights too, and not only settings and tokenizer.

    Raises:
        CheckpointError: There is no such model, or its weights are pickles.
        StorageError: The hub cannot be reached, and the files are not in the cache.
    """
    hub_name = _parse(name)

    def choose(sizes: Mapping[str, int]) -> list[str]:
        here = _files_in(hub_name, sizes)
        inner = _top(sizes, _join(hub_name.path, IMAGE_TOKENIZER))
        if needs_weights:
            _check_weights(hub_name, here)
            return [x for x in here + inner if _is_text(x) or x.endswith(".safetensors")]
        return [x for x in here if _is_text(x)]

    return _fetch(hub_name, "model", choose)[0] / hub_name.path


def tokenizer_files(name: str) -> Path:
    """The folder of a text tokenizer on the hub; raises as `model_files` does."""
    hub_name = _parse(name)

    def choose(sizes: Mapping[str, int]) -> list[str]:
        files = [x for x in _files_in(hub_name, sizes) if _is_text(x)]
        known = {"tokenizer.json", "vocab.json", "vocab.txt"}
        if not known & {PurePosixPath(x).name for x in files}:
            raise CheckpointError(
                f"{hub_name} holds no tokenizer of a kind that is read here: it has none of "
                f"{', '.join(sorted(known))}"
            )
        return files

    return _fetch(hub_name, "model", choose)[0] / hub_name.path


def image_tokenizer_files(name: str, inner: Iterable[str]) -> Path:
    """The folder of an image tokeniser on the hub; raises as `model_files` does.

    Args:
        name: Such as `hf:owner/name`.
        inner: Subfolders that may hold it, of which the first with a config.json is fetched.
    """
    hub_name = _parse(name)

    def choose(sizes: Mapping[str, int]) -> list[str]:
        folders = [_join(hub_name.path, x) for x in inner]
        folder = next((x for x in folders if _join(x, CONFIG) in sizes), hub_name.path)
        here = _top(sizes, folder)
        _check_weights(hub_name, here)
        return [x for x in here if _is_text(x) or x.endswith(".safetensors")]

    return _fetch(hub_name, "model", choose)[0] / hub_name.path


def data_files(name: str, choose: Choose) -> list[Path]:
    """Files of a data set on the hub; raises as `model_files` does, and what `choose` raises."""
    folder, names = _fetch(_parse(name), "dataset", choose)
    return [folder / x for x in names]


def pinned(name: str, repo_type: RepoType) -> str:
    """A name on the hub with its commit, which means the same on every host; others unchanged."""
    if not is_hub_name(name):
        return name
    hub_name = _parse(name)
    return str(HubName(hub_name.repo, hub_name.path, _commit(hub_name, repo_type)))


def resolved() -> dict[str, dict[str, str]]:
    """The commit of each repository that this process has used, by the kind of repository."""
    return {kind: dict(sorted(commits.items())) for kind, commits in sorted(_resolved.items())}


def _parse(name: str) -> HubName:
    try:
        return parse_hub_name(name)
    except ValueError as error:
        raise CheckpointError(str(error)) from error


def _fetch(name: HubName, repo_type: RepoType, choose: Choose) -> tuple[Path, list[str]]:
    """Fetch chosen files and return the folder of the commit, and the names of the files."""
    from huggingface_hub import HfApi, constants

    commit = _commit(name, repo_type)
    with hub_errors(_what(name, repo_type)):
        sizes = _sizes(name, repo_type, commit)
    names = choose(sizes)
    with hub_errors(_what(name, repo_type)):
        folder = HfApi().snapshot_download(
            name.repo,
            repo_type=repo_type,
            revision=commit,
            allow_patterns=[glob.escape(x) for x in names],
            local_files_only=constants.is_offline_mode(),
            tqdm_class=_progress_bar(),
        )
    return Path(folder), names


def _commit(name: HubName, repo_type: RepoType) -> str:
    from huggingface_hub import HfApi, constants

    with hub_errors(_what(name, repo_type)):
        revision = HfApi().resolve_revision(
            name.repo,
            repo_type=repo_type,
            revision=name.revision,
            local_files_only=constants.is_offline_mode(),
        )
    _resolved.setdefault(f"{repo_type}s", {})[name.repo] = revision.resolved
    return revision.resolved


def _what(name: HubName, repo_type: RepoType) -> str:
    return f"{'data set' if repo_type == 'dataset' else repo_type} {name}"


def _sizes(name: HubName, repo_type: RepoType, commit: str) -> dict[str, int]:
    """The size of every file of a commit; CheckpointError if a name leaves the folder."""
    from huggingface_hub import HfApi, get_cached_repo_tree
    from huggingface_hub.errors import CachedRepoTreeNotFoundError
    from huggingface_hub.hf_api import RepoFile

    entries: Iterable[Any]
    try:
        entries = get_cached_repo_tree(name.repo, repo_type=repo_type, revision=commit)
    except CachedRepoTreeNotFoundError:
        listing = {"repo_type": repo_type, "revision": commit, "recursive": True}
        entries = HfApi().list_repo_tree(name.repo, **listing)
    sizes = {x.path: x.size for x in entries if isinstance(x, RepoFile)}
    for path, size in sizes.items():
        try:
            check_inside(path)
        except ValueError as error:
            raise CheckpointError(f"{name} is not fetched: its file {error}") from error
        if _is_text(path) and repo_type == "model" and size > MAX_TEXT_BYTES:
            raise CheckpointError(
                f"{name} is not fetched: its {path} has {size:,} bytes, more than the "
                f"{MAX_TEXT_BYTES:,} that settings and tokenizers may have"
            )
    return sizes


def _check_weights(name: HubName, files: list[str]) -> None:
    """Raise CheckpointError if a folder has no weights in safetensors."""
    if any(x.endswith(".safetensors") for x in files):
        return
    pickles = [PurePosixPath(x).name for x in files if x.endswith(PICKLES)]
    if pickles:
        raise CheckpointError(
            f"{name} has its weights in {', '.join(pickles[:3])} alone, which may run code when "
            "read; ask its makers for safetensors, or convert it yourself where that is safe"
        )
    raise CheckpointError(f"{name} holds no weights: it has no .safetensors file")


def _files_in(name: HubName, sizes: Iterable[str]) -> list[str]:
    """The files directly in the folder that a name means; CheckpointError if there are none."""
    files = _top(sizes, name.path)
    if not files:
        raise CheckpointError(f"{name} holds no files" + (" at that path" if name.path else ""))
    return files


def _top(sizes: Iterable[str], folder: str) -> list[str]:
    """The files directly in a folder of the repository."""
    return sorted(x for x in sizes if x.rpartition("/")[0] == folder)


def _is_text(path: str) -> bool:
    return path.endswith(TEXTS) or PurePosixPath(path).name in NAMED


def _join(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name


@functools.cache
def _progress_bar() -> Any:
    import sys

    from huggingface_hub.utils import tqdm

    class TerminalBar(tqdm):
        """A progress bar that is shown on terminals alone."""

        def __init__(self, *args: Any, **settings: Any) -> None:
            hidden = {} if sys.stderr.isatty() else {"disable": True}
            super().__init__(*args, **settings | hidden)

    return TerminalBar
