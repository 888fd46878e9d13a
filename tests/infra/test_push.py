"""`remask push`: what is uploaded, to a hub that runs on this machine, and loaded from there."""

import hashlib
import json
import shutil
from pathlib import Path

import pytest
import torch
import yaml

from remask.infra.cli import main
from remask.infra.push import push
from remask.infra.push_card import Facts, make_card
from remask.models import CheckpointError, SudokuConfig, SudokuMDM, fingerprint, load, save
from remask.models.checkpoints.adapter import AdapterSettings, add_lora, save_adapter
from remask.models.checkpoints.checkpoint import trained_history
from remask.models.checkpoints.decoding_file import read_decoding, write_decoding
from remask.models.checkpoints.folder import SUMS, StorageError, write_sealed
from remask.models.checkpoints.hub import model_files
from remask.models.images.tokenizer_folder import save_tokenizer, tokenizer_fingerprint
from remask.models.images.vq import PatchVQ, PatchVQConfig
from remask.models.text.prompts import TextTokenizer
from remask.training.run.folder import RunFolder, RunOutcome
from tests.hub_server import READER, WRITER, files_of
from tests.models.checkpoints.test_decoding_file import tuned
from tests.text_folders import write_text_tokenizer

# huggingface_hub streams large files in a way that its HTTP library wants to change.
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=<...>':DeprecationWarning")

CARD = "# mine\n\nTrained with remask in {run}, from {home}/data.\n"


@pytest.fixture
def run(tmp_path):
    """A finished run, whose files name folders of this machine."""
    torch.manual_seed(0)
    folder = tmp_path / "runs" / "mine"
    config = SudokuConfig(side=4, layers=1, width=32, heads=2, feed_forward=32)
    save(SudokuMDM(config), folder / "model", card=CARD.format(run=folder, home=Path.home()))
    deepspeed = {"zero_optimization": {"offload_param": {"nvme_path": f"{tmp_path}/nvme"}}}
    recipe = {"steps": 4, "engine": {"deepspeed": deepspeed | {"hf_token": "x"}}}
    provenance = {"versions": {"torch": "2.13.0"}, "cache": "s3://company-bucket/cache"}
    provenance["hub"] = {"models": {"GSAI-ML/base": 40 * "a"}}
    (folder / "recipe.json").write_text(json.dumps(recipe))
    (folder / "provenance.json").write_text(json.dumps(provenance))
    (folder / "log.jsonl").write_text("{}\n")
    finish(folder, 4)
    return folder


@pytest.fixture
def writer(hub, monkeypatch, tmp_path):
    """A hub on which this process may write."""
    hub.use(monkeypatch, tmp_path / "home", token=WRITER)
    return hub


def finish(folder, step):
    RunFolder(folder).record(RunOutcome(step, 4, None, str(folder / "model")))


def command(*argv):
    """The exit status of a command."""
    try:
        main(["push", *map(str, argv)])
    except SystemExit as end:
        return end.code
    return 0


def header_of(card):
    return yaml.safe_load(card.decode().split("---\n")[1])


def test_what_is_pushed_loads_back(writer, run, capsys):
    assert command(run, "me/mine") == 0
    commit = writer.repos["model", "me/mine"].refs["main"]
    out = capsys.readouterr().out
    assert f"hf:me/mine@{commit}\n" in out
    assert 'remask.load("hf:me/mine")' in out
    files = writer.files("me/mine")
    assert sorted(files) == [
        "README.md", SUMS, "config.json", "model.safetensors", "provenance.json", "recipe.json",
    ]  # fmt: skip
    assert files["model.safetensors"] == (run / "model/model.safetensors").read_bytes()
    assert fingerprint("hf:me/mine") == fingerprint(run / "model")
    assert trained_history("hf:me/mine") == trained_history(run / "model")
    sums = dict(line.split("  ")[::-1] for line in files[SUMS].decode().splitlines())
    assert sums == {x: hashlib.sha256(data).hexdigest() for x, data in files.items() if x != SUMS}
    writer.add("me/mine", files | {"config.json": files["config.json"] + b"\n"})
    with pytest.raises(CheckpointError, match="does not match its checksum"):
        load("hf:me/mine")


def test_nothing_of_this_machine_is_uploaded(writer, run, tmp_path):
    push(run, "me/mine")
    files = writer.files("me/mine")
    for name, content in files.items():
        for private in (tmp_path, Path.home(), "company-bucket", "hf_token", WRITER):
            assert str(private).encode() not in content, name
    assert b"Trained with remask in mine, from data." in files["README.md"]
    recipe = json.loads(files["recipe.json"])
    offload = recipe["engine"]["deepspeed"]["zero_optimization"]["offload_param"]
    assert offload == {"nvme_path": "nvme"}
    assert json.loads(files["provenance.json"])["versions"] == {"torch": "2.13.0"}


