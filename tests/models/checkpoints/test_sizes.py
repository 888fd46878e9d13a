"""Configs that ask for more than any model has: refused, and nothing is built of them."""

import dataclasses
import json
import math
import os
import subprocess
import sys

import pytest
import torch
from torch import nn

from remask.models import CheckpointError, LladaConfig, LladaMDM, SudokuConfig, load
from remask.models.backbones.dream import DreamConfig
from remask.models.backbones.masked_lm import MaskedLM, MaskedLMConfig
from remask.models.checkpoints.adapter import AdapterSettings, add_lora, save_adapter
from remask.models.checkpoints.checkpoint import create, fingerprint, outline, save
from remask.models.checkpoints.sizes import MAX_SIZE, MAX_TENSORS, build, check_size, on_meta
from remask.models.images.tokenizer_folder import load_tokenizer, save_tokenizer
from remask.models.images.vq import PatchVQ, PatchVQConfig
from tests.models.folders import DREAM, LLADA, write_folder
from tests.places import ROOT

LLADA_SMALL = {
    "d_model": 32, "n_layers": 2, "n_heads": 4, "n_kv_heads": 2, "mlp_hidden_size": 48,
    "vocab_size": 64, "mask_token_id": 55, "max_sequence_length": 24,
}  # fmt: skip
SUDOKU_SMALL = {"side": 4, "layers": 1, "width": 32, "heads": 2, "feed_forward": 32}
BERT = {
    "vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
    "intermediate_size": 48, "max_position_embeddings": 24,
}  # fmt: skip
HUGE = [10**9, 10**30, 10**400]


def recipes():
    """Every kind with one of its sizes at a time far too large."""
    for name in ("side", "layers", "width", "heads", "feed_forward", "loops"):
        yield from ({"kind": "sudoku", **SUDOKU_SMALL, name: x} for x in HUGE)
    for name in LLADA_SMALL:
        yield from ({"kind": "llada", **LLADA_SMALL, name: x} for x in HUGE)
    for name in ("rope_theta", "rms_norm_eps"):
        for x in (math.nan, math.inf, 0, -1, 10**400):
            yield {"kind": "llada", **LLADA_SMALL, name: x}
    for name in [*BERT, "num_labels"]:
        for x in HUGE:
            settings = {**BERT, name: x}
            yield {
                "kind": "masked_lm", "model_type": "bert", "settings": settings, "mask_token_id": 5
            }  # fmt: skip


CODE = """
import json, resource, sys
from remask.models.checkpoints.checkpoint import create
resource.setrlimit(resource.RLIMIT_AS, (16 << 30, 16 << 30))
for line in sys.stdin:
    used = resource.getrusage(resource.RUSAGE_SELF).ru_utime
    resource.setrlimit(resource.RLIMIT_CPU, (int(used) + 20, resource.RLIM_INFINITY))
    settings = json.loads(line)
    try:
        create(settings)
        print("created", line[:200])
    except ValueError as error:
        assert len(str(error)) < 1000, len(str(error))
print("done")
"""


def test_recipes_of_any_size_are_refused_at_once():
    """In a process that the kernel ends if one of them takes 20 seconds or 16 GB."""
    lines = "".join(json.dumps(recipe) + "\n" for recipe in recipes())
    done = subprocess.run(
        [sys.executable, "-c", CODE],
        input=lines,
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.stdout == "done\n", (done.returncode, done.stdout, done.stderr[-2000:])


def test_no_more_parameters_are_built_than_there_can_be():
    built = []

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.empty(2))
            built.append(self)

    with pytest.raises(ValueError, match="more than 10,000 parameters"), on_meta():
        nn.ModuleList(Layer() for _ in range(10**9))
    assert len(built) == MAX_TENSORS
    with pytest.raises(ValueError, match="more than 100 numbers"), on_meta(100):
        nn.Linear(10, 10)
    nn.Linear(10, 10)  # counted no longer


def test_what_does_not_fit_this_machine_is_refused_and_its_outline_is_not():
    settings = {"kind": "llada", **LLADA_SMALL, "d_model": 1 << 17, "mlp_hidden_size": 1 << 17}
    with pytest.raises(ValueError, match="model: its weights take .* GB and this machine has"):
        create(settings)
    with torch.device("meta"):
        assert create(settings).token_embedding.shape == (64, 1 << 17)


def test_checking_a_model_first_leaves_its_random_weights_as_they_were():
    torch.manual_seed(0)
    expected = LladaMDM(LladaConfig(**LLADA_SMALL)).state_dict()
    torch.manual_seed(0)
    actual = build(lambda: LladaMDM(LladaConfig(**LLADA_SMALL))).state_dict()
    assert all(torch.equal(actual[name], x) for name, x in expected.items())


