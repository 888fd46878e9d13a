"""Probe a frozen backbone for its own mistakes: the k likeliest wrong tokens at every position.

The results are cached by backbone, tokenizer, mode, k and source, and shared by later builds.

    remask probe pipeline/recipes/sudoku4_top_k.yaml
    python -m remask.pipeline.probe RECIPE proposal.mode=masked run.gpus_per_probe=1
"""

import contextlib
import io
import json
import math
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import Tensor

from remask.models import Backbone, load
from remask.models.history import HistoryState
from remask.pipeline import source
from remask.pipeline.format.examples import Examples
from remask.pipeline.format.tables import read_table
from remask.pipeline.plan import PROBE_STAGE, BuildPlan, Unit, example_units, make_plan, unit_rng
from remask.pipeline.proposal import TopK
from remask.pipeline.recipe import BuildRecipe, ProposalConfig
from remask.pipeline.runtime.command import main_for
from remask.pipeline.runtime.ending import command
from remask.pipeline.runtime.jobs import ray_session, run_actors
from remask.pipeline.runtime.progress import Meter, Summary
from remask.pipeline.runtime.storage import StorageError
from remask.pipeline.source import missing, read_examples

CHUNK_ELEMENTS = 1 << 24
"""Logits in memory at once."""
SCHEMA = pa.schema(
    [("example_id", pa.string()), ("candidates", pa.binary()), ("log_probs", pa.binary())]
)


@torch.inference_mode()
def probe_examples(
    backbone: Backbone,
    examples: Examples,
    config: ProposalConfig,
    rng: np.random.Generator,
    tokens_per_batch: int = 16384,
) -> tuple[np.ndarray, np.ndarray]:
    """The k likeliest wrong tokens at every editable position, and their log-probabilities.

    Args:
        backbone: The frozen model θ0.
        examples: Sequences to probe on.
        config: Gives k and the mode.
        rng: Chooses, in mode masked, which positions are masked together.
        tokens_per_batch: Padded tokens in one forward pass; does not change the result.

    Returns:
        Ids in the narrowest type and log-probabilities as float16, [B, N, k] each; -inf where there
        is no candidate. The target, MASK and excluded ids are never among the candidates.
    """
    _check_match(backbone, examples)
    vocabulary = examples.vocabulary
    k = min(config.k, len(vocabulary.allowed))
    candidates = np.zeros((*examples.target.shape, k), vocabulary.dtype)
    log_probs = np.full(candidates.shape, -np.inf, np.float16)
    allowed = torch.zeros(backbone.vocab_size, dtype=torch.bool)
    allowed[torch.from_numpy(vocabulary.allowed)] = True
    allowed = allowed.to(backbone.token_embedding.device) & backbone.allowed_ids
    passes = list(_passes(examples.editable, config, rng))
    for rows, length in batches_by_length(examples.lengths, tokens_per_batch):
        target = torch.from_numpy(examples.target[rows, :length].astype(np.int64))
        target = target.to(allowed.device)
        is_token = torch.from_numpy(examples.is_token[rows, :length]).to(allowed.device)
        for where in (chosen[rows, :length] for chosen in passes):
            read = torch.from_numpy(where).to(allowed.device)
            shown = (
                target.masked_fill(read, vocabulary.mask_id) if config.mode == "masked" else target
            )
            hidden = _hidden(backbone, shown, is_token)
            ids, values = _top_k(backbone, hidden[read], target[read], allowed, k)
            if values.isnan().any():
                first = int(read.nonzero()[int(values.isnan().any(-1).nonzero()[0]), 0])
                name = examples.example_ids[rows[first]]
                raise ValueError(f"the backbone gave NaN on example {name}; check its checkpoint")
            row, position = np.nonzero(where)
            candidates[rows[row], position] = ids.cpu().numpy()
            log_probs[rows[row], position] = values.cpu().numpy()
    return candidates, log_probs


def _hidden(backbone: Backbone, tokens: Tensor, is_token: Tensor) -> Tensor:
    """Hidden states [B, N, D] of a first step, whose history is empty."""
    embeds = HistoryState(backbone.history, backbone.token_embedding).update(tokens)
    mask = None if is_token.all() else is_token
    return backbone.hidden(embeds.to(backbone.token_embedding.dtype), attention_mask=mask)


