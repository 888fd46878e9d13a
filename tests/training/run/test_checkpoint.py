"""A checkpoint's state is read strictly, and no byte of a checkpoint changes unnoticed."""

import contextlib
import hashlib
import json

import pytest

from remask.training.run.checkpoint import (
    STATE,
    State,
    files_of,
    read_checkpoint,
    seal,
    write_state,
)

SOUND = State(7, 2, 1, (0.5, 1e-05), (1.0, 2.0), {"exact": 0.25, "loss": 1.5})


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "deepspeed").mkdir()
    (tmp_path / "deepspeed" / "states.pt").write_bytes(bytes(range(64)))
    (tmp_path / "weights").write_bytes(b"weights")
    write_state(tmp_path, SOUND, seal(tmp_path, files_of(tmp_path)))
    return tmp_path


def rewrite(folder, change, *, signed=True):
    """Change what state.json says, with a matching checksum of its own unless told otherwise."""
    values = json.loads((folder / STATE).read_text())
    change(values)
    body = {name: values[name] for name in ("state", "files") if name in values}
    if signed:
        text = json.dumps(body, sort_keys=True)
        values["sha256"] = hashlib.sha256(text.encode()).hexdigest()
    (folder / STATE).write_text(json.dumps(values))


def test_a_sound_checkpoint_is_read_as_written(folder):
    checkpoint = read_checkpoint(folder)
    assert checkpoint.state == SOUND
    assert checkpoint.size == 64 + 7
    assert checkpoint.faults() == []


@pytest.mark.parametrize("bit", [0, 5, 7])
def test_no_bit_of_the_state_flips_unnoticed(folder, bit):
    path = folder / STATE
    data = path.read_bytes()
    for i in range(len(data)):
        path.write_bytes(data[:i] + bytes([data[i] ^ (1 << bit)]) + data[i + 1 :])
        with contextlib.suppress(ValueError):
            checkpoint = read_checkpoint(folder)
            assert checkpoint.state == SOUND  # in other letters, 1e-05 and 1E-05
            assert checkpoint.faults() == []


def test_no_bit_of_a_file_flips_unnoticed(folder):
    path = folder / "deepspeed" / "states.pt"
    data = path.read_bytes()
    for i in range(len(data)):
        path.write_bytes(data[:i] + bytes([data[i] ^ 16]) + data[i + 1 :])
        assert read_checkpoint(folder).faults() == [f"{path} does not match its checksum"]


def test_several_readers_share_the_files_among_them(folder):
    (folder / "weights").write_bytes(b"wEights")
    checkpoint = read_checkpoint(folder)
    parts = [checkpoint.faults(i, 3) for i in range(3)]
    assert sorted(map(len, parts)) == [0, 0, 1]


def deep(values):
    nested = []
    for _ in range(900):
        nested = [nested]
    values["state"]["scores"] = nested


@pytest.mark.parametrize(
    "change",
    [
        lambda x: x["state"].update(step="7"),
        lambda x: x["state"].update(step=True),
        lambda x: x["state"].update(step=-1),
        lambda x: x["state"].update(step=7.5),
        lambda x: x["state"].update(world_size=0),
        lambda x: x["state"].update(world_size=None),
        lambda x: x["state"].update(scores=[1.0]),
        lambda x: x["state"].update(scores={"exact": "high"}),
        lambda x: x["state"].update(scores={"exact": 10**400}),
        lambda x: x["state"].update(recent_losses=["0.5"]),
        lambda x: x["state"].update(recent_losses=3),
        lambda x: x["state"].update(tally={"a": 1}),
        lambda x: x["state"].update(colour="red"),
        lambda x: x.update(state=[]),
        lambda x: x.update(files=["weights"]),
        lambda x: x["files"].update(weights=7),
        lambda x: x["files"]["weights"].update(size="7"),
        lambda x: x["files"].pop("weights"),
        lambda x: x["files"].update({"../outside": {"size": 1, "sha256": "0"}}),
        lambda x: x.pop("files"),
        deep,
    ],
)
def test_a_state_of_wrong_types_is_an_error_that_names_it(folder, change):
    (folder.parent / "outside").write_bytes(b"x")
    rewrite(folder, change)
    with pytest.raises(ValueError, match=str(folder)) as error:
        read_checkpoint(folder)
    assert len(str(error.value)) < 400 + len(str(folder))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("text", ["", "[", "null", "[]", "7", '{"step": 3}', "[" * 100_000])
def test_what_is_no_state_at_all_is_an_error_too(folder, text):
    (folder / STATE).write_text(text)
    with pytest.raises(ValueError, match=r"state\.json is not a checkpoint's state"):
        read_checkpoint(folder)
    (folder / STATE).write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match=r"state\.json is not a checkpoint's state"):
        read_checkpoint(folder)
    (folder / STATE).unlink()
    with pytest.raises(ValueError, match=r"state\.json cannot be read"):
        read_checkpoint(folder)


def test_another_state_without_its_checksum_is_noticed(folder):
    rewrite(folder, lambda x: x["state"].update(step=8), signed=False)
    with pytest.raises(ValueError, match="does not match its own checksum"):
        read_checkpoint(folder)
