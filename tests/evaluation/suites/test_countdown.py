"""The countdown suite: scores of paths written by hand, and of a real model."""

import numpy as np
import pyarrow as pa
import pytest
import torch

from remask.evaluation.decoder import Decoder
from remask.evaluation.suites.countdown import CountdownSuite
from remask.models import HistoryConfig
from remask.models.backbones.llada import LladaConfig, LladaMDM
from remask.pipeline.sources.countdown import ALPHABET, CountdownSource, encode
from tests.evaluation.folders import explained

SUITE = CountdownSuite(prompts=6, numbers=(3, 3))
LENGTH = CountdownSource(numbers=(3, 3)).length
PACED = Decoder(max_steps=4, settings={"reveal_within": 0.5})


def small_model(**changes):
    torch.manual_seed(0)
    sizes = {"d_model": 16, "n_layers": 1, "n_heads": 2, "n_kv_heads": 2, "mlp_hidden_size": 16}
    sizes |= {"vocab_size": len(ALPHABET), "mask_token_id": 0, "max_sequence_length": 32}
    return LladaMDM(LladaConfig(**sizes | changes), HistoryConfig(norm="match")).eval()


def path(*responses):
    """A row of a prediction table, from the states of the response to 123=0."""
    states = np.stack([encode(f"123=0:{x}", LENGTH) for x in ("_" * (LENGTH - 6), *responses)])
    return {
        "sample_id": responses[0],
        "solution": encode("123=0:1+2=3;3-3=0", LENGTH).tobytes(),
        "start": states[0].tobytes(),
        "states": states.tobytes(),
        "forward_passes": len(responses),
    }


def scores(*rows):
    table = pa.Table.from_pylist(list(rows))
    return {x.metric: x.value for x in explained(SUITE, SUITE.score(table))}


def test_scores_of_paths_written_by_hand():
    right_away = path("1+2=3;3-3=0")
    revised = path("1-2=3;3-3=0", "1_2=3;3-3=0", "1+2=3;3-3=0")
    replayed = path("1-2=3;3-3=0", "1_2=3;3-3=0", "1-2=3;3-3=0")
    misses = path("1-2=0;0+3=3", "1-2=0;0+3=4")  # one true step, and not the target
    values = scores(right_away, revised, replayed, misses)
    assert values["solved"] == 2 / 4
    assert values["true_steps"] == 6 / 8
    assert values["forward_passes"] == 9 / 4
    assert values["remasked"] == 2 / 4
    assert values["returned"] == 1 / 2


def test_a_response_that_revision_put_right_is_counted_and_shown():
    revised = path("1-2=3;3-3=0", "1_2=3;3-3=0", "1+2=3;3-3=0")
    assert scores(path("1+2=3;3-3=0"), revised)["as_first_written"] == 1 / 2
    (shown,) = SUITE.showcase(pa.Table.from_pylist([revised]))
    sample = SUITE.player_sample(shown)
    assert (sample.answer.prompt, sample.answer.response) == ("123=0:", "1+2=3;3-3=0")
    assert (sample.columns, sample.note) == (None, "put right by revision")
    texts = ["".join(sample.symbols[token] for token in state) for state in sample.states]
    assert texts[1:3] == ["1-2=3;3-3=0.", "1·2=3;3-3=0."]


def test_another_solution_counts():
    assert scores(path("1-2=0;0-3=0"))["solved"] == 1


def test_predictions_do_not_depend_on_the_chunks():
    model = small_model()
    together = SUITE.predict(model, range(6), PACED)
    apart = pa.concat_tables([SUITE.predict(model, range(i, i + 2), PACED) for i in (0, 2, 4)])
    assert together.equals(apart)
    assert max(together["forward_passes"].to_pylist()) <= PACED.max_steps + 1
    assert all(sample["states"][0].count(0) for sample in SUITE.showcase(together))


def test_no_sample_is_in_the_splits_of_the_source():
    source = CountdownSource(numbers=(3, 3))
    prompts = {SUITE.sample(i)[0] for i in range(100)}
    for split in ("train", "held_out"):
        rng = np.random.default_rng(1)
        assert not prompts & {source.draw(split, rng)[0] for _ in range(300)}


def test_a_response_is_never_revealed_at_once():
    with pytest.raises(ValueError, match="reveals every MASK at once here.*reveal_within"):
        SUITE.adapt(Decoder())


def test_an_oracle_start_is_refused():
    with pytest.raises(ValueError, match="oracle is for samples that begin with wrong tokens"):
        SUITE.adapt(Decoder(start="oracle", settings={"reveal_within": 0.5}))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"vocab_size": 40}, "has 40 tokens"),
        ({"max_sequence_length": 4}, "these rows take"),
    ],
)
def test_a_model_of_something_else_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        SUITE.check(small_model(**changes))
