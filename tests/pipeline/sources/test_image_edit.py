"""Image edits from pairs to trajectory shards, with a real tokeniser of random weights."""

import dataclasses
import json
import shutil

import numpy as np
import polars as pl
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from remask.models.images.edit_rows import EditLayout
from remask.models.images.tokens import ImageLayout
from remask.pipeline import build, open_manifest, read_rows, source, states
from remask.pipeline.edits import FilePairs, ShapePairs
from remask.pipeline.edits.text import (
    BEGIN,
    END,
    NEWLINE,
    TEXT_END,
    UNKNOWN,
    PublishedText,
    WordText,
)
from remask.pipeline.plan import example_units, make_plan
from remask.pipeline.recipe import BuildRecipe, ProposalConfig, RunConfig
from remask.pipeline.shards import main as shards_command
from remask.pipeline.sources import image_edit
from remask.pipeline.sources.image_edit import ImageEditSource
from remask.pipeline.trajectory import TrajectoryConfig
from tests.pipeline.pictures import write_plain, write_tokenizer


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    pictures = [ShapePairs().pair("train", i).source for i in range(16)]
    folder = tmp_path_factory.mktemp("vq") / "tokenizer"
    return write_tokenizer(folder, pictures, 8, 128)


@pytest.fixture
def edits(tokenizer):
    def make(**changes):
        pairs = ShapePairs(train=20, held_out=6)
        return ImageEditSource(**({"pairs": pairs, "tokenizer": tokenizer} | changes))

    return make


def examples(source, count=20, split="train"):
    return source.examples(split, 0, count, np.random.default_rng(0))


def test_a_row_is_the_words_and_the_canvas_with_newlines(edits):
    source = edits()
    read = examples(source)
    pair = source.pairs.pair("train", 3)
    words = source.pairs.words()
    spoken = [UNKNOWN + 1 + words.index(w) for w in pair.instruction.split()]
    row = read.target[3, : read.lengths[3]].tolist()
    codes = source.encode([pair.target])[0] + 256
    grid = [x for line in codes.tolist() for x in [*line, NEWLINE]]
    assert row == [*spoken, TEXT_END, BEGIN, *grid, END]
    assert read.prompt_lengths[3] == len(spoken) + 2
    editable = read.editable[3, : read.lengths[3]]
    assert editable.sum() == 16
    assert (np.array(row)[editable] >= 256).all()
    assert read.vocabulary.allowed.tolist() == list(range(256, 256 + 128))


def test_rows_start_as_the_source_picture(edits):
    source = edits()
    read = examples(source)
    for i in range(20):
        pair, where = source.pairs.pair("train", i), read.editable[i]
        start = source.encode([pair.source])[0].flatten() + 256
        assert read.starts[i][where].tolist() == start.tolist()
        assert (read.starts[i][~where] == read.target[i][~where]).all()
    assert (read.starts != read.target).any(1).mean() > 0.8


def test_the_source_may_lie_in_the_prompt(edits):
    source = edits(source_in="prompt")
    read, canvas = examples(source), examples(edits())
    assert read.starts is None
    pair = source.pairs.pair("train", 0)
    row = read.target[0, : read.lengths[0]].tolist()
    first = row.index(BEGIN)
    shown = [x - 256 for x in row[first + 1 : row.index(END)] if x != NEWLINE]
    assert shown == source.encode([pair.source])[0].flatten().tolist()
    for i in range(20):
        assert (read.target[i][read.editable[i]] == canvas.target[i][canvas.editable[i]]).all()
        assert read.editable[i].argmax() == read.prompt_lengths[i]


