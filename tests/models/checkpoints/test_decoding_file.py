"""decoding.json: written whole, listed in SHA256SUMS, read as data from strangers."""

import dataclasses
import json
import subprocess

import pytest
import torch

from remask.models import CheckpointError, SudokuConfig, SudokuMDM, fingerprint, load, save
from remask.models.checkpoints import folder as folder_module
from remask.models.checkpoints.adapter import AdapterSettings, add_lora, save_adapter
from remask.models.checkpoints.decoding_file import (
    Choice,
    Trial,
    TunedDecoding,
    read_decoding,
    write_decoding,
)
from remask.models.checkpoints.folder import DECODING, SUMS, write_atomically


def trial(max_steps, margin=0.0, **settings):
    return Trial(
        settings={"margin": margin, **settings}, max_steps=max_steps, solved=0.5, mean_passes=2.5
    )


def tuned(**changes):
    trials = (trial(3), trial(5, -1.0, reveal_within=0.5))
    values = {
        "model": "0123",
        "source": "sudoku",
        "recipe": "4567",
        "start": "given",
        "rows": 40,
        "seed": 7,
        "chosen": (Choice(budget=4, trial=trials[0]), Choice(budget=8, trial=trials[1])),
        "grid": trials,
    }
    return TunedDecoding(**values | changes)


def small():
    torch.manual_seed(0)
    return SudokuMDM(SudokuConfig(side=4, layers=1, width=16, heads=2))


@pytest.fixture
def model(tmp_path):
    save(small(), tmp_path / "model", card="# A model\n")
    return tmp_path / "model"


def verify(folder):
    """What `sha256sum -c` says, once every file is known to be listed."""
    names = {line.split()[1] for line in (folder / SUMS).read_text().splitlines()}
    assert names == {x.name for x in folder.iterdir()} - {SUMS}
    done = subprocess.run(["sha256sum", "-c", SUMS], cwd=folder, capture_output=True, text=True)
    return done.returncode == 0


def test_what_is_written_is_read(model):
    assert read_decoding(model) is None
    write_decoding(model, tuned())
    assert read_decoding(model) == tuned()
    write_decoding(model, tuned(rows=41))
    assert read_decoding(model) == tuned(rows=41)


@pytest.mark.parametrize(
    ("max_steps", "budget"), [(2, None), (3, 4), (6, 4), (7, 8), (8, 8), (99, 8)]
)
def test_the_largest_budget_within_the_steps_is_chosen(max_steps, budget):
    choice = tuned().within(max_steps)
    assert (choice and choice.budget) == budget


def test_the_checksums_stay_right_and_the_fingerprint_the_same(model):
    before = fingerprint(model)
    for rows in (40, 41):
        write_decoding(model, tuned(rows=rows))
        assert verify(model)
    assert fingerprint(model) == before
    load(model)


def test_a_folder_without_checksums_stays_without(model):
    (model / SUMS).unlink()
    write_decoding(model, tuned())
    assert not (model / SUMS).exists()
    assert read_decoding(model) == tuned()


def test_a_changed_file_is_noticed(model):
    path = write_decoding(model, tuned())
    path.write_text(path.read_text().replace('"rows": 40', '"rows": 90'))
    with pytest.raises(CheckpointError, match=r"decoding\.json does not match its checksum"):
        read_decoding(model)


def test_saving_over_a_tuned_model_drops_its_settings(model):
    write_decoding(model, tuned())
    save(small(), model)
    assert read_decoding(model) is None
    assert verify(model)


def test_an_adapter_may_be_tuned_and_saved_again(model):
    backbone = load(model)
    add_lora(backbone, 2, 4.0)
    settings = AdapterSettings(
        base=str(model),
        base_fingerprint=fingerprint(model),
        rank=2,
        alpha=4.0,
        history=backbone.history,
    )
    adapter = model.parent / "adapter"
    save_adapter(backbone, adapter, settings)
    before = fingerprint(adapter)
    write_decoding(adapter, tuned())
    assert verify(adapter)
    assert fingerprint(adapter) == before
    assert read_decoding(adapter) == tuned()
    load(adapter)
    save_adapter(backbone, adapter, settings)
    assert read_decoding(adapter) is None


