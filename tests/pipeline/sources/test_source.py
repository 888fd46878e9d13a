"""Every source that a recipe may name provides what the stages ask of it."""

import dataclasses
import inspect
from typing import Literal, get_args, get_origin, get_type_hints

import numpy as np
import pytest

from remask.models.config import from_mapping
from remask.pipeline.edits import ShapePairs
from remask.pipeline.proposal_kinds import PROPOSALS, check_proposal
from remask.pipeline.recipe import BuildRecipe
from remask.pipeline.sources.countdown import CountdownSource
from remask.pipeline.sources.image_edit import ImageEditSource
from remask.pipeline.sources.registry import SOURCES
from remask.pipeline.sources.source import Source
from remask.pipeline.sources.sudoku import SudokuSource
from remask.pipeline.sources.text import TextSource
from tests.pipeline.pictures import write_tokenizer
from tests.text_folders import write_rows, write_text_tokenizer

MEMBERS = {name for name in vars(Source) if not name.startswith("_")}


@pytest.fixture
def small_source(tmp_path):
    """A small instance of each source, by class."""
    rows = [{"prompt": f"{i} and", "response": "1"} for i in range(8)]
    pairs = ShapePairs(train=6, held_out=2)
    pictures = [pairs.pair("train", i).source for i in range(6)]
    sources = [
        SudokuSource(side=4, train=6, held_out=2),
        TextSource(
            data=write_rows(tmp_path / "rows.jsonl", *rows),
            tokenizer=write_text_tokenizer(tmp_path / "tokenizer"),
            held_out_share=0.3,
        ),
        CountdownSource(train=6, held_out=2),
        ImageEditSource(pairs=pairs, tokenizer=write_tokenizer(tmp_path / "vq", pictures, 8, 128)),
    ]
    return {type(source): source for source in sources}


@pytest.mark.parametrize("kind", SOURCES)
def test_a_source_has_the_members_of_the_protocol(kind):
    assert dataclasses.is_dataclass(kind)
    assert {name for name in MEMBERS if not hasattr(kind, name)} == set()
    for name in MEMBERS:
        wanted = getattr(Source, name)
        if inspect.isfunction(wanted):
            given = inspect.signature(getattr(kind, name))
            assert list(given.parameters) == list(inspect.signature(wanted).parameters), name


def test_kinds_are_literals_that_differ():
    hints = [get_type_hints(kind)["kind"] for kind in SOURCES]
    assert all(get_origin(hint) is Literal and len(get_args(hint)) == 1 for hint in hints)
    assert len({get_args(hint) for hint in hints}) == len(SOURCES)


def test_recipes_take_every_source():
    assert get_args(get_type_hints(BuildRecipe)["source"]) == SOURCES


@pytest.mark.parametrize("kind", SOURCES)
def test_a_source_keeps_the_promises_of_the_protocol(kind, small_source):
    source: Source = small_source[kind]
    assert source.with_absolute_paths() == source
    values = dataclasses.asdict(source)
    assert from_mapping(kind, values, "recipe") == source
    for split, count in source.num_records().items():
        first, again = (source.examples(split, 0, count, np.random.default_rng(7)) for _ in "ab")
        assert np.array_equal(first.target, again.target)
        assert len(first.example_ids) + first.num_skipped <= count
        assert first.vocabulary == source.vocabulary()
        targets = first.target[first.editable]
        assert np.isin(targets, range(source.vocabulary().size)).all()
        assert (targets != source.vocabulary().mask_id).all()
        assert not (first.editable & ~first.is_token).any()
        checker = source.checker()
        for row in range(len(first.lengths) if checker else 0):
            example = first.example(row)
            assert checker.is_right(example, example.target)
            blank = np.where(example.editable, first.vocabulary.mask_id, example.target)
            nearest = checker.nearest(example, blank, example.target)
            assert np.array_equal(nearest, example.target)
        if "source" in source.own_proposals():
            assert first.starts is not None
            assert first.starts.shape == first.target.shape
    assert isinstance(source.tokenizer_hash(), str)
    assert source.data_hash() == source.data_hash()
    assert set(source.own_proposals()) <= {name for name, x in PROPOSALS.items() if x.only_for}


@pytest.mark.parametrize("name", PROPOSALS)
def test_a_proposal_is_refused_by_the_sources_that_lack_it(name, small_source):
    for source in small_source.values():
        if not PROPOSALS[name].only_for or name in source.own_proposals():
            check_proposal(name, source.own_proposals())
        else:
            with pytest.raises(ValueError, match=rf"proposal.kind {name} is for .*; use uniform"):
                check_proposal(name, source.own_proposals())