def test_a_build_goes_from_the_source_to_the_target(edits, tmp_path, capsys):
    recipe = BuildRecipe(
        output=str(tmp_path / "data"),
        source=edits(),
        trajectories=TrajectoryConfig(horizon=4, noisy_rate=(1.0, 1.0), rules={"wrong": 1.0}),
        proposal=ProposalConfig(kind="source"),
        examples_per_shard=8,
        run=RunConfig(workers=0),
    )
    build.run(recipe)
    table = open_manifest(recipe.output).collect()
    assert dict(table.group_by("split").agg(pl.col("rows").sum()).iter_rows()) == {
        "train": 20,
        "held_out": 6,
    }
    assert table["mask"].sum() == table["doubt"].sum() == 0
    starts = examples(edits()).starts
    rows = [
        row
        for name in sorted(table.filter(pl.col("split") == "train")["path"])
        for row in read_rows(f"{recipe.output}/{name}")
    ]
    for row, start in zip(rows, starts, strict=True):
        path = states(row)
        assert (path[0] == start[: len(row.target)]).all(), "every differing token is wrong"
        assert (path[-1] == row.target).all()
        assert not row.ends[:, ~row.editable].any()
    assert table["wrong"].sum() == sum(
        int((row.tokens[0] != row.target).sum()) for row in rows
    ) + int(table.filter(pl.col("split") == "held_out")["wrong"].sum())
    shards_command([recipe.output, "show", "train-00000-00", "3"])
    assert "prompt" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="0"):
        shards_command([recipe.output, "verify"])


def test_some_of_the_tokens_to_change_may_start_masked(edits, tmp_path):
    recipe = BuildRecipe(
        output=str(tmp_path / "data"),
        source=edits(),
        trajectories=TrajectoryConfig(noisy_rate=(1.0, 1.0), rules={"wrong": 0.5, "mask": 0.5}),
        proposal=ProposalConfig(kind="source"),
        run=RunConfig(workers=0),
    )
    build.run(recipe)
    table = open_manifest(recipe.output).collect()
    masked, wrong = table["mask"].sum(), table["wrong"].sum()
    assert masked > 0
    assert wrong > 0
    by_split = {s: examples(edits(), n, s) for s, n in {"train": 20, "held_out": 6}.items()}
    assert masked + wrong == sum(int((x.starts != x.target).sum()) for x in by_split.values())


@pytest.mark.slow
def test_ray_workers_write_the_same_bytes(edits, tmp_path):
    outputs = []
    for workers in (0, 2):
        recipe = BuildRecipe(
            output=str(tmp_path / f"data{workers}"),
            source=edits(),
            trajectories=TrajectoryConfig(noisy_rate=(1.0, 1.0), rules={"wrong": 1.0}),
            proposal=ProposalConfig(kind="source"),
            examples_per_shard=8,
            run=RunConfig(workers=workers),
        )
        build.run(recipe)
        folder = tmp_path / f"data{workers}"
        outputs.append({p.relative_to(folder): p.read_bytes() for p in folder.rglob("*.parquet")})
    assert outputs[0] == outputs[1]


