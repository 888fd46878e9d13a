"""Upload a trained model to the Hugging Face hub, from where `hf:owner/name` loads it.

Uploaded are the weights, the config with the history settings, tokenizer files, decoding.json and
inputs.json if there are any, the model card with the header that the hub reads, the recipe, the
versions that made it, and checksums of them all. Paths of this machine are cut to their last part.
All files appear in one commit; files of an earlier push that are not there any more are removed.

The token is the one that `hf auth login` or HF_TOKEN gave to huggingface_hub.

    remask push runs/sudoku4/train owner/sudoku4
    remask push runs/sudoku4/train owner/sudoku4 --dry-run           # what would be uploaded
    remask push runs/math/merged owner/math --private --license apache-2.0
    remask push runs/math/model owner/math-lora --base hf:GSAI-ML/LLaDA-8B-Instruct
"""

import argparse
import contextlib
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from remask.infra.push_contents import Upload, collect
from remask.models.checkpoints.folder import SUMS, CheckpointError, StorageError, read_sums
from remask.models.checkpoints.hub_errors import HOW_TO_SIGN_IN, hub_errors
from remask.models.checkpoints.hub_name import PREFIX, HubName, parse_hub_name
from remask.pipeline.runtime.terminal import fail, one_line, say

EXISTING = (".gitattributes", ".gitignore", "README.md", "LICENSE", "LICENSE.md", "LICENSE.txt")
"""Files that a repository may have before its first push."""


def push(
    path: Path,
    repo: str,
    *,
    private: bool = False,
    license: str | None = None,
    base: str | None = None,
) -> str:
    """Upload a finished run's model, and return the commit on the hub.

    Args:
        path: A run's folder, or a model's.
        repo: owner/name, which is made if it does not exist.
        private: Make a private repository; an existing public one is refused.
        license: The hub's name of the licence, for the card.
        base: An adapter's base model on the hub, if it names a folder.

    Raises:
        ValueError: The model or the name cannot be used, or the hub refuses.
        StorageError: The hub cannot be reached.
    """
    name = repository(repo)
    return upload(collect(path, name.repo, license=license, base=base), name, private=private)


def repository(repo: str) -> HubName:
    """The name of a repository to upload to; ValueError for anything else."""
    name = parse_hub_name(f"{PREFIX}{repo.removeprefix(PREFIX)}")
    if name.path or name.revision:
        raise ValueError(f"push to owner/name, without a path or a revision, got {repo}")
    return name


def upload(files: Sequence[Upload], name: HubName, *, private: bool) -> str:
    """Make one commit of all files, in a repository that is made if it does not exist."""
    from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi, get_token

    with hub_errors(f"model {name}"), _bars_on_terminals():
        if get_token() is None:
            raise CheckpointError(f"there is no token to upload with; {HOW_TO_SIGN_IN}")
        api = HfApi()
        operations: list[Any] = [
            CommitOperationDelete(x) for x in _prepare(api, name, private) - {x.name for x in files}
        ]
        operations += [
            CommitOperationAdd(x.name, x.source if isinstance(x.source, bytes) else str(x.source))
            for x in files
        ]
        try:
            commit = api.create_commit(
                name.repo, operations, commit_message="Upload a model with remask push"
            )
        except ValueError as error:  # what the hub says about the card's header
            if getattr(error, "response", None) is not None:
                raise
            raise CheckpointError(f"the hub refuses {name}: {one_line(error)}") from error
    return commit.oid


@contextlib.contextmanager
def _bars_on_terminals() -> Iterator[None]:
    """Show huggingface_hub's progress bars on a terminal alone."""
    from huggingface_hub import utils

    if sys.stderr.isatty() or utils.are_progress_bars_disabled():
        yield
        return
    utils.disable_progress_bars()
    try:
        yield
    finally:
        utils.enable_progress_bars()


def _prepare(api: Any, name: HubName, private: bool) -> set[str]:
    """Make the repository if it does not exist; return the files of an earlier push to it.

    Raises CheckpointError for a repository that holds anything else, or is public against the wish.
    """
    from huggingface_hub.errors import RepositoryNotFoundError

    try:
        info = api.model_info(name.repo)
    except RepositoryNotFoundError:
        api.create_repo(name.repo, private=private)
        return set()
    if private and not info.private:
        raise CheckpointError(
            f"{name} exists and is public; make it private in its settings on the hub, or choose "
            "another name"
        )
    names = {x.rfilename for x in info.siblings or ()}
    if SUMS not in names:
        if others := sorted(names - {*EXISTING}):
            raise CheckpointError(
                f"{name} holds what remask did not push ({', '.join(others[:3])}); choose another "
                "name"
            )
        return set()
    sums = Path(api.hf_hub_download(name.repo, SUMS, revision=info.sha))
    return {*read_sums(sums.parent), SUMS} & names


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="remask push", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("run", type=Path, help="output of `remask train`, or a model's folder")
    parser.add_argument("repository", help="owner/name on the hub; made if it does not exist")
    parser.add_argument("--private", action="store_true", help="make a private repository")
    parser.add_argument("--license", help="the hub's name of the licence, such as apache-2.0")
    parser.add_argument("--base", help="hf:owner/name of an adapter's base model")
    parser.add_argument(
        "--dry-run", action="store_true", help="list the files with their sizes; no connection"
    )
    arguments = parser.parse_args(argv)
    try:
        name = repository(arguments.repository)
        files = collect(arguments.run, name.repo, license=arguments.license, base=arguments.base)
        total = f"{len(files)} files, {_size(sum(x.size for x in files))}"
        if arguments.dry_run:
            for file in files:
                say(f"{_size(file.size):>9}  {file.name}")
            say(f"push: {total}, would be uploaded to {name.repo}")
            return
        commit = upload(files, name, private=arguments.private)
    except ValueError as error:
        fail("remask push", 2, error)
    except (StorageError, OSError) as error:
        fail("remask push", 1, error)
    say(f"pushed {total}: {name}@{commit}")
    say(f'load it with remask.load("{name}"), or as --checkpoint {name}')


def _size(num_bytes: int) -> str:
    """A size with three digits."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if num_bytes >= scale:
            return f"{num_bytes / scale:.3g} {unit}"
    return f"{num_bytes} B"


if __name__ == "__main__":
    main()
