"""Checkpoints and tokenizers by their names on a hub, which runs on this machine."""

import json
import multiprocessing
import os
import shutil
import subprocess
import sys

import pytest
import torch
from huggingface_hub import constants
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save_file

from remask.models import CheckpointError, SudokuConfig, SudokuMDM, fingerprint, load, save
from remask.models.checkpoints import hub as hub_module
from remask.models.checkpoints.adapter import AdapterSettings, add_lora, save_adapter
from remask.models.checkpoints.checkpoint import outline, trained_history
from remask.models.checkpoints.decoding_file import read_decoding
from remask.models.checkpoints.folder import StorageError
from remask.models.checkpoints.hub import model_files, pinned, resolved
from remask.models.checkpoints.hub_name import HubName, data_stem, is_hub_name, parse_hub_name
from remask.models.checkpoints.shipped import lasting_name
from remask.models.images.tokenizer_folder import (
    load_tokenizer,
    save_tokenizer,
    tokenizer_fingerprint,
)
from remask.models.images.vq import PatchVQ, PatchVQConfig
from remask.models.text.prompts import TextTokenizer
from tests.hub_server import READER, HubServer, files_of
from tests.text_folders import write_text_tokenizer

SMALL = SudokuConfig(side=4, layers=1, width=32, heads=2, feed_forward=32)


def write_model(folder, seed=0):
    torch.manual_seed(seed)
    save(SudokuMDM(SMALL), folder)
    return folder


@pytest.fixture
def model(tmp_path):
    return write_model(tmp_path / "model")


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("hf:me/it", HubName("me/it")),
        ("hf:me/it@v1.0", HubName("me/it", revision="v1.0")),
        ("hf:me/it@refs/pr/3", HubName("me/it", revision="refs/pr/3")),
        ("hf:a-b_c.d/e.f/en/train.jsonl@main", HubName("a-b_c.d/e.f", "en/train.jsonl", "main")),
    ],
)
def test_names_have_a_repository_a_path_and_a_revision(name, parts):
    assert is_hub_name(name)
    assert parse_hub_name(name) == parts
    assert str(parts) == name


@pytest.mark.parametrize(
    "name",
    [
        "hf:", "hf:it", "hf:me/", "hf:/it", "hf:me//it", "hf:../it", "hf:me/..", "hf:me/it/../../x",
        "hf:me/it/./x", "hf:me/it\\x", "hf:me/it@", "hf:me/it@a@b", "hf:me/it@a b", "hf:me/it@../x",
        "hf:me/it@-x", "hf:me/it.git", "hf:me/a--b", "hf:me/it/a\x1b[2J", "hf:me/" + 100 * "x",
        "hf:me-/it", "hf:me/it\0",
    ],
)  # fmt: skip
def test_other_names_are_refused_before_anything_is_asked(hub, name):
    with pytest.raises(ValueError, match=r"not the name|leaves the|not a branch"):
        parse_hub_name(name)
    with pytest.raises(CheckpointError):
        load(name)
    assert not hub.requests


@given(st.text("ab/@.-\\ \x00", max_size=20))
def test_a_name_is_refused_or_says_what_was_written(text):
    try:
        name = parse_hub_name(f"hf:{text}")
    except ValueError:
        return
    assert str(name) == f"hf:{text}"
    assert ".." not in text.split("/")
    assert "\\" not in text


def test_only_names_with_the_prefix_are_the_hubs():
    assert not is_hub_name("me/it")
    assert not is_hub_name("./hf:me/it")
    assert data_stem("hf:me/it@v1") == data_stem("me/it") == data_stem("/x/it.jsonl") == "it"
    assert data_stem("hf:me/it/en/rows.v2.jsonl@main") == "rows.v2"


