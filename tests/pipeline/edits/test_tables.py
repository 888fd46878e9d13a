"""Which rows of a table belong to which split."""

import dataclasses
import json

import pytest

from remask.pipeline.edits import FilePairs
from tests.pipeline.pictures import write_plain


def test_splits_follow_the_picture(tmp_path, private_cache):
    folder = write_plain(tmp_path / "plain")
    lines = [json.loads(x) for x in (folder / "edits.jsonl").read_text().splitlines()]
    again = [line | {"instruction": "another edit of it"} for line in lines]
    (folder / "edits.jsonl").write_text("\n".join(map(json.dumps, lines + again)))
    pairs = FilePairs(data=str(folder), height=16, width=16, held_out_share=0.5)
    pictures = {
        split: {pairs.pair(split, i).source.tobytes() for i in range(count)}
        for split, count in pairs.num_pairs().items()
    }
    assert len(pictures) == 2
    assert not pictures["train"] & pictures["held_out"]
    assert sum(pairs.num_pairs().values()) == 12


def test_folders_of_one_name_are_one_picture_if_asked(tmp_path, private_cache):
    lines = [
        {"source": f"{part}/{i:03d}/a.png", "target": f"{part}/{i:03d}/b.png", "instruction": part}
        for part in ("add", "remove", "replace")
        for i in range(40)
    ]
    (tmp_path / "edits.jsonl").write_text("\n".join(map(json.dumps, lines)))
    alone = FilePairs(data=str(tmp_path), held_out_share=0.5)
    together = dataclasses.replace(alone, split_by="folder")

    def photos(pairs):
        return [{row % 40 for row in pairs._rows[split]} for split in ("train", "held_out")]

    trained, held_out = photos(together)
    assert not trained & held_out
    assert trained | held_out == {*range(40)}
    assert set.intersection(*photos(alone)), "by their paths, copies of a photo part"


def test_so_many_rows_are_chosen_by_a_hash(tmp_path, private_cache):
    folder = write_plain(tmp_path / "plain", [(16, 16)] * 40)
    everything = FilePairs(data=str(folder), height=16, width=16, held_out_share=0.5)
    some = dataclasses.replace(everything, max_rows=30)
    fewer = dataclasses.replace(everything, max_rows=10)
    rows = {
        name: {split: set(pairs._rows[split]) for split in ("train", "held_out")}
        for name, pairs in (("all", everything), ("some", some), ("fewer", fewer))
    }
    assert sum(some.num_pairs().values()) == 30
    assert sum(fewer.num_pairs().values()) == 10
    for split in ("train", "held_out"):
        assert rows["fewer"][split] < rows["some"][split] < rows["all"][split], (
            "both splits lose some"
        )
    assert dataclasses.replace(everything, max_rows=99).num_pairs() == everything.num_pairs()
    with pytest.raises(ValueError, match="max_rows must be at least 1, got 0"):
        dataclasses.replace(everything, max_rows=0)
