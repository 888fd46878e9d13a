"""The memory estimate beside memory that is measured: tensors counted, byte by byte."""

import json
import subprocess
import sys
import weakref

import pytest
import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from remask.models import LladaConfig, LladaMDM, MaskedLM, MaskedLMConfig
from remask.models.checkpoints.adapter import add_lora
from remask.models.config import from_mapping
from remask.training import launch
from remask.training.engine import recompute_blocks
from remask.training.learner import Learner
from remask.training.loader import Loader
from remask.training.memory_estimate import estimate_memory
from remask.training.mixture import Mixture
from remask.training.optimizer import make_optimizer
from remask.training.recipe import TrainRecipe
from remask.training.shard_set import ShardSet
from tests.models.backbones.test_masked_lm import OWN, SMALL
from tests.models.folders import LLADA
from tests.training.data import VOCABULARY, write_data_set
from tests.training.runs import environment

ROWS, LENGTH = 3, 40
SHAPE = {
    "d_model": 32, "n_layers": 3, "n_heads": 4, "n_kv_heads": 2, "mlp_hidden_size": 64,
    "vocab_size": 50, "mask_token_id": 3, "max_sequence_length": 64,
}  # fmt: skip


def make_recipe(**settings):
    values = {"shards": "x", "output": "y", "model": {"kind": "llada"}, "steps": 1}
    return from_mapping(TrainRecipe, values | settings, "recipe")


def make_models(kind):
    """The same model twice: real, and on the meta device."""

    def make():
        if kind == "llada":
            return LladaMDM(LladaConfig(**SHAPE))
        # With dropout a CPU's attention keeps its scores, unlike a GPU's.
        settings = SMALL | OWN.get(kind, {}) | {"attention_probs_dropout_prob": 0.0}
        return MaskedLM(MaskedLMConfig(model_type=kind, settings=settings, mask_token_id=5))

    with torch.device("meta"):
        outline = make()
    return make().train(), outline


def kept_bytes(model, embeds):
    """What a forward pass keeps for the gradient, besides the weights."""
    own = {x.untyped_storage().data_ptr() for x in model.parameters()}
    kept = {}

    def keep(x):
        storage = x.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = (storage.nbytes(), x)
        return x

    with saved_tensors_hooks(keep, lambda x: x):
        model.hidden(embeds)
    return sum(size for size, _ in kept.values())


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize(
    ("kind", "tolerance"), [("llada", 0.0), ("bert", 0.1), ("modernbert", 0.1)]
)
def test_activations_are_what_a_real_forward_pass_keeps(kind, tolerance, precision):
    model, outline = make_models(kind)
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    width, length = model.token_embedding.shape[1], min(LENGTH, model.max_length)
    embeds = torch.randn(ROWS, length, width, dtype=dtype, requires_grad=True)
    recipe = make_recipe(engine={"precision": precision, "zero_stage": 1})
    memory = estimate_memory(outline, recipe, ranks=1, micro_batch=ROWS, length=length)
    history = 4 * embeds.numel()
    expected = kept_bytes(model.to(dtype), embeds) + history
    assert memory.activations == pytest.approx(expected, rel=tolerance or 1e-9)


@pytest.mark.parametrize("kind", ["adamw", "muon"])
@pytest.mark.parametrize("lora", [False, True])
def test_weights_gradients_and_optimiser_are_counted_to_the_byte(kind, lora):
    model, outline = make_models("llada")
    for x in (model, outline):
        if lora:
            with torch.device(x.token_embedding.device):
                add_lora(x, 4, 8.0)
    recipe = make_recipe(optimizer={"kind": kind})
    optimizer = make_optimizer(model, model.parameters(), recipe.optimizer)
    model.logits(model.embed(torch.arange(40)[None])).logsumexp(-1).sum().backward()
    optimizer.step()
    grads = [x.grad for x in model.parameters() if x.grad is not None]
    states = [x for s in optimizer.state.values() for x in s.values() if x.ndim]  # but counters
    memory = estimate_memory(outline, recipe, ranks=1, micro_batch=ROWS, length=LENGTH)
    assert memory.weights == sum(x.nbytes for x in model.parameters())
    assert memory.gradients == sum(x.nbytes for x in grads)
    assert memory.optimizer == sum(x.nbytes for x in states)


