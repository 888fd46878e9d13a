"""What went wrong with the hub, in one sentence: a wrong request, or a hub that cannot be used."""

import contextlib
from collections.abc import Iterator

from remask.models.checkpoints.folder import CheckpointError, StorageError

HOW_TO_SIGN_IN = "sign in with `hf auth login`, or set HF_TOKEN"


@contextlib.contextmanager
def hub_errors(what: str) -> Iterator[None]:
    """Turn the errors of huggingface_hub into one sentence each, which shows no token.

    Args:
        what: The repository, for the sentence, such as "model hf:owner/name".

    Raises:
        CheckpointError: The request was wrong: no such repository or revision, or no right to it.
        StorageError: The hub cannot be reached, failed, or may not be asked.
    """
    from huggingface_hub import constants, errors

    try:
        yield
    except (CheckpointError, StorageError):
        raise
    except errors.GatedRepoError as error:
        raise CheckpointError(
            f"{what} is gated: ask for access on its page on the hub, then {HOW_TO_SIGN_IN}"
        ) from error
    except errors.RepositoryNotFoundError as error:
        raise CheckpointError(
            f"the hub has no {what}, or you may not read it; check the name, and if it is private "
            f"{HOW_TO_SIGN_IN}"
        ) from error
    except errors.RevisionNotFoundError as error:
        raise CheckpointError(
            f"{what}: the hub has the repository, but not that revision; name one of its branches, "
            "tags or commits"
        ) from error
    except Exception as error:  # huggingface_hub raises errors of several libraries
        status = _status(error)
        if status in (401, 403):
            raise CheckpointError(
                f"the hub refuses access to {what} (HTTP {status}); {HOW_TO_SIGN_IN}, with a token "
                "that has the rights"
            ) from error
        not_cached = (
            errors.LocalEntryNotFoundError,
            errors.OfflineModeIsEnabled,
            errors.RevisionResolutionError,
        )
        if constants.is_offline_mode() and isinstance(error, not_cached):
            raise StorageError(
                f"{what} is not completely in the cache, and HF_HUB_OFFLINE forbids to fetch it; "
                "unset HF_HUB_OFFLINE once, with a connection"
            ) from error
        raise StorageError(
            f"{what}: the hub at {constants.ENDPOINT} cannot be used: {_reason(error)}; check the "
            "connection and give the same command again"
        ) from error


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """An error and its causes, the first cause last."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _status(error: Exception) -> int | None:
    """The HTTP status that the hub answered with; None if it did not answer."""
    responses = (getattr(x, "response", None) for x in _chain(error))
    return next((x.status_code for x in responses if x is not None), None)


def _reason(error: Exception) -> str:
    """Why the hub cannot be used, in a line and without the request."""
    if (status := _status(error)) is not None:
        return f"it answers with HTTP {status}"
    *_, first = _chain(error)
    return (str(first) or type(first).__name__).splitlines()[0]
