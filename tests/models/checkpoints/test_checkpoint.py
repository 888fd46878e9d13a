"""Checkpoints: a round trip, and a clear refusal of everything that is not one."""

import json
import os
import pickle
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from remask.models import (
    CheckpointError,
    HistoryConfig,
    SudokuConfig,
    SudokuMDM,
    load,
    revise,
    save,
)
from remask.models.checkpoints.checkpoint import (
    CONFIG,
    WEIGHTS,
    check_target,
    create,
    fingerprint,
    outline,
    trained_history,
)
from remask.models.checkpoints.shipped import is_shipped
from remask.models.images.tokenizer_folder import load_tokenizer


@pytest.fixture
def model():
    torch.manual_seed(0)
    config = SudokuConfig(side=4, layers=1, width=32, heads=2, feed_forward=32)
    return SudokuMDM(config, HistoryConfig(decay=0.4, window=3, norm="match")).eval()


@pytest.fixture
def folder(model, tmp_path):
    save(model, tmp_path / "model")
    return tmp_path / "model"


def test_round_trip_gives_the_same_model(model, folder):
    again = load(folder)
    assert again.config == model.config
    assert again.history == model.history == trained_history(folder)
    ids = torch.randint(0, 5, (2, 16))
    assert torch.equal(again.logits(again.embed(ids)), model.logits(model.embed(ids)))
    assert torch.equal(
        revise(again, ids, max_steps=4).tokens, revise(model, ids, max_steps=4).tokens
    )
    assert not any(x.is_meta for x in (*again.parameters(), *again.buffers()))


def test_dtype_can_be_chosen(folder):
    assert load(folder, dtype=torch.bfloat16).token_embedding.dtype == torch.bfloat16


def test_bfloat16_model_revises(folder):
    out = revise(load(folder, dtype=torch.bfloat16), torch.zeros(2, 16, dtype=int), max_steps=3)
    assert (out.tokens > 0).all()


def test_saving_again_replaces_and_leaves_nothing_else(model, folder):
    with torch.no_grad():
        model.tokens.weight.zero_()
    save(model, folder)
    assert load(folder).token_embedding.abs().sum() == 0
    assert [x.name for x in folder.parent.iterdir()] == ["model"]


def test_a_failed_save_leaves_the_old_one(model, folder, monkeypatch):
    def full_disk(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("remask.models.checkpoints.checkpoint.save_file", full_disk)
    with pytest.raises(OSError, match="No space left"):
        save(model, folder)
    monkeypatch.undo()
    assert torch.equal(load(folder).token_embedding, model.token_embedding)
    assert [x.name for x in folder.parent.iterdir()] == ["model"]


@pytest.mark.parametrize("name", ["draft.tex", "config.json and draft.tex"])
def test_saving_over_something_else_is_refused(model, tmp_path, name):
    for file in name.split(" and "):
        (tmp_path / file).write_text("years of work")
    with pytest.raises(
        CheckpointError, match=r"holds more than a checkpoint \(draft.tex\); choose"
    ):
        save(model, tmp_path)
    assert (tmp_path / "draft.tex").exists()
    with pytest.raises(CheckpointError, match=r"\(it is a file\)"):
        save(model, tmp_path / "draft.tex")


def test_saving_through_a_link_keeps_the_link(model, folder):
    link = folder.parent / "latest"
    link.symlink_to(folder)
    save(model, link)
    assert link.is_symlink()
    assert torch.equal(load(link).token_embedding, model.token_embedding)


def test_loading_leaves_the_random_state_alone(folder):
    torch.manual_seed(0)
    expected = torch.rand(1)
    torch.manual_seed(0)
    load(folder)
    assert torch.equal(torch.rand(1), expected)


def refuse(folder, message):
    with pytest.raises(CheckpointError, match=message):
        load(folder)


def edit_config(folder, **changes):
    settings = json.loads((folder / CONFIG).read_text()) | changes
    (folder / CONFIG).write_text(json.dumps(settings))


def test_missing_folder_and_files_are_named(folder):
    refuse(folder / "nowhere", "there is no checkpoint folder at .*nowhere")
    (folder / WEIGHTS).rename(folder / "elsewhere")
    refuse(folder, "lacks model.safetensors")


def test_pickles_are_never_opened(folder):
    class Trap:
        def __reduce__(self):
            return (pytest.fail, ("a pickle was opened",))

    (folder / WEIGHTS).unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Trap()))
    refuse(folder, r"lacks model.safetensors; \['pytorch_model.bin'\] may run code when read")


def test_a_pickle_named_safetensors_is_refused(folder):
    (folder / WEIGHTS).write_bytes(pickle.dumps({"weights": 1}))
    refuse(folder, "model.safetensors is damaged or not safetensors")


@pytest.mark.parametrize("keep", [0, 4, 100, -1])
def test_truncated_weights_are_refused(folder, keep):
    data = (folder / WEIGHTS).read_bytes()
    (folder / WEIGHTS).write_bytes(data[:keep])
    refuse(folder, "damaged or not safetensors")


