"""The sums suite: scores of paths written by hand, and of a real model."""

import numpy as np
import pyarrow as pa
import pytest
import torch

from evaluation.decoder import Decoder
from evaluation.suites.arithmetic import ArithmeticSuite
from models import HistoryConfig
from models.llada import LladaConfig, LladaMDM
from pipeline.sources.arithmetic import ALPHABET, encode

SUITE = ArithmeticSuite(sums=6, numbers=(2, 2), digits=1)
LENGTH = SUITE._source().length
PACED = Decoder(max_steps=4, settings={"reveal_within": 0.5})


def small_model(**changes):
    torch.manual_seed(0)
    sizes = {"d_model": 16, "n_layers": 1, "n_heads": 2, "n_kv_heads": 2, "mlp_hidden_size": 16}
    sizes |= {"vocab_size": len(ALPHABET), "mask_token_id": 0, "max_sequence_length": 32}
    return LladaMDM(LladaConfig(**sizes | changes), HistoryConfig(norm="match")).eval()


def path(*texts):
    """A row of a prediction table, from the states as text."""
    states = np.stack([encode(text, LENGTH) for text in texts])
    return {
        "sample_id": texts[0],
        "solution": encode("4+5:04+5=09", LENGTH).tobytes(),
        "start": states[0].tobytes(),
        "states": states.tobytes(),
        "forward_passes": len(texts) - 1,
    }


def scores(*rows):
    return {x.metric: x.value for x in SUITE.score(pa.Table.from_pylist(list(rows)))}


def test_scores_of_paths_written_by_hand():
    hidden = "4+5:" + "_" * (LENGTH - 4)
    right_away = path(hidden, "4+5:04+5=09")
    mended = path(hidden, "4+5:04+5=08", "4+5:04+5=0_", "4+5:04+5=09")
    replayed = path(hidden, "4+5:04+5=08", "4+5:04+5=0_", "4+5:04+5=08")
    spoilt = path(hidden, "4+5:04+5=09", "4+5:0_+5=09", "4+5:05+5=09")  # the answer is still right
    found = scores(right_away, mended, replayed, spoilt)
    assert found["answer"] == 3 / 4
    assert found["steps_right"] == 2 / 4
    assert found["forward_passes"] == 10 / 4
    assert found["remasked"] == 3 / 4
    assert found["fixed"] == 1 / 4
    assert found["broken"] == 1 / 4
    assert found["replay"] == 1 / 2


def test_predictions_do_not_depend_on_how_samples_are_cut():
    model = small_model()
    together = SUITE.predict(model, range(6), PACED)
    apart = pa.concat_tables([SUITE.predict(model, range(i, i + 2), PACED) for i in (0, 2, 4)])
    assert together.equals(apart)
    assert max(together["forward_passes"].to_pylist()) <= PACED.max_steps + 1
    assert len(SUITE.score(together)) == len(SUITE.score(apart))
    assert all(sample["states"][0].count(0) for sample in SUITE.showcase(together))


def test_a_response_is_never_revealed_at_once():
    with pytest.raises(ValueError, match="set reveal_count"):
        SUITE.predict(small_model(), range(1), Decoder())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"vocab_size": 40}, "the model has 40 tokens"),
        ({"max_sequence_length": 4}, "these sums take"),
    ],
)
def test_a_model_of_something_else_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        SUITE.check(small_model(**changes))
