"""Data sets, tokenizers and models by their names on a hub, which runs on this machine."""

import json

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from remask.evaluation.evaluate import run as evaluate
from remask.evaluation.recipe import EvalRecipe
from remask.models import CheckpointError, SudokuConfig, SudokuMDM, fingerprint, save
from remask.models.checkpoints.folder import StorageError
from remask.models.config import from_mapping
from remask.pipeline import build
from remask.pipeline.benchmarks.gsm8k import read_gsm8k
from remask.pipeline.edits import FilePairs
from remask.pipeline.recipe import BuildRecipe
from remask.pipeline.rollout_recipe import RolloutRecipe
from remask.pipeline.runtime.data_files import load_from_hub, local_files
from remask.pipeline.runtime.storage import Storage, check_kept, file_hash
from remask.pipeline.sources.sudoku import SudokuSource
from remask.training.launch import fetch_start
from remask.training.plan import make_plan
from remask.training.recipe import TrainRecipe
from remask.training.run.card import model_card
from remask.training.run.checkpoint import State
from remask.training.run.extension import claim_run
from remask.training.run.folder import RunFolder
from remask.training.world import World
from tests.hub_server import READER, files_of
from tests.text_folders import write_rows, write_text_tokenizer

ROWS = [{"prompt": f"{a} and {b}", "response": str(a + b)} for a in range(6) for b in range(6)]
PROBLEM = {"question": "One and one?", "answer": "1+1=<<1+1=2>>2\n#### 2"}


def lines(*rows):
    return "".join(f"{json.dumps(row)}\n" for row in rows).encode()


@pytest.fixture(autouse=True)
def _cache(monkeypatch, tmp_path):
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "datasets"))


def chosen(name, split, config=None):
    return [
        x.partition("/snapshots/")[2].partition("/")[2] for x in local_files(name, split, config)
    ]


def test_the_files_of_a_split_have_its_name_in_their_path(hub):
    names = ["train.jsonl", "test.jsonl", "README.md", "load.py", "dataset_infos.json", "x.bin"]
    hub.add("me/plain", dict.fromkeys(names, lines({"a": 1})), "dataset")
    assert chosen("hf:me/plain", "train") == ["train.jsonl"]
    assert chosen("hf:me/plain", "test") == ["test.jsonl"]
    assert not [x for x in hub.asked("resolve") if not x.endswith(".jsonl")]
    names = ["main/train-00000-of-00002.parquet", "main/train-00001-of-00002.parquet"]
    names += ["main/test-00000-of-00001.parquet", "other/train-00000-of-00001.parquet"]
    hub.add("me/folders", dict.fromkeys(names, b"table"), "dataset")
    assert chosen("hf:me/folders", "train", "main") == names[:2]
    assert chosen("hf:me/folders/other", "train") == names[3:]
    assert chosen("hf:me/folders", "train", "unknown") == [*names[:2], names[3]]
    hub.add("me/single", {"constraints.csv": b"a\n1\n"}, "dataset")
    assert chosen("hf:me/single", "anything") == ["constraints.csv"]


def test_what_is_unclear_or_missing_is_said(hub):
    hub.add("me/two", {"a.jsonl": lines({"a": 1}), "constraint.jsonl": b""}, "dataset")
    hub.add("me/code", {"load.py": b"", "data.bin": b""}, "dataset")
    hub.add("me/mixed", {"train.csv": b"", "train.jsonl": b""}, "dataset")
    with pytest.raises(
        ValueError, match=r"of a\.jsonl, .* 'train'; name a file, such as hf:me/two/"
    ):
        local_files("hf:me/two", "train")
    with pytest.raises(ValueError, match="does not say which"):
        local_files("hf:me/mixed", "train")
    with pytest.raises(ValueError, match="hf:me/code holds no data"):
        local_files("hf:me/code", "train")
    with pytest.raises(CheckpointError, match="the hub has no data set hf:me/none"):
        local_files("hf:me/none", "train")
    assert chosen("hf:me/two/a.jsonl", "train") == ["a.jsonl"]
    assert load_from_hub("hf:me/two/a.jsonl", "train")[0] == {"a": 1}
    hub.is_failing = True
    with pytest.raises(StorageError, match="HTTP 503"):
        local_files("hf:me/three", "train")


