"""Plans over several shard sets: what of them identifies a run, and what does not fit together."""

import polars as pl
import pytest

from remask.models.config import from_mapping
from remask.pipeline.format import manifest
from remask.training import launch
from remask.training.plan import make_plan
from remask.training.recipe import TrainRecipe
from remask.training.run.card import model_card
from remask.training.run.checkpoint import State
from remask.training.run.extension import claim_run
from remask.training.run.folder import RunFolder
from remask.training.world import World
from tests.training.data import write_data_set
from tests.training.runs import LLADA, write_recipe

ALONE = World(rank=0, size=1, local_rank=0, local_size=1)


@pytest.fixture
def uris(tmp_path):
    """Two sets, of which only the second has held-out rows."""
    return [
        write_data_set(tmp_path / "a", [[5] * 30, [9] * 10]),
        write_data_set(tmp_path / "b", [[7] * 20, [8] * 4], splits={1: "held_out"}, horizon=6),
    ]


def plan(uris, shares=(0.75, 0.25), **changes):
    sets = [{"uri": x, "share": share} for x, share in zip(uris, shares, strict=True)]
    values = {"shards": sets, "output": "run", "model": LLADA, "steps": 5, "batch_size": 8}
    return make_plan(from_mapping(TrainRecipe, values | changes, "recipe"), ALONE)


def test_a_plan_covers_all_sets(uris):
    both = plan(uris, steps=None, epochs=2.0)
    assert both.train.rows_per_set == (6, 2)
    assert (both.train.num_rows, both.steps) == (60, 15)
    assert (both.horizon, both.train.longest) == (6, 9)
    assert (both.held_out.uri, both.held_out.num_rows) == (uris[1], 4)
    assert plan(uris, held_out={"every": 0}).held_out is None


def test_a_list_of_one_set_is_the_set(uris):
    listed, named = plan(uris[:1], (1.0,)), plan(uris[:1], (1.0,), shards=uris[0])
    assert listed.content == named.content
    assert named.content["data"] == named.train.sets[0].fingerprint


def test_order_and_shares_of_sets_are_part_of_a_run(uris):
    whole = plan(uris).content
    assert [x["share"] for x in whole["data"]] == [0.75, 0.25]
    assert plan(uris[::-1], (0.25, 0.75)).content != whole
    assert plan(uris, (0.5, 0.5)).content != whole
    assert plan(uris[:1], (1.0,)).content != whole


def test_a_run_goes_on_with_its_own_shares_only(uris, tmp_path):
    folder = RunFolder(tmp_path / "run")
    constant = {"optimizer": {"decay": "constant"}}
    claim_run(folder, plan(uris, **constant))
    claim_run(folder, plan(uris, steps=9, **constant))  # an extension
    for other in (plan(uris, (0.5, 0.5)), plan(uris[::-1], (0.25, 0.75))):
        with pytest.raises(ValueError, match=r"was made by another recipe \(different: data"):
            claim_run(folder, other)


def test_the_model_card_names_every_set(uris):
    both = plan(uris)
    a, b = (x.fingerprint for x in both.train.sets)
    facts = f"{a}, 40 training rows, 0.75 of each batch; {b}, 20 training rows, 0.25 of each batch"
    assert f"| data | {facts} |" in model_card(both, State(5, 1), None)


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("vocab_size", pl.lit(24, pl.Int32)),
        ("mask_id", pl.lit(3, pl.Int32)),
        ("tokenizer", pl.lit("other")),
    ],
)
def test_sets_of_another_vocabulary_are_refused(uris, tmp_path, column, value):
    table = manifest.open_manifest(uris[1]).with_columns(value.alias(column)).collect()
    table.write_parquet(tmp_path / "b" / manifest.MANIFEST)
    with pytest.raises(ValueError, match=f"/a has {column} .*, .*/b has .*need one vocabulary"):
        plan(uris)


def test_a_set_without_training_rows_is_named(uris, tmp_path):
    empty = write_data_set(tmp_path / "c", [[5] * 4], splits={0: "held_out"})
    with pytest.raises(ValueError, match="/c has no rows of split 'train'"):
        plan([uris[0], empty])


def test_a_held_out_split_of_another_horizon_than_its_set_is_refused(uris, tmp_path):
    table = manifest.open_manifest(uris[1]).collect()
    horizon = pl.when(split="held_out").then(9).otherwise("horizon").cast(pl.Int32)
    table.with_columns(horizon=horizon).write_parquet(tmp_path / "b" / manifest.MANIFEST)
    with pytest.raises(ValueError, match="/b has horizon 9 in held_out and 6 in train"):
        plan(uris)


def test_a_dry_run_says_what_a_batch_takes_from_each_set(uris, tmp_path, capsys):
    sets = [{"uri": uris[0], "share": 0.75}, {"uri": uris[1], "share": 0.25}]
    path = write_recipe(tmp_path, "dry", "", shards=sets, model=LLADA, steps=10)
    launch.main([path, "--dry-run"])
    out = capsys.readouterr().out
    assert "share: 0.75" in out
    assert "# train: 10 steps, 60 rows, 1 ranks" in out
    assert f"# {uris[0]}: 12 of 16 rows of each batch, 3 passes over 40 rows" in out
    assert f"# {uris[1]}: 4 of 16 rows of each batch, 2 passes over 20 rows" in out
    launch.main(
        [path, "--dry-run", f"shards=[{{uri: {uris[0]}, share: 0.5}}, {{uri: none, share: 0.5}}]"]
    )
    assert "# none is not built yet: rows are not known" in capsys.readouterr().out


TINY = {"kind": "llada", "size": "tiny", "n_layers": 1}


def test_a_model_takes_its_vocabulary_from_the_shards(uris):
    sized = plan(uris, model=TINY)
    model = sized.make_backbone()
    assert (model.vocab_size, model.mask_id, model.config.d_model) == (20, 19, 128)
    assert sized.recipe.model["vocab_size"] == 20
    assert "size" not in sized.content["model"]  # a run records numbers
    spelled = plan(uris, model=sized.recipe.model)
    assert spelled.content == sized.content


def test_a_vocabulary_that_the_recipe_names_is_checked_against_the_shards(uris):
    with pytest.raises(ValueError, match="has mask_id 19, the model 3"):
        plan(uris, model=TINY | {"mask_token_id": 3})
    with pytest.raises(ValueError, match="has vocab_size 20, the model 24"):
        plan(uris, model=TINY | {"vocab_size": 24})


def test_an_unknown_size_is_refused_before_anything_is_read(uris):
    with pytest.raises(ValueError, match="recipe: model: size of kind llada must be one of"):
        plan(uris, model={"kind": "llada", "size": "XL"})


def test_a_dry_run_knows_the_size_and_says_what_it_assumes(uris, tmp_path, capsys):
    path = write_recipe(tmp_path, "dry", "", shards=uris[0], model=TINY, steps=10)
    launch.main([path, "--dry-run"])
    built = capsys.readouterr().out
    assert "# model: 218,496 parameters" in built  # 2 × 20 × 128, a layer, a norm
    assert "assumed" not in built
    launch.main([path, "--dry-run", "shards=none"])
    missing = capsys.readouterr().out
    assert "until they are built, 126,464 ids are assumed" in missing