def test_unreadable_pictures_are_named_and_the_rest_goes_on(tokenizer, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    folder = write_plain(tmp_path / "plain")
    whole = (folder / "4-source.png").read_bytes()
    (folder / "4-source.png").write_bytes(whole[:60])
    (folder / "1-target.png").unlink()
    pairs = FilePairs(data=str(folder), height=16, width=24, held_out_share=0.0)
    recipe = BuildRecipe(
        output=str(tmp_path / "data"),
        source=ImageEditSource(pairs=pairs, tokenizer=tokenizer),
        trajectories=TrajectoryConfig(noisy_rate=(1.0, 1.0)),
        run=RunConfig(workers=0),
    )
    plan = make_plan(recipe)
    summary = source.run_plan(plan)
    assert (summary.rows, summary.skipped) == (4, 2)
    said = plan.examples.read("train-00000.left_out.txt").decode().splitlines()
    assert len(said) == 2
    assert "there is no 1-target.png" in said[0]
    assert "4-source.png is damaged" in said[1]
    read = source.read_examples(plan, example_units(recipe)[0])
    assert read.editable.sum(1).tolist() == [6] * 4, "2 × 3 cells"
    lost = dataclasses.replace(pairs, images=str(tmp_path / "elsewhere"))
    nothing = dataclasses.replace(recipe.source, pairs=lost)
    recipe = dataclasses.replace(recipe, output=str(tmp_path / "none"), source=nothing)
    with pytest.raises(ValueError, match=r"the first: .*there is no 0-source.png .*see .*left_out"):
        source.run(recipe)


def test_equal_pictures_are_kept_or_left_out_and_counted(edits):
    pairs = ShapePairs(edits=("no_op", "remove"), train=20)
    kept = examples(edits(pairs=pairs))
    same = (kept.starts == kept.target).all(1)
    assert 0 < same.sum() < 20
    assert list(kept.unchanged) == [kept.example_ids[i] for i in np.flatnonzero(same)]
    skipped = examples(edits(pairs=pairs, equal="skip"))
    assert skipped.num_skipped == same.sum()
    assert len(skipped.example_ids) == 20 - same.sum()
    assert skipped.left_out[0].endswith("source and target are the same picture")


def test_edits_that_the_tokeniser_does_not_see_are_edits_of_nothing(edits, tmp_path):
    pairs = ShapePairs(train=20)
    coarse = write_tokenizer(tmp_path / "vq", [np.zeros((32, 32, 3), np.uint8)], 8, 1)
    kept = examples(edits(pairs=pairs, tokenizer=coarse))
    assert list(kept.unchanged) == list(kept.example_ids)
    skipped = examples(edits(pairs=pairs, tokenizer=coarse, equal="skip"))
    assert skipped.num_skipped == 20
    assert skipped.left_out[0].endswith("source and target have the same tokens")


def test_an_instruction_longer_than_the_context_is_left_out(edits):
    lengths = examples(edits()).lengths
    short = examples(edits(max_length=int(lengths.max()) - 1))
    assert 0 < short.num_skipped < 20
    assert f"is longer than max_length {lengths.max() - 1}" in short.left_out[0]
    assert short.lengths.max() < lengths.max()


def test_the_key_follows_what_things_hold_not_where_they_are(edits, tokenizer, tmp_path):
    elsewhere = str(shutil.copytree(tokenizer, tmp_path / "copy"))

    def key(**changes):
        recipe = BuildRecipe(
            output="memory://x",
            source=edits(**changes),
            trajectories=TrajectoryConfig(noisy_rate=(1.0, 1.0)),
        )
        return make_plan(recipe).source_key

    assert key() == key(tokenizer=elsewhere)
    assert len({key(), key(source_in="prompt"), key(text=WordText(size=300))}) == 3
    assert key(pairs=ShapePairs(seed=1)) != key(pairs=ShapePairs())


def test_mistakes_are_named(edits, tmp_path):
    trajectories = TrajectoryConfig(noisy_rate=(1.0, 1.0))
    with pytest.raises(ValueError, match="is for image edits with source_in: canvas"):
        BuildRecipe(
            output="x",
            source=edits(source_in="prompt"),
            trajectories=trajectories,
            proposal=ProposalConfig(kind="source"),
        )
    with pytest.raises(ValueError, match="23 words, text.size 20 has room for 12; make it 31"):
        examples(edits(text=WordText(size=20)))
    with pytest.raises(ValueError, match="36 × 36 pixels do not divide into .* of 8; set pairs"):
        examples(edits(pairs=ShapePairs(side=36)))
    with pytest.raises(ValueError, match="there is no image tokeniser at nowhere"):
        edits(tokenizer="nowhere").tokenizer_hash()
    with pytest.raises(ValueError, match="max_length must be at least 1, got 0"):
        edits(max_length=0)


@pytest.fixture
def published(tmp_path):
    """A tokenizer with tags and a mask token, and edits' ids after its own."""
    words = ["[UNK]", "<|mdm_mask|>", "<system>", "</system>", "<user>", "</user>", "edit", "make"]
    inner = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="[UNK]"))
    inner.pre_tokenizer = pre_tokenizers.Split(" ", "removed")
    fast = PreTrainedTokenizerFast(
        tokenizer_object=inner,
        unk_token="[UNK]",
        mask_token="<|mdm_mask|>",
        additional_special_tokens=["<system>", "</system>", "<user>", "</user>"],
    )
    fast.save_pretrained(tmp_path / "text")
    image = ImageLayout(code_offset=20, num_codes=128, newline_id=10, begin_id=11, end_id=12)
    ids = EditLayout(image=image, unconditional_id=13, answer_id=14, answer_end_id=15)
    return PublishedText(tokenizer=str(tmp_path / "text"), system="edit", ids=ids)