def test_benchmarks_are_read_from_the_hub(hub):
    files = {"main/train.jsonl": b"", "main/test.jsonl": lines(PROBLEM), "socratic/test.jsonl": b""}
    hub.add("me/gsm8k", files, "dataset")
    (problem,) = read_gsm8k("hf:me/gsm8k")
    assert problem.answer == "2"


def test_files_that_a_setting_names_are_fetched(hub):
    boards = b"1234341221434321\n4321214334121234\n"
    commit = hub.add("me/boards", {"four.txt": boards, "four.bin": boards}, "dataset")
    source = SudokuSource(side=4, file="hf:me/boards/four.txt").with_absolute_paths()
    assert source.file == f"hf:me/boards/four.txt@{commit}"
    assert source.num_records() == {"train": 2, "held_out": 2}
    for name in ("hf:me/boards", "hf:me/boards/five.txt", "hf:me/boards/four.bin"):
        with pytest.raises(ValueError, match=r"does not name a data file; .*\['four\.txt'\]"):
            file_hash(name)


def test_pictures_come_in_tables(hub):
    def table(name):
        row = {"source": [{"path": f"{name}.png", "bytes": b"no picture"}], "instruction": ["draw"]}
        sink = pa.BufferOutputStream()
        pq.write_table(pa.table(row | {"target": row["source"]}), sink)
        return sink.getvalue().to_pybytes()

    commit = hub.add(
        "me/edits", {"train.parquet": table("a"), "test.parquet": table("b")}, "dataset"
    )
    pairs = FilePairs(data="hf:me/edits", held_out_share=0.0)
    assert pairs.num_pairs() == {"train": 1}
    lasting = pairs.with_absolute_paths()
    assert lasting.data == f"hf:me/edits@{commit}"
    assert lasting.data_hash() == pairs.data_hash()
    assert lasting._name == "edits"


def test_outputs_and_shards_are_not_on_the_hub():
    with pytest.raises(ValueError, match=r"output hf:me/it is on the hub; .* `remask push`"):
        check_kept("output", "hf:me/it")
    with pytest.raises(ValueError, match="hf:me/it is on the hub, which holds no shards"):
        Storage("hf:me/it")


def test_a_build_from_the_hub_is_that_of_the_same_files(hub, monkeypatch, tmp_path):
    here, tokenizer = tmp_path / "rows.jsonl", tmp_path / "tokenizer"
    write_rows(here, *ROWS)
    write_text_tokenizer(tokenizer)
    data = hub.add("me/rows", {"rows.jsonl": here.read_bytes(), "x.jsonl": b""}, "dataset")
    model = hub.add("me/tokens", files_of(tokenizer))

    def make(name, **places):
        source = {"kind": "text", "held_out_share": 0.2, "max_length": 32} | places
        values = {"output": str(tmp_path / name), "source": source, "run": {"workers": 0}}
        recipe = from_mapping(
            BuildRecipe,
            values | {"trajectories": {"horizon": 4, "noisy_rate": [0.2, 0.8]}},
            "recipe",
        )
        return build.run(recipe)

    make("here", data=str(here), tokenizer=str(tokenizer))
    hub.use(monkeypatch, tmp_path / "home", token=READER)
    names = {"data": "hf:me/rows/rows.jsonl", "tokenizer": "hf:me/tokens@main"}
    assert make("hub", **names).new_units > 0
    of_hub = files_of(tmp_path / "hub")
    for name, content in files_of(tmp_path / "here").items():
        if name != "provenance.json":
            assert of_hub[name] == content, name
    provenance = json.loads(of_hub["provenance.json"])
    assert provenance["hub"] == {"datasets": {"me/rows": data}, "models": {"me/tokens": model}}
    assert READER in hub.tokens
    assert not [x for x in of_hub.values() if READER.encode() in x]
    hub.add("me/rows", {"rows.jsonl": here.read_bytes(), "x.jsonl": b"more"}, "dataset")
    assert make("hub", **names).new_units == 0  # another commit with the same rows