def test_foreign_configs_are_refused(folder):
    original = (folder / CONFIG).read_text()
    (folder / CONFIG).write_text("{")
    refuse(folder, "config.json is not JSON")
    (folder / CONFIG).write_text('{"model_type": "gpt2"}')
    refuse(
        folder, r"holds a 'gpt2' model; known model_types are \['Dream', 'albert', 'bert'.*'llada'"
    )
    for text in ("[1, 2]", "{}"):
        (folder / CONFIG).write_text(text)
        refuse(folder, "config.json is not one of ours, .* nor a published one, which has a model")
    (folder / CONFIG).write_text(original)
    edit_config(folder, format=99)
    refuse(folder, "has checkpoint format 99, this reader takes 1")
    (folder / CONFIG).write_text(original)
    edit_config(folder, kind="gpt")
    refuse(
        folder,
        r"holds a 'gpt' backbone; known are \['dream', 'llada', 'lumina', 'masked_lm', 'sudoku'\]",
    )
    (folder / CONFIG).write_text(original)
    edit_config(folder, history={"gamma": 0.5})
    refuse(folder, r"config.json: history: unknown keys \['gamma'\]; HistoryConfig takes \['decay'")
    (folder / CONFIG).write_text(original)
    edit_config(folder, config={"side": 5})
    refuse(folder, "config: side must be a square number, such as 4 or 9, got 5")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"config": {"heads": 0}}, r"config: heads must lie in \[1, 4194304\], got 0"),
        ({"config": {"layers": "1"}}, "config: layers must be int, got '1'"),
        ({"config": {"width": 16.0}}, "config: width must be int, got 16.0"),
        ({"config": {"feed_forward": -3}}, r"feed_forward must lie in \[1, 4194304\], got -3"),
        ({"config": [1]}, r"config: expected keys and values, got \[1\]"),
        ({"history": {"window": 1.5}}, "history: window must be int or none, got 1.5"),
        ({"history": {"variant": "best"}}, "history: variant must be one of .* got 'best'"),
        ({"kind": ["sudoku"]}, r"holds a \['sudoku'\] backbone"),
        ({"format": True}, "has checkpoint format True"),
    ],
)
def test_mistyped_settings_are_named(folder, changes, message):
    edit_config(folder, **changes)
    refuse(folder, message)


def test_weights_that_are_no_numbers_are_refused(folder):
    tensors = load_file(folder / WEIGHTS)
    tensors["out.bias"] = torch.zeros(5, dtype=torch.long)
    save_file(tensors, folder / WEIGHTS)
    refuse(folder, "out.bias holds torch.int64, not weights")


def test_weights_of_another_model_are_refused(folder):
    tensors = load_file(folder / WEIGHTS)
    extra = dict(tensors, surprise=torch.zeros(1))
    save_file(extra, folder / WEIGHTS)
    refuse(folder, r"has unknown \['surprise'\]")
    del extra["surprise"], extra["out.bias"]
    save_file(extra, folder / WEIGHTS)
    refuse(folder, r"lacks \['out.bias'\]")
    save_file(dict(tensors, **{"out.bias": torch.zeros(9)}), folder / WEIGHTS)
    refuse(folder, r"out.bias is \[9\], the config says \[5\]")


@pytest.mark.parametrize(
    "read",
    [load, outline, fingerprint, trained_history, check_target, load_tokenizer],
    ids=lambda read: read.__name__,
)
@pytest.mark.parametrize("name", ["x" * 300, "./" + "x" * 300, "a\0b"], ids=["name", "path", "nul"])
def test_paths_that_no_system_takes_are_named(read, name):
    with pytest.raises(CheckpointError, match=r"File name too long|'a\\x00b' holds a NUL byte"):
        read(name)
    assert not is_shipped(name)


def test_a_folder_that_may_not_be_read_is_named(folder):
    """As another user than root, whom nothing stops."""
    is_root = os.geteuid() == 0
    folder.parent.chmod(0o700 if is_root else 0)
    if is_root:
        os.seteuid(65534)
    try:
        refuse(folder, f"cannot read {folder}: Permission denied")
    finally:
        if is_root:
            os.seteuid(0)
        folder.parent.chmod(0o700)


@pytest.mark.parametrize("kind", [[1], {"a": 1}, 5, None, "chess"])
def test_an_unknown_kind_is_named(kind):
    with pytest.raises(ValueError, match="model: kind must be one of .*, got "):
        create({"kind": kind})


def test_the_folder_of_a_run_is_told_from_its_models(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "run" / "model")
    refuse(tmp_path / "run", "run is a run's folder; its model is .*/run/model$")
    (tmp_path / "run" / "model" / CONFIG).unlink()
    refuse(tmp_path / "run", "run lacks config.json$")