def test_a_model_on_the_hub_loads_like_its_folder(hub, model):
    extra = {
        "pytorch_model.bin": b"pickle",
        "modeling_it.py": b"raise SystemExit",
        "training_args.pt": b"pickle",
        "checkpoint-5/model.safetensors": b"of another step",
        "figure.png": b"picture",
        "vocab.txt": b"a\nb\n",
    }
    commit = hub.add("me/it", files_of(model) | extra)
    loaded, local = load("hf:me/it"), load(model)
    assert all(
        torch.equal(a, b) for a, b in zip(loaded.parameters(), local.parameters(), strict=True)
    )
    fetched = {x.partition(commit)[2] for x in hub.asked("GET /me/it/resolve")}
    assert fetched == {"/config.json", "/model.safetensors", "/SHA256SUMS", "/vocab.txt"}
    assert resolved() == {"models": {"me/it": commit}}


def test_content_not_place_makes_the_fingerprint(hub, model):
    hub.add("me/it", files_of(model))
    hub.add("me/copy", files_of(model) | {"README.md": b"# A copy"})
    assert fingerprint("hf:me/it") == fingerprint("hf:me/copy") == fingerprint(model)


def test_revisions_name_commits_and_a_commit_stays_what_it_was(hub, model, tmp_path):
    first = hub.add("me/it", files_of(model))
    hub.repos["model", "me/it"].refs["v1"] = first
    second = hub.add("me/it", files_of(write_model(tmp_path / "second", seed=1)))
    old, new = fingerprint(model), fingerprint(tmp_path / "second")
    assert fingerprint("hf:me/it") == fingerprint("hf:me/it@main") == new
    assert fingerprint("hf:me/it@v1") == fingerprint(f"hf:me/it@{first}") == old
    assert pinned("hf:me/it/sub", "model") == f"hf:me/it/sub@{second}"
    assert lasting_name("hf:me/it@v1") == f"hf:me/it@{first}"
    assert lasting_name(os.path.relpath(model)) == str(model)
    hub.requests.clear()
    assert fingerprint(f"hf:me/it@{first}") == old
    assert not hub.requests


def test_settings_are_fetched_without_weights(hub, model):
    hub.add("me/it", files_of(model))
    assert outline("hf:me/it", check=False).kind == "sudoku"
    assert trained_history("hf:me/it") == trained_history(model)
    assert read_decoding("hf:me/it") is None
    assert not hub.asked("safetensors")


def test_damage_of_a_file_is_found(hub, model):
    files = files_of(model)
    broken = bytearray(files["model.safetensors"])
    broken[-1] ^= 1
    hub.add("me/it", files | {"model.safetensors": bytes(broken)})
    with pytest.raises(CheckpointError, match="does not match its checksum"):
        load("hf:me/it")


def test_wrong_names_are_one_sentence_each(hub, model):
    hub.add("me/it", files_of(model))
    hub.add("me/secret", files_of(model), is_private=True)
    for name in ("hf:me/none", "hf:me/secret"):
        with pytest.raises(CheckpointError, match=f"the hub has no model {name}, or you may not"):
            load(name)
    with pytest.raises(CheckpointError, match=r"hf:me/it@v9: .* not that revision"):
        load("hf:me/it@v9")
    with pytest.raises(CheckpointError, match="hf:me/it/sub holds no files at that path"):
        load("hf:me/it/sub")
    with pytest.raises(CheckpointError, match="is on the hub; write into a folder"):
        save(SudokuMDM(SMALL), "hf:me/it")


def test_pickled_weights_are_refused_and_not_fetched(hub, model):
    files = files_of(model)
    del files["model.safetensors"]
    hub.add("me/it", files)
    with pytest.raises(CheckpointError, match=r"no weights: it has no \.safetensors"):
        load("hf:me/it")
    hub.add("me/it", files | {"pytorch_model.bin": b"\x80\x04"})
    with pytest.raises(CheckpointError, match=r"pytorch_model\.bin alone, which may run code"):
        load("hf:me/it")
    assert not hub.asked("resolve")


@pytest.mark.parametrize("name", ["../../evil.json", "/evil.json", "a/../../evil.txt", "a\\b.json"])
def test_file_names_that_leave_the_folder_are_refused(hub, model, tmp_path, name):
    hub.add("me/it", files_of(model) | {name: b"{}"})
    with pytest.raises(CheckpointError, match="hf:me/it is not fetched: its file .*, so it is not"):
        load("hf:me/it")
    assert not hub.asked("resolve")
    assert not list(tmp_path.rglob("evil*"))