class Peak(TorchDispatchMode):
    """Peak bytes of the tensors created while it is active."""

    def __init__(self):
        super().__init__()
        self.now = self.peak = 0
        self.seen = {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        given = {
            x.untyped_storage()._cdata for x in tree_leaves(args) if isinstance(x, torch.Tensor)
        }
        for x in tree_leaves(out):
            if isinstance(x, torch.Tensor):
                self._count(x.untyped_storage(), given)
        return out

    def _count(self, storage, given):
        key, size = storage._cdata, storage.nbytes()
        if key in self.seen or key in given:
            return
        self.now += size
        self.peak = max(self.peak, self.now)
        self.seen[key] = weakref.finalize(storage, self._free, key, size)

    def _free(self, key, size):
        self.now -= size
        del self.seen[key]


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("vocabulary", [20, 4000])
def test_a_real_step_peaks_where_the_estimate_says(tmp_path, monkeypatch, recompute, vocabulary):
    """Never above it, and not much below: not all parts are at their height together."""
    monkeypatch.setattr("remask.training.objective.chunks.CHUNK_ELEMENTS", 1 << 18)
    shards = ShardSet(write_data_set(tmp_path / "data", [[64] * 8]), "train")
    (batch,) = next(Loader(Mixture.single(shards, 8, 0, 8)).batches())
    shape = SHAPE | {"mask_token_id": VOCABULARY.mask_id, "vocab_size": vocabulary, "n_layers": 6}
    recipe = make_recipe(engine={"recompute": recompute})
    with torch.device("meta"):
        outline = LladaMDM(LladaConfig(**shape))
    need = estimate_memory(outline, recipe, ranks=1, micro_batch=8, length=64)
    model = LladaMDM(LladaConfig(**shape))
    if recompute:
        recompute_blocks(model)
    learner = Learner(model, recipe.objective, horizon=4, seed=0)
    with Peak() as peak:
        learner(batch, 0)[0].backward()
    expected = need.activations + need.logits + need.gathered + need.gradients
    assert 0.5 * expected <= peak.peak <= expected


IN_A_RANK = """
import gc, json, sys
import torch
from remask.models.config import from_mapping
from remask.training.engine import make_engine
from remask.training.learner import Learner
from remask.training.loader import Loader
from remask.training.plan import make_plan
from remask.training.recipe import TrainRecipe
from remask.training.world import World

def alive():
    gc.collect()
    storages = {}
    for x in gc.get_objects():
        if type(x) in (torch.Tensor, torch.nn.Parameter):
            for y in (x, x.grad if x.is_leaf else None, getattr(x, "ds_tensor", None)):
                if y is not None and y.device.type == "cpu":
                    storages[y.untyped_storage().data_ptr()] = y.untyped_storage().nbytes()
    return storages

world = World.from_environment()
world.join()
sizes = []
for values in json.loads(sys.argv[1]):
    recipe = from_mapping(TrainRecipe, values, "recipe")
    plan = make_plan(recipe, world)
    loader = Loader(plan.train, rank=world.rank, world_size=world.size)
    (batch,) = next(loader.batches())
    before = alive()
    learner = Learner(plan.make_backbone(), recipe.objective, horizon=plan.horizon, seed=0)
    engine, _ = make_engine(learner, plan, world)
    for step in range(2):
        loss, sums = engine(batch, step)
        engine.backward(loss)
        del loss, sums
        after = alive()
        engine.step()
    sizes.append(sum(size for key, size in after.items() if key not in before))
    del engine, learner
if world.is_first:
    print("SIZES", json.dumps(sizes))
world.leave()
"""


@pytest.mark.slow
def test_what_deepspeed_holds_on_each_of_two_ranks(tmp_path):
    """Weights, gradients and optimiser after a second backward pass; a twentieth is the rest."""
    data = write_data_set(tmp_path / "data", [[12] * 16])
    model = SHAPE | {
        "d_model": 128, "mlp_hidden_size": 512, "n_layers": 6, "vocab_size": VOCABULARY.size,
        "mask_token_id": VOCABULARY.mask_id,
    }  # fmt: skip
    small = {"reduce_bucket_size": 1000, "stage3_param_persistence_threshold": 0}
    recipes = [
        {
            "shards": data, "output": str(tmp_path / "run"), "steps": 2, "batch_size": 4,
            "model": {"kind": "llada"} | model, "optimizer": {"kind": "adamw"},
            "engine": {"zero_stage": stage, "precision": precision,
                       "deepspeed": {"zero_optimization": small}},
        }
        for stage, precision in ((2, "fp32"), (2, "bf16"), (3, "bf16"))
    ]  # fmt: skip
    port = launch.free_port()
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", IN_A_RANK, json.dumps(recipes)],
            env=environment(RANK=str(i), LOCAL_RANK=str(i), WORLD_SIZE="2", MASTER_PORT=port),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for i in range(2)
    ]  # fmt: skip
    out, errors = ranks[0].communicate()
    ranks[1].communicate()
    assert "SIZES" in out, errors[-2000:]
    measured = json.loads(out.partition("SIZES")[2])
    with torch.device("meta"):
        outline = LladaMDM(LladaConfig(**model))
    for values, size in zip(recipes, measured, strict=True):
        recipe = from_mapping(TrainRecipe, values, "recipe")
        need = estimate_memory(outline, recipe, ranks=2, micro_batch=2, length=12)
        assert size == pytest.approx(need.weights + need.gradients + need.optimizer, rel=0.05)


