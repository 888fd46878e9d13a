"""Checkpoints, adapters and image tokenisers: configs, weights, indexes and tokenizer files."""

import functools
import json
from collections.abc import Callable
from pathlib import Path
from random import Random

import torch

from remask.models import (
    DreamConfig,
    DreamMDM,
    LladaConfig,
    LladaMDM,
    PatchVQ,
    PatchVQConfig,
    fingerprint,
    load,
    load_tokenizer,
    save,
    save_tokenizer,
    tokenizer_fingerprint,
)
from remask.models.checkpoints.adapter import AdapterSettings, add_lora, save_adapter
from remask.models.checkpoints.checkpoint import outline, trained_history
from remask.models.checkpoints.decoding_file import read_decoding, write_decoding
from remask.models.checkpoints.folder import DECODING
from tests.fuzz.bases import CHECKPOINT, checkpoint, made, reseal
from tests.fuzz.case import Case, Files, Target
from tests.fuzz.mutate import mutate_bytes, mutate_json, mutate_value, to_json
from tests.models.backbones.test_lumina import small as small_lumina
from tests.models.checkpoints.test_decoding_file import tuned
from tests.models.folders import DREAM, LLADA, randomise, write_folder

ADAPTER, IMAGES = "adapter-of-fuzz", "images-of-fuzz"
BERT = {
    "model_type": "bert",
    "architectures": ["BertForMaskedLM"],
    "vocab_size": 64,
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "max_position_embeddings": 24,
    "mask_token_id": 55,
}


def _llada(shards: int) -> Files:
    sizes = ("d_model", "n_layers", "n_heads", "n_kv_heads", "mlp_hidden_size")
    shape = {name: LLADA[name] for name in (*sizes, "max_sequence_length")}
    config = LladaConfig(**shape, vocab_size=64, mask_token_id=55)
    tensors = {k: x.clone() for k, x in randomise(LladaMDM(config)).state_dict().items()}
    return made(lambda folder: write_folder(folder / CHECKPOINT, LLADA, tensors, shards))


def _dream() -> Files:
    sizes = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
    more = ("num_key_value_heads", "max_position_embeddings", "vocab_size", "mask_token_id")
    config = DreamConfig(**{name: DREAM[name] for name in (*sizes, *more)})
    tensors = {k: x.clone() for k, x in randomise(DreamMDM(config)).state_dict().items()}
    return made(lambda folder: write_folder(folder / CHECKPOINT, DREAM, tensors))


def _bert() -> Files:
    from transformers import BertConfig, BertForMaskedLM

    model = BertForMaskedLM(
        BertConfig(**{k: v for k, v in BERT.items() if k in vars(BertConfig())})
    )
    kept = {
        k: x for k, x in model.state_dict().items() if not k.startswith("cls.predictions.decoder")
    }
    tensors = {k: x.clone() for k, x in kept.items()}
    return made(lambda folder: write_folder(folder / CHECKPOINT, BERT, tensors))


def _lumina() -> Files:
    """In our own format: as it is published, its vocabulary alone takes megabytes."""
    return made(lambda folder: save(randomise(small_lumina()), folder / CHECKPOINT))


def _adapter() -> Files:
    def write(folder: Path) -> None:
        path = folder / CHECKPOINT
        path.mkdir()
        for name, data in checkpoint().items():
            (folder / name).write_bytes(data)
        model = load(path)
        add_lora(model, rank=2, alpha=4.0)
        settings = AdapterSettings(
            base=CHECKPOINT,
            base_fingerprint=fingerprint(path),
            rank=2,
            alpha=4.0,
            history=model.history,
        )
        save_adapter(model, folder / ADAPTER, settings)

    return made(write)


def _images() -> Files:
    torch.manual_seed(0)
    vq = PatchVQ(PatchVQConfig(patch=2, num_codes=8, code_width=4, width=8, blocks=1))
    return made(lambda folder: save_tokenizer(vq, folder / IMAGES))


@functools.cache
def _tuned() -> Files:
    def write(folder: Path) -> None:
        (folder / CHECKPOINT).mkdir()
        for name, data in checkpoint().items():
            (folder / name).write_bytes(data)
        write_decoding(folder / CHECKPOINT, tuned())

    return made(write)


BASES: dict[str, Callable[[], Files]] = {
    "ours": checkpoint,
    "llada": functools.cache(functools.partial(_llada, 1)),
    "shards": functools.cache(functools.partial(_llada, 3)),
    "dream": functools.cache(_dream),
    "bert": functools.cache(_bert),
    "lumina": functools.cache(_lumina),
    "adapter": functools.cache(_adapter),
    "images": functools.cache(_images),
}
READERS = {
    "fingerprint": fingerprint,
    "outline": outline,
    "plan": functools.partial(outline, check=False),
    "load": load,
    "history": trained_history,
}
IMAGE_READERS = {"load": load_tokenizer, "fingerprint": tokenizer_fingerprint}


def make(kind: str, is_weights: bool, rng: Random) -> Case:
    """One file of a folder changed: its weights, or any other."""
    files = dict(BASES[kind]())
    weights = [x for x in files if x.endswith(".safetensors")]
    name = rng.choice(weights if is_weights else [x for x in files if x not in weights])
    if is_weights:
        files[name], notes = mutate_weights(files[name], rng)
    elif name.endswith(".json"):
        files[name], notes = mutate_json(files[name], rng)
    else:
        files[name], notes = mutate_bytes(files[name], rng)
    if rng.random() < 0.9:
        reseal(files, name)
    readers = IMAGE_READERS if kind == "images" else READERS
    folder = {"adapter": ADAPTER, "images": IMAGES}.get(kind, CHECKPOINT)
    how = rng.choice(("load", "load", *readers))
    return Case(files, (how, folder), (how, name, *notes), (folder, CHECKPOINT))


def make_tuned(rng: Random) -> Case:
    """The decoding settings of a tuned checkpoint, changed."""
    files, name = dict(_tuned()), f"{CHECKPOINT}/{DECODING}"
    files[name], notes = mutate_json(files[name], rng)
    if rng.random() < 0.9:
        reseal(files, name)
    return Case(files, ("decoding", CHECKPOINT), ("decoding", *notes), (CHECKPOINT,))


def mutate_weights(data: bytes, rng: Random) -> tuple[bytes, list[str]]:
    """A safetensors file by its bytes, or with a sound header that says something else."""
    if rng.random() < 0.4:
        return mutate_bytes(data, rng)
    size = int.from_bytes(data[:8], "little")
    header, notes = mutate_value(json.loads(data[8 : 8 + size]), rng)
    written = to_json(header)
    written += b" " * (-len(written) % 8)
    return len(written).to_bytes(8, "little") + written + data[8 + size :], notes


def run(case: Case) -> None:
    how, folder = case.arguments
    readers = IMAGE_READERS if folder == IMAGES else READERS | {"decoding": read_decoding}
    readers[how](folder)


TARGETS = (
    Target("checkpoint-tuned", make_tuned, run),
    *(
        Target(
            f"checkpoint-{kind}-{what}", functools.partial(make, kind, is_weights), run, share=share
        )
        for kind in BASES
        for what, is_weights, share in (("config", False, 1.0), ("weights", True, 0.6))
    ),
)