def _top_k(
    backbone: Backbone, hidden: Tensor, target: Tensor, allowed: Tensor, k: int
) -> tuple[Tensor, Tensor]:
    """The k likeliest wrong ids and their log-probabilities at P positions, [P, k].

    The head runs on chunks of positions, since the logits of all may not fit in memory.
    """
    ids, values = [], []
    size = max(1, CHUNK_ELEMENTS // backbone.vocab_size)
    for part, right in zip(hidden.split(size), target.split(size), strict=True):
        logits = backbone.head(part).float().masked_fill(~allowed, -math.inf)
        logits.scatter_(1, right[:, None], -math.inf)
        best = logits.log_softmax(-1).topk(k, dim=-1)
        ids.append(best.indices)
        values.append(best.values.half())
    return torch.cat(ids), torch.cat(values)


def batches_by_length(lengths: np.ndarray, max_tokens: int) -> Iterator[tuple[np.ndarray, int]]:
    """Rows of similar length, with the greatest of their lengths.

    A batch of several rows has at most `max_tokens` padded tokens.
    """
    order = np.argsort(lengths, kind="stable")
    start = 0
    while start < len(order):
        end = start + 1
        while end < len(order) and (end + 1 - start) * lengths[order[end]] <= max_tokens:
            end += 1
        yield order[start:end], int(lengths[order[end - 1]])
        start = end


def _passes(
    editable: np.ndarray, config: ProposalConfig, rng: np.random.Generator
) -> Iterator[np.ndarray]:
    """Positions to read in each forward pass, [B, N]: all, or random groups masked in turn."""
    if config.mode == "clean":
        yield editable
        return
    count = max(1, round(1 / config.mask_rate))
    key = np.where(editable, rng.random(editable.shape), np.inf)
    rank = np.argsort(np.argsort(key, axis=1, kind="stable"), axis=1, kind="stable")
    for group in range(count):
        yield editable & (rank % count == group)


def _check_match(backbone: Backbone, examples: Examples) -> None:
    vocabulary = examples.vocabulary
    if backbone.mask_id != vocabulary.mask_id or backbone.vocab_size < vocabulary.size:
        raise ValueError(
            f"the backbone has {backbone.vocab_size} ids with MASK {backbone.mask_id}, the source "
            f"{vocabulary.size} with MASK {vocabulary.mask_id}; use a backbone that was trained "
            "with the source's tokenizer"
        )
    check_length(backbone, examples)


def check_length(backbone: Backbone, examples: Examples) -> None:
    """Raise ValueError if an example is longer than the model takes."""
    longest = int(examples.lengths.max(initial=0))
    if backbone.max_length is not None and longest > backbone.max_length:
        name = examples.example_ids[int(examples.lengths.argmax())]
        raise ValueError(
            f"example {name} has {longest} tokens, the backbone takes {backbone.max_length}; lower "
            "source.max_length"
        )


def probe_unit(plan: BuildPlan, backbone: Backbone, unit: Unit) -> tuple[int, int]:
    """Probe one unit's examples and cache the result; return its rows and tokens."""
    examples = read_examples(plan, unit)
    rng = unit_rng(plan, PROBE_STAGE, unit)
    recipe = plan.recipe
    candidates, log_probs = probe_examples(
        backbone, examples, recipe.proposal, rng, recipe.run.tokens_per_batch
    )
    plan.proposals.write_sealed(f"{unit.name}.parquet", _encode(examples, candidates, log_probs))
    return len(examples.example_ids), int(examples.lengths.sum())


def read_proposals(plan: BuildPlan, unit: Unit, examples: Examples) -> TopK:
    """The cached candidates of one unit."""
    storage, name = plan.proposals, f"{unit.name}.parquet"
    data, path = storage.read_sealed(name), storage.path(name)
    try:
        candidates, log_probs = _decode(data, examples)
        return TopK(
            candidates,
            log_probs,
            num_allowed=len(examples.vocabulary.allowed),
            is_uniform=plan.recipe.proposal.candidates == "uniform",
        )
    except (pa.ArrowException, OSError, ValueError, RecursionError) as error:
        reason = str(error).splitlines()[0]
        raise StorageError(f"{path} is damaged: {reason}; remove it and probe again") from error


def _decode(data: bytes, examples: Examples) -> tuple[np.ndarray, np.ndarray]:
    """The inverse of `_encode`; raises ValueError if the data is damaged."""
    table = read_table(data)
    meta = json.loads((table.schema.metadata or {}).get(b"remask", b"{}"))
    dtype = examples.vocabulary.dtype
    if table.schema.names != SCHEMA.names or not isinstance(meta, dict):
        raise ValueError(f"it has the columns {table.schema.names}")
    if type(meta.get("k")) is not int or meta.get("dtype") != dtype.name:
        raise ValueError(f"its metadata is {meta}")
    if table["example_id"].to_pylist() != list(examples.example_ids):
        raise ValueError("it belongs to other examples")
    kept, k = examples.is_token, meta["k"]

    def spread(column: str, dtype: np.dtype, fill: float) -> np.ndarray:
        if table[column].null_count:
            raise ValueError(f"{column} lacks a value")
        flat = b"".join(table[column].cast(pa.binary()).to_pylist())
        values = np.frombuffer(flat, dtype)
        if not 1 <= k <= examples.vocabulary.size or values.size != k * np.count_nonzero(kept):
            raise ValueError(f"{column} has {values.size} values, expected {k} for each position")
        out = np.full((*kept.shape, k), fill, dtype)
        out[kept] = values.reshape(-1, k)
        return out

    candidates = spread("candidates", dtype, 0)
    if int(candidates.max(initial=0)) >= examples.vocabulary.size:
        raise ValueError(f"a candidate has the id {candidates.max()}")
    return candidates, spread("log_probs", np.dtype(np.float16), -np.inf)


def _encode(examples: Examples, candidates: np.ndarray, log_probs: np.ndarray) -> bytes:
    kept = examples.is_token
    columns = [pa.array(examples.example_ids, pa.string())]
    for values in (candidates, log_probs):
        columns.append(
            pa.array([v[m].tobytes() for v, m in zip(values, kept, strict=True)], pa.binary())
        )
    meta = {"k": candidates.shape[-1], "dtype": candidates.dtype.name}
    out = io.BytesIO()
    schema = SCHEMA.with_metadata({"remask": json.dumps(meta)})
    table = pa.Table.from_arrays(columns, schema=schema)
    pq.write_table(table, out, compression="zstd", use_dictionary=False, write_statistics=False)
    return out.getvalue()


def run(recipe: BuildRecipe, plan: BuildPlan | None = None) -> Summary:
    """Probe the units without cached candidates, after making their examples."""
    if recipe.proposal.kind != "top_k":
        raise ValueError(f"proposal.kind {recipe.proposal.kind} needs no probing; only top_k does")
    plan = plan or make_plan(recipe)
    units = example_units(plan.recipe)
    todo = missing(plan.proposals, units)
    with ray_session(plan.workers) if todo else contextlib.nullcontext():
        if todo:
            source.run_plan(plan)
        with Meter("probe", len(units), len(units) - len(todo)) as meter:
            for rows, tokens in run_actors(
                partial(make_worker, plan),
                todo,
                workers=plan.workers,
                num_gpus=recipe.run.gpus_per_probe,
            ):
                meter.add(rows, tokens)
    plan.proposals.sweep("")
    return meter.summary(len(todo), plan.proposals.uri)


def make_worker(plan: BuildPlan) -> Callable[[Unit], tuple[int, int]]:
    """Load the backbone once and return a function that probes a unit."""
    on_gpu = torch.cuda.is_available() and plan.recipe.run.gpus_per_probe > 0
    backbone = load(plan.recipe.proposal.backbone or "", device="cuda" if on_gpu else "cpu")
    return partial(probe_unit, plan, backbone)


def main(argv: list[str] | None = None) -> None:
    main_for(
        "probe",
        __doc__,
        run,
        example_units,
        argv,
        advise=lambda recipe, name: f"{command('build', name)}, with the same keys",
    )


if __name__ == "__main__":
    main()