LLADA_8B = LLADA | {
    "d_model": 4096, "n_layers": 32, "n_heads": 32, "n_kv_heads": 32, "mlp_hidden_size": 12288,
    "max_sequence_length": 4096, "rope_theta": 500000.0, "vocab_size": 126464,
    "embedding_size": 126464, "mask_token_id": 126336,
}  # fmt: skip


@pytest.fixture
def config_only(tmp_path):
    (tmp_path / "llada").mkdir()
    (tmp_path / "llada" / "config.json").write_text(json.dumps(LLADA_8B))
    return str(tmp_path / "llada")


@pytest.mark.parametrize(
    ("recipe", "trained", "verdict"),
    [
        ("training/recipes/llada_math_full.yaml", "8,015,581,184", "# fits 80 GB, with"),
        ("training/recipes/llada_math_lora.yaml", "83,886,080", "# fits 24 GB, with"),
    ],
)
def test_llada_can_be_planned_from_its_config_alone(config_only, capsys, recipe, trained, verdict):
    memory = verdict.split()[2]
    options = ["--dry-run", "--ranks", "2", "--length", "1024", "--gpu-memory", memory]
    launch.main([recipe, f"start={config_only}", "shards=nowhere", *options])
    out = capsys.readouterr().out
    assert "# nowhere is not built yet" in out
    assert f"parameters, {trained} of them trained" in out
    assert verdict in out
    with pytest.raises(SystemExit) as end:
        launch.main([recipe, f"start={config_only}", *options, "--length", "5000"])
    assert end.value.code == 2
    assert "the model takes 4096 positions, got 5000" in capsys.readouterr().err


def test_lumina_can_be_planned_from_its_config_alone(tmp_path, capsys):
    """The figures that README quotes, and the longer rows of SFT."""
    lumina = {"vocab_size": 134548, "embedding_size": 134548}
    lumina["architectures"] = ["LLaDAForMultiModalGeneration"]
    (tmp_path / "config.json").write_text(json.dumps(LLADA_8B | lumina))
    recipe = ["training/recipes/lumina_imgedit_full.yaml", f"start={tmp_path}", "shards=nowhere"]
    options = ["--dry-run", "--ranks", "2", "--gpu-memory", "80", "--length"]
    for length, more, peak in ((1200, [], 71.0), (2400, ["objective.kind=sft"], 71.6)):
        launch.main([*recipe, *more, *options, str(length)])
        out = capsys.readouterr().out
        assert "8,081,805,312 of them trained" in out
        assert f"at most {peak} GB" in out
        assert "# fits 80 GB" in out


def test_what_does_not_fit_says_what_to_do(config_only, capsys):
    recipe = "training/recipes/llada_math_full.yaml"
    options = ["--dry-run", "--ranks", "1", "--length", "512", "--gpu-memory", "80"]
    launch.main([recipe, f"start={config_only}", "shards=nowhere", *options])
    assert "does not fit 80 GB: " in capsys.readouterr().out
