"""inputs.json and the files beside it: kept with a model, replaced with it, read as hostile."""

import json
import shutil

import pytest
import torch

from remask.models import CheckpointError, SudokuConfig, SudokuMDM, fingerprint, load, save
from remask.models.checkpoints.adapter import AdapterSettings, add_lora, save_adapter
from remask.models.checkpoints.folder import SUMS
from remask.models.checkpoints.input_files import (
    INPUTS,
    has_input_files,
    read_input_files,
    write_input_files,
)
from remask.models.checkpoints.inputs_file import (
    MAX_BYTES,
    inputs_folder,
    inputs_json,
    parse_inputs,
    read_inputs,
)

FILES = {
    INPUTS: inputs_json({"kind": "text", "prompt": "{question}"}),
    "tokenizer.json": b"{}",
    "image_tokenizer/config.json": b"{}",
    "image_tokenizer/model.safetensors": bytes(10),
}


@pytest.fixture
def model():
    torch.manual_seed(0)
    return SudokuMDM(SudokuConfig(side=4, layers=1, width=16, heads=2, feed_forward=16))


@pytest.fixture
def folder(model, tmp_path):
    save(model, tmp_path / "model", inputs=FILES)
    return tmp_path / "model"


def test_the_files_lie_beside_the_model_with_their_checksums(folder):
    assert read_inputs(folder) == {"kind": "text", "prompt": "{question}"}
    assert read_input_files(folder) == FILES
    listed = {line.split("  ")[1] for line in (folder / SUMS).read_text().splitlines()}
    assert listed == {"config.json", "model.safetensors", *FILES}
    load(folder)


def test_a_model_with_them_is_replaced_as_a_whole(model, folder):
    save(model, folder)
    assert sorted(x.name for x in folder.iterdir()) == [SUMS, "config.json", "model.safetensors"]
    assert read_inputs(folder) is None
    assert not has_input_files(folder)


@pytest.mark.parametrize("name", ["notes.txt", "image_tokenizer/notes.txt"])
def test_a_folder_with_anything_else_is_not_replaced(model, folder, name):
    (folder / name).write_text("years of work")
    with pytest.raises(CheckpointError, match=rf"holds more than a checkpoint \({name}\)"):
        save(model, folder)
    assert (folder / name).exists()


def test_only_known_names_are_written(tmp_path):
    with pytest.raises(CheckpointError, match="'../evil' is no file that describes inputs"):
        write_input_files(tmp_path, {"../evil": b""})
    assert list(tmp_path.iterdir()) == []


def test_they_do_not_change_what_the_model_is(model, folder, tmp_path):
    save(model, tmp_path / "plain", inputs={INPUTS: FILES[INPUTS]})
    save(model, tmp_path / "bare")
    assert fingerprint(tmp_path / "plain") == fingerprint(tmp_path / "bare")


@pytest.mark.parametrize("own", [True, False])
def test_an_adapter_without_them_has_those_of_its_base(folder, tmp_path, own):
    model = load(folder)
    add_lora(model, rank=2, alpha=4.0)
    settings = AdapterSettings(
        base=str(folder), base_fingerprint=fingerprint(folder), rank=2, alpha=4.0,
        history=model.history,
    )  # fmt: skip
    files = {INPUTS: inputs_json({"kind": "sudoku", "side": 4})} if own else None
    save_adapter(model, tmp_path / "adapter", settings, inputs=files)
    save_adapter(model, tmp_path / "adapter", settings, inputs=files)  # which replaces it
    assert inputs_folder(tmp_path / "adapter") == (tmp_path / "adapter" if own else folder)
    inputs = read_inputs(tmp_path / "adapter")
    assert inputs is not None
    assert inputs["kind"] == ("sudoku" if own else "text")


def test_a_changed_file_is_noticed(folder):
    (folder / INPUTS).write_bytes(FILES[INPUTS].replace(b"question", b"answer"))
    with pytest.raises(CheckpointError, match="does not match its checksum"):
        read_inputs(folder)
    (folder / SUMS).unlink()
    assert read_inputs(folder) == {"kind": "text", "prompt": "{answer}"}


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"\xff", "inputs.json is not JSON"),
        (b"[" * 100_000, "inputs.json is not JSON"),
        (b"[]", "must hold format and source"),
        (b'{"format": 1}', "must hold format and source"),
        (b'{"format": 1, "source": {"kind": "text"}, "x": 1}', "must hold format and source"),
        (b'{"format": 2, "source": {"kind": "text"}}', "has format 2, this reader takes 1"),
        (b'{"format": true, "source": {"kind": "text"}}', "has format True, this reader takes 1"),
        (b'{"format": 1, "source": []}', "source must be keys and values, with a kind"),
        (b'{"format": 1, "source": {"kind": 3}}', "source must be keys and values, with a kind"),
        (b'{"format": 1, "source": {"kind": "text", "x": NaN}}', "source: x must be"),
        (json.dumps({"format": 1, "source": {"kind": "x", "a": "\ud800"}}).encode(), "surrogate"),
    ],
)
def test_anything_else_is_refused_in_one_line(data, said):
    with pytest.raises(CheckpointError, match=said) as refusal:
        parse_inputs(data, INPUTS)
    assert "\n" not in str(refusal.value)


def test_a_huge_file_is_not_read(folder):
    (folder / SUMS).unlink()
    with (folder / INPUTS).open("wb") as file:
        file.truncate(MAX_BYTES + 1)
    with pytest.raises(CheckpointError, match="more than the limit of 4,194,304"):
        read_inputs(folder)
    shutil.rmtree(folder)
    assert read_inputs(folder.parent) is None