@pytest.mark.parametrize("call", range(3))
@pytest.mark.parametrize("is_before", [True, False])
def test_a_kill_between_two_files_leaves_the_old_or_the_new_settings(
    model, monkeypatch, call, is_before
):
    """Writes are: SHA256SUMS without the old entry, decoding.json, SHA256SUMS with the new one."""
    write_decoding(model, tuned())
    calls = []

    def write(path, text):
        calls.append(path.name)
        if len(calls) == call + 1 and is_before:
            raise KeyboardInterrupt
        write_atomically(path, text)
        if len(calls) == call + 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(folder_module, "write_atomically", write)
    with pytest.raises(KeyboardInterrupt):
        write_decoding(model, tuned(rows=41))
    is_new = (call, is_before) not in [(0, True), (0, False), (1, True)]
    assert read_decoding(model) == tuned(rows=41 if is_new else 40)
    load(model)


def test_a_partial_file_of_a_killed_writer_does_not_block_saving(model):
    (model / f".{DECODING}.partial").write_text("{")
    assert read_decoding(model) is None
    save(small(), model)
    assert verify(model)


def test_an_interrupted_write_leaves_no_partial_file(tmp_path, monkeypatch):
    def stop(path):
        raise KeyboardInterrupt

    monkeypatch.setattr(folder_module, "flush", stop)
    with pytest.raises(KeyboardInterrupt):
        write_atomically(tmp_path / "file", "text")
    assert list(tmp_path.iterdir()) == []


def changed(*keys, value):
    """The sound file as JSON, with one value replaced."""
    values = json.loads(json.dumps(dataclasses.asdict(tuned())))
    inner = values
    for key in keys[:-1]:
        inner = inner[key]
    inner[keys[-1]] = value
    return json.dumps(values)


HOSTILE = {
    "no JSON": ("{", "Expecting"),
    "no mapping": ("[]", "expected keys and values"),
    "too deep": ("[" * 100_000, "recursion"),
    "unknown key": (changed("command", value="rm"), r"unknown keys \['command'\]"),
    "other version": (changed("version", value=2), "version 2 is not 1; run `remask tune` again"),
    "unknown setting": (
        changed("chosen", 0, "trial", "settings", "speed", value=1),
        r"unknown keys \['speed'\]",
    ),
    "setting out of range": (
        changed("grid", 1, "settings", "reveal_within", value=2.0),
        r"reveal_within must lie in \(0, 1\], got 2",
    ),
    "infinite margin": (
        changed("grid", 1, "settings", "margin", value=float("inf")),
        "margin must be text, a finite number",
    ),
    "NaN": (changed("grid", 0, "solved", value=float("nan")), r"solved must lie in \[0, 1\]"),
    "no steps": (changed("grid", 0, "max_steps", value=0), "max_steps must lie in"),
    "endless steps": (changed("grid", 0, "max_steps", value=1 << 40), "max_steps must lie in"),
    "more steps than passes": (
        changed("chosen", 0, "trial", "max_steps", value=4),
        "max_steps must be below the budget of 4 passes",
    ),
    "budgets out of order": (
        changed("chosen", 0, "budget", value=9),
        r"ascending budgets, got \[9, 8\]",
    ),
    "no choice": (changed("chosen", value=[]), r"ascending budgets, got \[\]"),
    "other start": (changed("start", value="oracle"), "start must be one of"),
    "true for a number": (changed("rows", value=True), "rows must be int"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_anything_else_is_refused_in_one_error(model, case):
    text, message = HOSTILE[case]
    (model / DECODING).write_text(text)
    with pytest.raises(CheckpointError, match=rf"decoding\.json: .*{message}"):
        read_decoding(model)
    load(model)  # the model itself is sound