def test_overlong_settings_are_not_fetched(hub, model, monkeypatch):
    hub.add("me/it", files_of(model) | {"vocab.json": b"{}" + 4000 * b" "})
    monkeypatch.setattr(hub_module, "MAX_TEXT_BYTES", 4000)
    with pytest.raises(CheckpointError, match=r"vocab\.json has 4,002 bytes, more than the 4,000"):
        load("hf:me/it")
    assert not hub.asked("resolve")


def test_a_download_goes_on_where_the_connection_broke(hub, model, monkeypatch):
    monkeypatch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", 1000)
    hub.add("me/it", files_of(model))
    hub.break_off, hub.fails_then = {"model.safetensors": 5000}, False
    assert fingerprint("hf:me/it") == fingerprint(model)
    assert hub.ranges == ["bytes=5000-"]


def test_after_the_hub_failed_only_what_is_missing_is_fetched(hub, model):
    hub.add("me/it", files_of(model))
    model_files("hf:me/it", needs_weights=False)
    hub.break_off = {"model.safetensors": 5000}
    with pytest.raises(StorageError, match="cannot be used: it answers with HTTP 503; check the"):
        load("hf:me/it")
    hub.is_failing = False
    hub.requests.clear()
    assert fingerprint("hf:me/it") == fingerprint(model)
    assert [x.rpartition("/")[2] for x in hub.asked("GET /me")] == ["model.safetensors"]


def test_offline_the_cache_is_enough(hub, model, monkeypatch, tmp_path, caplog):
    commit = hub.add("me/it", files_of(model))
    with monkeypatch.context() as patch:
        hub.use(patch, tmp_path / "home", offline=True)
        with pytest.raises(StorageError, match=r"hf:me/it is not .* in the cache, and HF_HUB_OFFL"):
            load("hf:me/it")
        assert not hub.requests
    model_files("hf:me/it", needs_weights=False)
    hub.use(monkeypatch, tmp_path / "home", offline=True)
    assert trained_history("hf:me/it") == trained_history(model)
    with pytest.raises(StorageError, match="not completely in the cache"):
        load("hf:me/it")  # its weights were not fetched
    hub.use(monkeypatch, tmp_path / "home")
    load("hf:me/it")
    hub.use(monkeypatch, tmp_path / "home", offline=True)
    hub.requests.clear()
    assert fingerprint("hf:me/it") == fingerprint(f"hf:me/it@{commit}") == fingerprint(model)
    with pytest.raises(StorageError, match="HF_HUB_OFFLINE"):
        load("hf:me/it@v1")
    assert not hub.requests
    assert not caplog.records


def test_a_hub_that_fails_leaves_what_is_in_the_cache(hub, model):
    hub.add("me/it", files_of(model))
    load("hf:me/it")
    hub.is_failing = True
    assert fingerprint("hf:me/it") == fingerprint(model)
    with pytest.raises(StorageError, match="HTTP 503"):
        load("hf:me/other")


def test_gated_repositories_ask_for_a_token(hub, model, monkeypatch, tmp_path):
    hub.add("me/gated", files_of(model), is_gated=True)
    with pytest.raises(CheckpointError, match=r"is gated: ask for access .* HF_TOKEN"):
        load("hf:me/gated")
    hub.use(monkeypatch, tmp_path / "home", token="hf_wrong" + 30 * "x")
    with pytest.raises(CheckpointError, match=r"refuses access .*HTTP 401.*HF_TOKEN") as caught:
        load("hf:me/gated")
    assert "hf_wrong" not in str(caught.value)
    hub.use(monkeypatch, tmp_path / "home", token=READER)
    assert fingerprint("hf:me/gated") == fingerprint(model)
    assert READER in hub.tokens
    written = [x for x in tmp_path.rglob("*") if x.is_file() and READER.encode() in x.read_bytes()]
    assert not written