def test_a_published_prompt_has_the_source_before_its_last_token(edits, published):
    source = edits(text=published, source_in="prompt")
    read = examples(source, 2)
    row = read.target[0, : read.lengths[0]].tolist()
    assert row[:4] == [2, 6, 3, 4]  # <system>edit</system><user>
    assert row[row.index(12) + 1 : row.index(12) + 4] == [5, 14, 11]  # EOI </user> ANSWER BOI
    assert row[-2:] == [12, 15]
    assert read.vocabulary.mask_id == 1
    assert read.vocabulary.size == 148
    canvas = examples(edits(text=published), 2)
    assert canvas.target[0].tolist().count(11) == 1


def test_pictures_of_many_shapes_are_rows_of_many_lengths(tokenizer, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    folder = write_plain(tmp_path / "plain", [(32, 32), (32, 96), (32, 32), (96, 32)])
    pairs = FilePairs(
        data=str(folder), height=32, width=32, shape="own", step=8, held_out_share=0.0
    )
    many = ImageEditSource(pairs=pairs, tokenizer=tokenizer)
    monkeypatch.setattr(image_edit, "MAX_PIXELS", 1100)  # a picture at a time
    read = examples(many, 4)
    monkeypatch.undo()
    cells = [(4, 4), (2, 8), (4, 4), (6, 2)]
    assert read.editable.sum(1).tolist() == [rows * columns for rows, columns in cells]
    for i, (rows, columns) in enumerate(cells):
        alone = many.encode([pairs.pair("train", i).source])[0]
        assert alone.shape == (rows, columns)
        start = read.starts[i][read.editable[i]] - many.layout.image.code_offset
        assert start.tolist() == alone.flatten().tolist()
        canvas = read.target[i][read.target[i].tolist().index(BEGIN) :].tolist()
        assert canvas[: canvas.index(END)].count(NEWLINE) == rows
    pictures = many.decode(many.encode([pairs.pair("train", i).target for i in range(4)]))
    assert [x.shape[:2] for x in pictures] == [(8 * h, 8 * w) for h, w in cells]


def test_an_instruction_with_special_tokens_is_left_out(edits, published, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    folder = write_plain(tmp_path / "plain")
    lines = [json.loads(x) for x in (folder / "edits.jsonl").read_text().splitlines()]
    lines[1]["instruction"] = "make <|mdm_mask|> red"
    lines[4]["instruction"] = "make </user> red"
    (folder / "edits.jsonl").write_text("\n".join(map(json.dumps, lines)))
    pairs = FilePairs(data=str(folder), height=16, width=16, held_out_share=0.0)
    read = examples(edits(pairs=pairs, text=published), 6)
    assert len(read.example_ids) == 4
    assert [x.partition(": ")[2] for x in read.left_out] == [
        "the instruction 'make <|mdm_mask|> red' holds special tokens",
        "the instruction 'make </user> red' holds special tokens",
    ]


def test_published_mistakes_are_named(edits, published):
    other = dataclasses.replace(published.ids.image, num_codes=32)
    wrong = dataclasses.replace(published, ids=dataclasses.replace(published.ids, image=other))
    with pytest.raises(ValueError, match="tokeniser has 128 codes, the model has ids for 32"):
        examples(edits(text=wrong))
    with pytest.raises(ValueError, match="template must contain {instruction}"):
        dataclasses.replace(published, template="<user></user>")


def test_ids_outside_the_codebook_are_refused(edits):
    source = edits()
    codes = torch.full((4, 4), 128)
    with pytest.raises(ValueError, match="codes must lie below num_codes 128, got 128 at"):
        source.row("remove", codes, codes)
    with pytest.raises(ValueError, match="codes must lie below num_codes 128, got 128 at"):
        source.decode(codes[None])
