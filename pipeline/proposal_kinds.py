"""The kinds of proposal that a recipe may name. A new one is added to `PROPOSALS` alone."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from remask.pipeline.format.examples import Examples
from remask.pipeline.proposal import Proposal, SourceTokens, TopK, Uniform, wrong_digit
from remask.pipeline.trajectory import Ints


@dataclass(frozen=True)
class ProposalInputs:
    """What the proposal for one file of examples may be made from."""

    examples: Examples
    read_starts: Callable[[], Ints]
    """Reads the tokens that the rows should be revised from, [B, N]; see `Source.own_proposals`."""
    read_guesses: Callable[[], TopK]
    """Reads the guesses of the frozen backbone, which are probed for the kind `top_k` only."""


@dataclass(frozen=True)
class ProposalKind:
    """A kind of proposal: the value of `proposal.kind` in a recipe."""

    make: Callable[[ProposalInputs], Proposal]
    only_for: str = ""
    """Which sources it is for, in words, if only those that list it in `own_proposals` support it.
    Defaults to every source."""


PROPOSALS: Mapping[str, ProposalKind] = MappingProxyType(
    {
        "uniform": ProposalKind(lambda inputs: Uniform(inputs.examples.vocabulary.allowed)),
        "wrong_digit": ProposalKind(
            lambda inputs: wrong_digit(inputs.examples.vocabulary.size - 1), only_for="Sudoku"
        ),
        "top_k": ProposalKind(lambda inputs: inputs.read_guesses()),
        "source": ProposalKind(
            lambda inputs: SourceTokens(
                inputs.read_starts(), inputs.examples.vocabulary.allowed.size
            ),
            only_for="image edits with source_in: canvas",
        ),
    }
)


def check_proposal(kind: str, own_proposals: tuple[str, ...]) -> None:
    """Raise ValueError unless a source with these proposals of its own supports a kind."""
    only_for = PROPOSALS[kind].only_for
    if only_for and kind not in own_proposals:
        general = [name for name, other in PROPOSALS.items() if not other.only_for]
        choices = " or ".join([*general, *own_proposals])
        raise ValueError(f"proposal.kind {kind} is for {only_for}; use {choices}")