@pytest.mark.parametrize("value", HUGE)
def test_published_configs_are_refused_before_ids_are_listed(tmp_path, value):
    for config, names in (
        (LLADA, ("d_model", "n_layers", "embedding_size", "max_sequence_length")),
        (DREAM, ("hidden_size", "num_hidden_layers", "vocab_size", "max_position_embeddings")),
    ):
        for name in names:
            folder = tmp_path / f"{config['model_type']}-{name}"
            write_folder(folder, config | {name: value}, {})
            with pytest.raises(CheckpointError, match=r"must lie in \[1, 4194304\], got"):
                outline(folder, check=False)


def test_architectures_that_are_no_list_are_passed_over(tmp_path):
    write_folder(tmp_path / "model", LLADA | {"architectures": 5}, {})
    assert outline(tmp_path / "model", check=False).kind == "llada"


def test_a_checkpoint_of_endless_layers_is_refused(tmp_path):
    save(LladaMDM(LladaConfig(**LLADA_SMALL)), tmp_path / "model")
    path = tmp_path / "model" / "config.json"
    settings = json.loads(path.read_text())
    settings["config"]["n_layers"] = MAX_SIZE
    path.write_text(json.dumps(settings))
    for read in (load, outline, lambda x: outline(x, check=False)):
        with pytest.raises(
            CheckpointError, match="config.json: its sizes ask for more than 10,000"
        ):
            read(tmp_path / "model")


def test_image_tokenisers_are_bounded_too(tmp_path):
    save_tokenizer(PatchVQ(PatchVQConfig()), tmp_path / "vq")
    path = tmp_path / "vq" / "config.json"
    settings = json.loads(path.read_text())
    for name in ("patch", "num_codes", "code_width", "width", "blocks"):
        path.write_text(json.dumps({**settings, "config": {**settings["config"], name: 10**9}}))
        with pytest.raises(CheckpointError, match=r"must lie in \[1, |its sizes ask for more"):
            load_tokenizer(tmp_path / "vq")


@pytest.mark.parametrize(
    "changes",
    [{"num_vq_embeddings": 10**9}, {"layers_per_block": 10**9}, {"block_out_channels": [10**6]}],
)
def test_published_image_tokenisers_hold_no_more_than_their_file(tmp_path, changes):
    vq_model = pytest.importorskip("diffusers.models.autoencoders.vq_model")
    small = {"block_out_channels": (8,), "norm_num_groups": 4, "num_vq_embeddings": 16}
    vq_model.VQModel(**small).save_pretrained(tmp_path)
    assert load_tokenizer(tmp_path).num_codes == 16
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    with pytest.raises(CheckpointError, match="its sizes ask for more than"):
        load_tokenizer(tmp_path)


def test_an_adapters_rank_is_bounded_by_its_model(tmp_path):
    save(LladaMDM(LladaConfig(**LLADA_SMALL)), tmp_path / "model")
    backbone = load(tmp_path / "model")
    with pytest.raises(ValueError, match=r"rank must lie in \[1, 48\], got 1000000000"):
        add_lora(backbone, 10**9, 4.0)
    add_lora(backbone, 2, 4.0)
    base = str(tmp_path / "model")
    settings = AdapterSettings(
        base=base, base_fingerprint=fingerprint(base), rank=2, alpha=4.0, history=backbone.history
    )
    save_adapter(backbone, tmp_path / "adapter", settings)
    path = tmp_path / "adapter" / "adapter.json"
    for changes, message in (
        ({"rank": 10**9}, r"adapter.json: rank must lie in \[1, 48\], got 1000000000"),
        ({"alpha": math.nan}, "alpha must be above 0, got nan"),
    ):
        path.write_text(json.dumps(dataclasses.asdict(settings) | changes))
        with pytest.raises(CheckpointError, match=message):
            load(tmp_path / "adapter")


def test_padding_leaves_room_for_positions():
    for padding in (None, 23):
        config = MaskedLMConfig(
            model_type="roberta", settings={**BERT, "pad_token_id": padding}, mask_token_id=5
        )
        with pytest.raises(ValueError, match="pad_token_id must leave positions of 24"):
            MaskedLM(config)


def test_sizes_are_shown_short():
    with pytest.raises(ValueError, match=r"width must lie in \[1, 4194304\], got 0"):
        check_size("width", 0)
    with pytest.raises(ValueError, match="got a number of about 5001 digits"):
        check_size("width", 10**5000)
    with pytest.raises(ValueError, match=r"loops must lie in \[1, 1024\], got 1000000000"):
        SudokuConfig(loops=10**9)
    with pytest.raises(ValueError, match="rope_theta must be above 0, got nan"):
        DreamConfig(rope_theta=math.nan)
