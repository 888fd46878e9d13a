"""Published folders in small: configs, weights and tokenizers as their makers write them."""

import json
from pathlib import Path

import torch
from safetensors.torch import save_file

LLADA = {
    "model_type": "llada",
    "architectures": ["LLaDAModelLM"],
    "auto_map": {"AutoModel": "modeling_llada.LLaDAModelLM"},
    "block_type": "llama",
    "activation_type": "silu",
    "layer_norm_type": "rms",
    "include_bias": False,
    "rope": True,
    "alibi": False,
    "multi_query_attention": None,  # as published
    "d_model": 32,
    "n_layers": 2,
    "n_heads": 4,
    "n_kv_heads": 2,
    "mlp_ratio": 4,
    "mlp_hidden_size": 48,
    "max_sequence_length": 24,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "vocab_size": 60,
    "embedding_size": 64,
    "mask_token_id": 55,
    "weight_tying": False,
}
DREAM = {
    "model_type": "Dream",
    "architectures": ["DreamModel"],
    "auto_map": {"AutoModel": "modeling_dream.DreamModel"},
    "hidden_act": "silu",
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 24,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "rope_scaling": None,
    "use_sliding_window": False,
    "vocab_size": 64,
    "mask_token_id": 55,
    "tie_word_embeddings": False,
}


def randomise(model, seed: int = 0):
    """Weights at random, norms and biases too: a weight of 1 or a bias of 0 hides mistakes."""
    generator = torch.Generator().manual_seed(seed)
    for x in model.parameters():
        noise = torch.randn(x.shape, generator=generator) * 0.1
        with torch.no_grad():
            x.copy_(noise + (1.0 if x.ndim == 1 else 0.0))
    return model.eval()


def write_folder(
    folder: Path, config: dict, tensors: dict, shards: int = 1, tokenizer: bool = True
) -> Path:
    """config.json, weights in so many files, and a tokenizer of 58 tokens with MASK at 55."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    if tokenizer:
        write_tokenizer(folder)
    if shards == 1:
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
        return folder
    names = [f"model-{i + 1:05d}-of-{shards:05d}.safetensors" for i in range(shards)]
    where = {tensor: names[i % shards] for i, tensor in enumerate(tensors)}
    for name in names:
        save_file({t: x for t, x in tensors.items() if where[t] == name}, folder / name)
    size = sum(x.numel() * x.element_size() for x in tensors.values())
    index = {"metadata": {"total_size": size}, "weight_map": where}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


def write_tokenizer(folder: Path, mask: str = "<|mdm_mask|>") -> None:
    """50 words, then BOS, the end, a reserved id, two headers, MASK, the end of a turn, a hole."""
    special = ["<|bos|>", "<|endoftext|>", "<|reserved|>", "<|head|>", "<|tail|>", mask]
    tokens = {50 + i: content for i, content in enumerate([*special, "<|eot_id|>"])}
    added = [{"id": i, "content": x, "special": True} for i, x in tokens.items()]
    added.append({"id": 58, "content": "tool", "special": False})
    words = {f"w{i}": i for i in range(50)}
    whole = {"added_tokens": added, "model": {"type": "BPE", "vocab": words}}
    (folder / "tokenizer.json").write_text(json.dumps(whole))
    named = {"bos_token": "<|bos|>", "eos_token": {"content": "<|endoftext|>"}}
    (folder / "tokenizer_config.json").write_text(json.dumps(named))
