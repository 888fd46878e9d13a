"""A Hugging Face tokenizer with one token per character, for tasks written in an alphabet."""

import tempfile
from pathlib import Path

from remask.models.checkpoints.input_files import TOKENIZER


def character_tokenizer(alphabet: str, mask: str, end: str) -> dict[str, bytes]:
    """The files of a tokenizer whose ids are the indices of an alphabet, by name.

    Args:
        alphabet: The characters, in the order of their ids.
        mask: Which of them is MASK.
        end: Which of them ends a response.
    """
    from tokenizers import Tokenizer, decoders, models
    from transformers import PreTrainedTokenizerFast

    # BPE without merges leaves single characters, and a text needs no spaces between them.
    inner = Tokenizer(models.BPE(vocab={x: i for i, x in enumerate(alphabet)}, merges=[]))
    inner.decoder = decoders.Fuse()
    inner.add_special_tokens([mask, end])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=inner, mask_token=mask, eos_token=end, pad_token=end
    )
    return saved_files(tokenizer)


def saved_files(tokenizer: object) -> dict[str, bytes]:
    """What a tokenizer of transformers saves, by name; of several chat templates only the main
    one."""
    with tempfile.TemporaryDirectory() as folder:
        tokenizer.save_pretrained(folder)  # pyright: ignore[reportAttributeAccessIssue]
        paths = [path for name in TOKENIZER if (path := Path(folder, name)).is_file()]
        return {path.name: path.read_bytes() for path in paths}
