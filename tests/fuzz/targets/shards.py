"""Data sets: shards, manifests, and all that a build goes on from.

A shard is damaged with its checksum in the manifest right, so that what reads it has to look at
what it holds. What must never happen besides: a file outside the data set is removed, or a batch
reaches the trainer with numbers that its model would index out of bounds with.
"""

import functools
import hashlib
import io
import json
from collections.abc import Callable
from pathlib import Path
from random import Random

import polars as pl
import pyarrow.parquet as pq

from remask.pipeline import build, shards
from remask.pipeline.format import manifest
from remask.training import loader
from remask.training.loader import Loader
from remask.training.plan import make_plan
from remask.training.recipe import TrainRecipe
from remask.training.world import World
from tests.fuzz.bases import DATA, MODEL, built, made, reseal
from tests.fuzz.case import Case, Files, Target, ViolationError
from tests.fuzz.mutate import mutate_bytes, mutate_json, mutate_text
from tests.fuzz.tables import rewrite
from tests.training.data import write_data_set
from tests.training.runs import LLADA

MANIFEST = f"{DATA}/{manifest.MANIFEST}"
CANARY = "canary"
OUTSIDE = (
    "../canary",
    "shards/../../canary",
    "./../canary",
    "shards/train-00000-00.parquet/../../../canary",
)
SQL = {
    "--sql": (
        "SELECT * FROM manifest",
        "SELECT count(*) FROM manifest GROUP BY split",
        "SELECT shard, rows FROM manifest WHERE rows > 3 ORDER BY rows LIMIT 2",
    ),
    "--where": ("split = 'train'", "rows > 3 AND k IS NULL", "shard LIKE 'train%'"),
}
SQL_PARTS = (
    *(
        "SELECT",
        "FROM",
        "WHERE",
        "(",
        ")",
        "'",
        '"',
        "*",
        ",",
        ";",
        "--",
        "CAST(x AS INT)",
        "/ 0",
        "::int",
    ),
    *("JOIN manifest", "UNION ALL", "OVER ()", "rows", "shard", "NULL", "NaN", "9" * 30, "(" * 200),
    *(
        "read_csv('/etc/hostname')",
        "DROP TABLE manifest",
        "1e999",
        "LIKE '%'",
        "~ '('",
        "||",
        "ARRAY[1]",
    ),
)
loader.ROWS_PER_CHUNK = 8  # so that a loader assembles one step at a time

ALONE = World(rank=0, size=1, local_rank=0, local_size=1)
Change = Callable[[bytes, Random], tuple[bytes, list[str]]]


@functools.cache
def plain() -> Files:
    """A data set of rows of several lengths, with prompts."""
    lengths = [[5, 3, 8], [7, 7], [4]]
    return made(lambda folder: write_data_set(folder / DATA, lengths, splits={2: "held_out"}))


def base(rng: Random) -> Files:
    chosen = built() if rng.random() < 0.5 else plain()
    wanted = (MANIFEST, f"{DATA}/{manifest.SHARDS}/")
    return {name: data for name, data in chosen.items() if name.startswith(wanted)}


def make_shard(change: Change, rng: Random) -> Case:
    """A shard's contents changed, its checksum with them."""
    files = base(rng)
    name = rng.choice([x for x in files if manifest.SHARDS in x])
    files[name], notes = change(files[name], rng)
    shard = Path(name).stem
    is_changed = pl.col("shard") == shard
    facts = {"sha256": hashlib.sha256(files[name]).hexdigest(), "bytes": len(files[name])}
    table = pl.read_parquet(io.BytesIO(files[MANIFEST])).with_columns(
        **{k: pl.when(is_changed).then(pl.lit(v)).otherwise(pl.col(k)) for k, v in facts.items()}
    )
    files[MANIFEST] = to_parquet(table)
    action = rng.choice((["list"], ["verify"], ["verify"], ["show", shard, str(rng.randrange(4))]))
    return Case(files, tuple(action), (shard, *notes), (DATA, shard))


def make_manifest(change: Change, rng: Random) -> Case:
    files = base(rng)
    files[MANIFEST], notes = change(files[MANIFEST], rng)
    shard = rng.choice([Path(x).stem for x in files if manifest.SHARDS in x])
    actions = (["list"], ["show", shard, "0"], ["verify"], ["tv-bound"], ["verify", "--repair"])
    action = rng.choice(actions)
    if "--repair" in action:
        files[MANIFEST] = _harmless(files[MANIFEST], rng)
        files[CANARY] = b"sings"
    return Case(files, tuple(action), tuple(notes), (DATA, shard))


