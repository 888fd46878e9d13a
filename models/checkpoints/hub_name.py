"""Names of repositories on the Hugging Face hub, with a path and a revision if need be.

    hf:owner/name                    the newest commit of the default branch
    hf:owner/name@v1.0               a branch, a tag or a commit
    hf:owner/name/train.jsonl        a file or a folder in the repository
    hf:owner/name/en@v1.0            both

A folder on disk whose name begins with `hf:` is written `./hf:...`.
"""

import os
import re
from dataclasses import dataclass
from pathlib import PurePosixPath

PREFIX = "hf:"
_PART = r"[A-Za-z0-9][A-Za-z0-9._-]*"
_NAME = re.compile(rf"(?P<repo>{_PART}/{_PART})(?P<path>(?:/[^/@\\]+)*)(?:@(?P<revision>[^@]+))?")
_REVISION = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._/+-]*")
MAX_REPO = 96
"""Limit of the hub on the characters of owner/name."""


@dataclass(frozen=True)
class HubName:
    """The parts of a name on the hub."""

    repo: str
    """Owner and name of the repository."""
    path: str = ""
    """A file or folder in it; empty for its top."""
    revision: str | None = None
    """A branch, tag or commit; None for the default branch."""

    def __str__(self) -> str:
        path = f"/{self.path}" if self.path else ""
        return f"{PREFIX}{self.repo}{path}" + (f"@{self.revision}" if self.revision else "")

    @property
    def is_pinned(self) -> bool:
        """Does the revision name a commit, so that the name always means the same files?"""
        return self.revision is not None and bool(re.fullmatch(r"[0-9a-f]{40}", self.revision))


def is_hub_name(name: object) -> bool:
    """Does a name begin with `hf:`? All others are paths, URIs, or names that others resolve."""
    return isinstance(name, str | os.PathLike) and os.fspath(name).startswith(PREFIX)


def parse_hub_name(name: str | os.PathLike[str]) -> HubName:
    """The parts of a name; ValueError if it does not have the form of one."""
    match = _NAME.fullmatch(os.fspath(name).removeprefix(PREFIX))
    if match is None or not _is_repo(match["repo"]):
        raise ValueError(
            f"{os.fspath(name)!r} is not the name of a repository on the hub; write "
            "hf:owner/name or hf:owner/name@revision"
        )
    path, revision = match["path"].removeprefix("/"), match["revision"]
    if any(part in (".", "..") for part in path.split("/")) or not path.isprintable():
        raise ValueError(f"{os.fspath(name)!r}: the path {path!r} leaves the repository")
    if revision is not None and (not _REVISION.fullmatch(revision) or ".." in revision):
        raise ValueError(f"{os.fspath(name)!r}: {revision!r} is not a branch, a tag or a commit")
    return HubName(match["repo"], path, revision)


def data_stem(data: str) -> str:
    """A short name for data: that of its file or repository, without suffix and revision."""
    if not is_hub_name(data):
        return PurePosixPath(data.rstrip("/")).stem
    name = parse_hub_name(data)
    return PurePosixPath(name.path).stem or PurePosixPath(name.repo).name


def _is_repo(repo: str) -> bool:
    is_ended = not repo.endswith((".git", "-", ".")) and "-/" not in repo and "./" not in repo
    return len(repo) <= MAX_REPO and is_ended and "--" not in repo and ".." not in repo