def test_tokenizers_come_without_weights(hub, model, tmp_path):
    folder = tmp_path / "tokenizer"
    write_text_tokenizer(folder)
    hub.add("me/llada", files_of(folder) | {"model.safetensors": b"8 billion parameters"})
    hub.add("me/none", files_of(model))
    assert TextTokenizer("hf:me/llada").hash == TextTokenizer(str(folder)).hash
    assert not hub.asked("safetensors")
    with pytest.raises(CheckpointError, match="hf:me/none holds no tokenizer"):
        TextTokenizer("hf:me/none")


@pytest.mark.parametrize("inner", ["image_tokenizer", "vqvae", "tokenizer", ""])
def test_image_tokenizers_are_found_in_their_folders(hub, model, tmp_path, inner):
    torch.manual_seed(0)
    save_tokenizer(PatchVQ(PatchVQConfig(num_codes=8, width=8)), tmp_path / "vq")
    files = {f"{inner}/{x}".lstrip("/"): data for x, data in files_of(tmp_path / "vq").items()}
    hub.add("me/it", (files_of(model) if inner else {}) | files)
    assert tokenizer_fingerprint("hf:me/it") == tokenizer_fingerprint(tmp_path / "vq")
    assert load_tokenizer("hf:me/it").num_codes == 8
    assert len(hub.asked("GET /me/it/resolve")) == len(files)
    if inner == "image_tokenizer":
        folder = model_files("hf:me/it")
        assert tokenizer_fingerprint(folder) == tokenizer_fingerprint(tmp_path / "vq")
        assert fingerprint("hf:me/it") == fingerprint(model)


def test_an_adapter_brings_its_base_from_the_hub(hub, model, tmp_path):
    commit = hub.add("me/base", files_of(model))
    backbone = load(model)
    add_lora(backbone, 2, 4.0)
    settings = AdapterSettings(
        base=f"hf:me/base@{commit}",
        base_fingerprint=fingerprint(model),
        rank=2,
        alpha=4.0,
        history=backbone.history,
    )
    save_adapter(backbone, tmp_path / "adapter", settings)
    hub.add("me/adapter", files_of(tmp_path / "adapter"))
    shutil.rmtree(model)
    assert any("lora" in name for name, _ in load("hf:me/adapter").named_parameters())
    assert trained_history("hf:me/adapter") == backbone.history


def test_shards_of_weights_must_lie_in_the_repository(hub, model):
    files = files_of(model)
    del files["model.safetensors"], files["SHA256SUMS"]
    index = {"weight_map": {"x": "../../../../etc/x.safetensors"}}
    files["model.safetensors.index.json"] = json.dumps(index).encode()
    files["other.safetensors"] = b""
    hub.add("me/it", files)
    with pytest.raises(CheckpointError, match="which is not a safetensors file beside it"):
        load("hf:me/it")


def _fetch(name):
    return str(model_files(name))


def test_processes_on_one_machine_fetch_a_file_once(hub, model, tmp_path):
    save_file({"x": torch.zeros(1 << 20)}, tmp_path / "large.safetensors")
    large = (tmp_path / "large.safetensors").read_bytes()
    hub.add("me/it", files_of(model) | {"large.safetensors": large})
    with multiprocessing.get_context("fork").Pool(4) as pool:
        folders = pool.map(_fetch, ["hf:me/it"] * 4, chunksize=1)
    assert len(set(folders)) == 1
    assert len(hub.asked("GET /me/it/resolve")) == 4  # config, checksums, two of weights


@pytest.mark.parametrize(
    "words",
    [
        ("revise", "--checkpoint", "hf:me/it", 16 * "0"),
        ("chat", "--checkpoint", "hf:me/it"),
        ("demo", "--port", "0", "--checkpoint", "it=hf:me/it"),
    ],
    ids=lambda words: words[0],
)
def test_commands_say_in_one_line_that_the_hub_cannot_be_reached(words, tmp_path):
    hub = HubServer()
    with hub.running():
        pass  # its port is closed again
    done = subprocess.run(
        [sys.executable, "-m", "remask.infra.cli", *words],
        env=os.environ | hub.environment(tmp_path),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr == (
        f"remask {words[0]}: model hf:me/it: the hub at {hub.url} cannot be used: [Errno 111] "
        "Connection refused; check the connection and give the same command again\n"
    )