def make_rows(rng: Random) -> Case:
    """A data set whose build is under way: a row a file."""
    files = base(rng)
    rows = pl.read_parquet(io.BytesIO(files.pop(MANIFEST))).to_dicts()
    files |= {f"{DATA}/{manifest.ROWS}/{x['shard']}.json": json.dumps(x).encode() for x in rows}
    name = rng.choice([x for x in files if x.endswith(".json")])
    files[name], notes = mutate_json(files[name], rng)
    action = rng.choice((["list"], ["verify"], ["tv-bound"], ["show", rows[0]["shard"], "1"]))
    return Case(files, tuple(action), tuple(notes), (DATA, rows[0]["shard"]))


def make_sql(rng: Random) -> Case:
    option = rng.choice(("--sql", "--where"))
    changed, notes = mutate_text(rng.choice(SQL[option]), rng, SQL_PARTS)
    said = changed.replace("\0", "").encode(errors="ignore").decode()
    return Case(base(rng), ("list", f"{option}={said}"), tuple(notes))


def make_build(rng: Random) -> Case:
    """A build to go on with, one of the files that it finds changed."""
    files = dict(built(is_probed=True))
    rows = pl.read_parquet(io.BytesIO(files[MANIFEST])).to_dicts()
    todo = rng.choice(rows)
    del files[f"{DATA}/{todo['path']}"]  # so that its examples and proposals are read again
    if rng.random() < 0.3:
        del files[MANIFEST]
        files |= {f"{DATA}/{manifest.ROWS}/{x['shard']}.json": json.dumps(x).encode() for x in rows}
    name = rng.choice([x for x in files if x.startswith(DATA) and manifest.SHARDS not in x])
    if name.endswith(".json"):
        files[name], notes = mutate_json(files[name], rng)
    else:
        is_table = name.endswith(".parquet")
        files[name], notes = (rng.choice((rewrite, mutate_bytes)) if is_table else mutate_bytes)(
            files[name], rng
        )
    if rng.random() < 0.8:
        reseal(files, name)
    return Case(files, (), (name, *notes), (DATA, "recipe.yaml"))


def run_shards(case: Case) -> None:
    try:
        shards.main([DATA, *case.arguments])
    finally:
        if CANARY in case.files and not Path(CANARY).exists():
            raise ViolationError("a file outside the data set was removed")


def run_training(case: Case) -> None:
    """What a trainer reads before its first step."""
    is_plain = any("held_out-00002" in name for name in case.files)
    model = dict(LLADA if is_plain else MODEL)
    recipe = TrainRecipe(
        shards=DATA, output="out", model=model, steps=1, batch_size=4, shuffle_buffer=8
    )
    plan = make_plan(recipe, ALONE)
    size = plan.train.sets[0].shared_value("vocab_size")
    for batch in next(Loader(plan.train).batches()):
        segments = batch.segments
        ids, steps = (segments.tokens,), (segments.ends, segments.step)
        if any(int(x.min()) < 0 or int(x.max()) >= size for x in ids if x.numel()):
            raise ViolationError("a batch holds ids outside the vocabulary")
        if any(int(x.min()) < 0 or int(x.max()) > plan.horizon for x in steps if x.numel()):
            raise ViolationError("a batch holds steps outside the horizon")


def run_build(case: Case) -> None:
    build.main(["recipe.yaml"])


def to_parquet(table: pl.DataFrame) -> bytes:
    out = io.BytesIO()
    table.write_parquet(out)
    return out.getvalue()


def _harmless(data: bytes, rng: Random) -> bytes:
    """Paths that lead out of the data set lead to the canary: removal is carried out."""
    try:
        table = pl.DataFrame(pq.read_table(io.BytesIO(data)))  # Polars' own reader may panic
        paths = table["path"].to_list()
    except Exception:  # unreadable, so nothing follows from it
        return data
    inside = f"{manifest.SHARDS}/"
    safe = [
        rng.choice(OUTSIDE) if isinstance(x, str) and not x.startswith(inside) else x for x in paths
    ]
    if safe and rng.random() < 0.5:
        safe[rng.randrange(len(safe))] = rng.choice(OUTSIDE)
    return to_parquet(table.with_columns(pl.Series("path", safe, strict=False)))


TARGETS = (
    Target("shard-bytes", functools.partial(make_shard, mutate_bytes), run_shards),
    Target("shard-tables", functools.partial(make_shard, rewrite), run_shards, share=2.0),
    Target("shard-training", functools.partial(make_shard, rewrite), run_training, share=2.0),
    Target("manifest-bytes", functools.partial(make_manifest, mutate_bytes), run_shards),
    Target("manifest-tables", functools.partial(make_manifest, rewrite), run_shards, share=2.0),
    Target("manifest-training", functools.partial(make_manifest, rewrite), run_training),
    Target("manifest-rows", make_rows, run_shards),
    Target("manifest-sql", make_sql, run_shards),
    Target("build-resumed", make_build, run_build),
)