def test_a_dry_run_lists_the_files_without_asking_the_hub(hub, run, capsys):
    assert command(run, "me/mine", "--dry-run") == 0
    listed = capsys.readouterr().out.splitlines()
    size = (run / "model/model.safetensors").stat().st_size
    assert f"{size / 1e3:>6.3g} kB  model.safetensors" in listed
    assert listed[-2].endswith(SUMS)
    assert listed[-1].startswith("push: 6 files, ")
    assert listed[-1].endswith("would be uploaded to me/mine")
    assert not hub.requests


def test_the_card_has_the_header_that_the_hub_reads(writer, run):
    push(run, "me/mine", license="apache-2.0")
    header = header_of(writer.files("me/mine")["README.md"])
    assert header == {
        "library_name": "remask",
        "base_model": "GSAI-ML/base",
        "base_model_relation": "finetune",
        "license": "apache-2.0",
        "tags": ["remask", "mask-diffusion", "reflective-masking"],
    }


def test_a_card_keeps_its_own_header():
    facts = Facts("me/mine", "text-generation", None, False, "mit")
    own = "---\nlicense: gpl\nlanguage: [en]\n---\n# Mine\n\nUse `hf:me/mine`.\n"
    card = make_card(own, facts)
    assert header_of(card.encode()) | {"tags": None} == {
        "library_name": "remask",
        "pipeline_tag": "text-generation",
        "license": "mit",
        "language": ["en"],
        "tags": None,
    }
    assert card.endswith("---\n# Mine\n\nUse `hf:me/mine`.\n")
    assert 'remask.load("hf:me/mine")' in make_card("", facts)
    for damaged in ("---\n[\n---\n", "---\nno end", "---\njust text\n---\n"):
        with pytest.raises(ValueError, match="is not YAML"):
            make_card(damaged, facts)


def test_inputs_tokenizers_and_tuned_settings_go_with_the_model(writer, run, tmp_path):
    model = run / "model"
    write_text_tokenizer(tmp_path / "words")
    for name, content in files_of(tmp_path / "words").items():
        write_sealed(model / name, content.decode())
    source = {"kind": "text", "prompt": "/think {prompt}", "tokenizer": f"{tmp_path}/words"}
    write_sealed(model / "inputs.json", json.dumps({"format": 1, "source": source}))
    write_decoding(model, tuned())
    save_tokenizer(PatchVQ(PatchVQConfig(num_codes=8, width=8)), model / "image_tokenizer")
    (model / "notes.txt").write_text("not listed")
    push(model, "me/mine")
    files = writer.files("me/mine")
    assert "notes.txt" not in files
    source = json.loads(files["inputs.json"])["source"]
    assert source == {"kind": "text", "prompt": "/think {prompt}", "tokenizer": "words"}
    assert header_of(files["README.md"])["pipeline_tag"] == "text-generation"
    folder = model_files("hf:me/mine")
    assert (folder / "inputs.json").is_file()
    assert read_decoding("hf:me/mine") == tuned()
    assert TextTokenizer("hf:me/mine").hash == TextTokenizer(str(tmp_path / "words")).hash
    assert tokenizer_fingerprint("hf:me/mine") == tokenizer_fingerprint(model)


def test_a_second_push_replaces_the_first(writer, run):
    write_decoding(run / "model", tuned())
    push(run, "me/mine")
    writer.add("me/mine", writer.files("me/mine") | {"LICENSE": b"mine", "sheet.png": b"picture"})
    assert read_decoding("hf:me/mine") == tuned()
    save(SudokuMDM(load(run / "model").config), run / "model")  # without decoding.json and card
    push(run, "me/mine")
    assert "decoding.json" not in writer.files("me/mine")
    assert writer.files("me/mine")["LICENSE"] == b"mine"
    assert "sheet.png" in writer.files("me/mine")
    assert read_decoding("hf:me/mine") is None
    assert fingerprint("hf:me/mine") == fingerprint(run / "model")


def test_private_repositories(writer, run):
    push(run, "me/hidden", private=True)
    assert writer.repos["model", "me/hidden"].is_private
    push(run, "me/hidden", private=True)
    push(run, "me/open")
    assert not writer.repos["model", "me/open"].is_private
    before = writer.repos["model", "me/open"].refs["main"]
    with pytest.raises(CheckpointError, match="hf:me/open exists and is public; make it private"):
        push(run, "me/open", private=True)
    assert writer.repos["model", "me/open"].refs["main"] == before


def test_what_others_have_put_there_stays(writer, run):
    writer.add("me/llama", {"model.safetensors": b"large", "README.md": b""})
    with pytest.raises(
        CheckpointError, match=r"holds what remask did not push \(model\.safetensors"
    ):
        push(run, "me/llama")
    assert len(writer.repos["model", "me/llama"].commits) == 1
    writer.add("me/begun", {"README.md": b"soon", ".gitattributes": b""})
    push(run, "me/begun")
    assert fingerprint("hf:me/begun") == fingerprint(run / "model")