@pytest.fixture
def model(tmp_path):
    torch.manual_seed(0)
    config = SudokuConfig(side=4, layers=1, width=32, heads=2, feed_forward=32)
    save(SudokuMDM(config), tmp_path / "model")
    return tmp_path / "model"


def test_an_evaluation_records_the_commit(hub, model, tmp_path):
    commit = hub.add("me/it", files_of(model))
    values = {
        "output": str(tmp_path / "eval"),
        "suites": {"boards": {"kind": "sudoku", "side": 4, "boards": 4, "wrong": [1, 4]}},
        "checkpoints": {"here": str(model), "hub": "hf:me/it"},
        "decoders": {"rm": {"max_steps": 2}},
        "run": {"workers": 0},
    }
    evaluate(from_mapping(EvalRecipe, values, "recipe"))
    written = json.loads((tmp_path / "eval" / "evaluation.json").read_text())
    here, there = written["runs"]
    assert there["path"] == f"hf:me/it@{commit}"
    assert here["fingerprint"] == there["fingerprint"]
    assert here["predictions"] == there["predictions"]  # equal weights are decoded once
    assert written["provenance"]["hub"] == {"models": {"me/it": commit}}
    scores = pl.read_parquet(tmp_path / "eval" / "scores.parquet")
    assert set(scores["checkpoint"]) == {"here", "hub"}


def test_recipes_that_go_to_workers_name_the_commit(hub, model):
    commit = hub.add("me/it", files_of(model))
    source = {"kind": "sudoku", "side": 4, "train": 4, "held_out": 0}
    rollout = {"output": "out", "source": source, "checkpoint": "hf:me/it"}
    recipe = from_mapping(RolloutRecipe, rollout, "recipe").with_absolute_paths()
    assert recipe.checkpoint == f"hf:me/it@{commit}"
    probe = {"proposal": {"kind": "top_k", "k": 2, "backbone": "hf:me/it@main"}}
    values = {
        "output": "out",
        "source": source,
        "trajectories": {"horizon": 4, "noisy_rate": [0.2, 0.8]},
    } | probe
    recipe = from_mapping(BuildRecipe, values, "recipe").with_absolute_paths()
    assert recipe.proposal.backbone == f"hf:me/it@{commit}"


def test_training_starts_from_a_commit_that_is_fetched_once(hub, model, tmp_path):
    commit = hub.add("me/it", files_of(model))
    boards = {"kind": "sudoku", "side": 4, "train": 32, "held_out": 8}
    values = {"output": str(tmp_path / "data"), "source": boards, "run": {"workers": 0}}
    build.run(
        from_mapping(
            BuildRecipe,
            values | {"trajectories": {"horizon": 4, "noisy_rate": [0.2, 0.8]}},
            "recipe",
        )
    )
    values = {"output": str(tmp_path / "run"), "shards": str(tmp_path / "data"), "steps": 2}
    recipe = from_mapping(TrainRecipe, values | {"start": "hf:me/it", "batch_size": 8}, "recipe")
    assert fetch_start(recipe) == [f"start=hf:me/it@{commit}"]
    hub.requests.clear()
    plan = make_plan(recipe.with_pinned_start(), World(0, 1, 0, 1))
    assert plan.start == fingerprint(model)
    assert not hub.asked("resolve")
    claim_run(RunFolder(recipe.output), plan)
    provenance = json.loads((tmp_path / "run" / "provenance.json").read_text())
    assert provenance["hub"] == {"models": {"me/it": commit}}
    assert "hf:" not in (tmp_path / "run" / "recipe.json").read_text()  # the content counts
    card = model_card(plan, State(2, 1), None)
    assert f"| started from | hf:me/it@{commit}, {fingerprint(model)} |" in card
    assert fetch_start(from_mapping(TrainRecipe, values | {"start": str(model)}, "recipe")) == []
    with pytest.raises(ValueError, match="output must be a folder"):
        from_mapping(TrainRecipe, values | {"start": str(model), "output": "hf:me/it"}, "recipe")