def test_without_rights_it_says_how_to_sign_in(hub, run, monkeypatch, tmp_path, capsys):
    assert command(run, "me/mine") == 2
    assert (
        "there is no token to upload with; sign in with `hf auth login`" in capsys.readouterr().err
    )
    for token in (READER, "hf_revoked" + 30 * "x"):
        hub.use(monkeypatch, tmp_path / "home", token=token)
        assert command(run, "me/mine") == 2
        error = capsys.readouterr().err
        assert "the hub refuses access to model hf:me/mine (HTTP 40" in error
        assert token not in error
        assert error.count("\n") == 1
    assert not hub.repos


def test_a_hub_that_fails_is_one_line_and_status_1(writer, run, capsys):
    writer.is_failing = True
    assert command(run, "me/mine") == 1
    error = capsys.readouterr().err
    assert error.startswith(
        f"remask push: model hf:me/mine: the hub at {writer.url} cannot be used"
    )
    assert error.count("\n") == 1


def test_offline_nothing_is_pushed(writer, run, monkeypatch, tmp_path):
    writer.use(monkeypatch, tmp_path / "home", token=WRITER, offline=True)
    with pytest.raises(StorageError, match="HF_HUB_OFFLINE"):
        push(run, "me/mine")
    assert not writer.requests


@pytest.mark.parametrize("repo", ["mine", "me/mine@main", "me/mine/sub", "../mine", "me/a b", ""])
def test_wrong_repositories_are_refused(hub, run, repo, capsys):
    assert command(run, repo, "--dry-run") == 2
    assert capsys.readouterr().err.startswith("remask push: ")


def test_only_finished_runs_and_whole_models_are_pushed(hub, run, tmp_path, capsys):
    def refusal(path, *options):
        assert command(path, "me/mine", "--dry-run", *options) == 2
        return capsys.readouterr().err

    assert "there is no folder" in refusal(tmp_path / "none")
    (tmp_path / "empty").mkdir()
    assert "neither a run of `remask train` nor a model\n" in refusal(tmp_path / "empty")
    assert "nor a model; it holds mine, each of which can be pushed" in refusal(run.parent)
    assert "--base is for adapters" in refusal(run, "--base", "hf:me/base")
    finish(run, 2)
    for path in (run, run / "model"):
        assert f"{run} is not a finished run; give its `remask train` command again" in refusal(
            path
        )
    (run / "outcome.json").unlink()
    assert "is not a finished run" in refusal(run)
    finish(run, 4)
    sums = (run / "model" / SUMS).read_text()
    (run / "model" / SUMS).unlink()
    assert f"has no {SUMS}, so it is not known to be complete" in refusal(run)
    (run / "model" / SUMS).write_text(sums + f"{64 * '0'}  ../../secret.json\n")
    assert "does not name a file below its folder" in refusal(run)
    (run / "model" / SUMS).write_text(sums + f"{64 * '0'}  lost.json\n")
    assert "lacks lost.json" in refusal(run)
    (run / "model" / SUMS).write_text(sums + f"{64 * '0'}  model.bin\n")
    assert "model.bin is neither safetensors, JSON nor text" in refusal(run)
    (run / "model" / SUMS).write_text(sums)
    (run / "model" / "README.md").write_text("another card")
    assert "README.md does not match its checksum" in refusal(run)
    write_sealed(run / "model" / "README.md", f"Log in with {READER}.")
    assert "README.md holds what looks like an access token" in refusal(run)
    shutil.rmtree(run / "model")
    assert "is not a finished run" in refusal(run)


def test_adapters_need_a_base_that_others_have(writer, run, tmp_path, capsys):
    commit = writer.add("me/base", files_of(run / "model"))
    backbone = load(run / "model")
    add_lora(backbone, 2, 4.0)
    settings = AdapterSettings(
        base=str(run / "model"),
        base_fingerprint=fingerprint(run / "model"),
        rank=2,
        alpha=4.0,
        history=backbone.history,
    )
    save_adapter(backbone, tmp_path / "lora", settings)
    with pytest.raises(ValueError, match=r"in a folder of this machine.* --base hf:owner/name"):
        push(tmp_path / "lora", "me/lora")
    push(tmp_path / "lora", "me/lora", base=f"hf:me/base@{commit}")
    header = header_of(writer.files("me/lora")["README.md"])
    assert (header["base_model"], header["base_model_relation"]) == ("me/base", "adapter")
    assert str(tmp_path).encode() not in b"".join(writer.files("me/lora").values())
    shutil.rmtree(run)
    assert any("lora" in name for name, _ in load("hf:me/lora").named_parameters())


def test_large_files_go_by_lfs(writer, run):
    push(run, "me/mine")
    weights = (run / "model/model.safetensors").read_bytes()
    assert list(writer.large) == [hashlib.sha256(weights).hexdigest()]
    assert len(writer.asked("/commit/")) == 1
