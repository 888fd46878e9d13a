"""The speed of decoding text: with revision, without, and beside the bare forward passes.

python -m remask.infra.benches.text                    # a minute or two, on random weights
python -m remask.infra.benches.text --width 512 --layers 8 --gen-length 256
"""

import argparse
import platform
import statistics
from functools import partial

import torch

from remask.evaluation.decode.generation import LENGTHS, fit_to_masks, generate
from remask.evaluation.decoder import Decoder
from remask.infra.benches.pipeline import seconds
from remask.models import Backbone, LladaConfig, LladaMDM
from remask.models.history import HistoryConfig, HistoryState
from remask.pipeline.runtime.memory import keep_memory
from remask.pipeline.runtime.terminal import fail

REPEATS = 3
VOCABULARY = 8192
PROMPT = LENGTHS
"""Number of tokens in every prompt."""


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m remask.infra.benches.text",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    for name, default in (("width", 256), ("layers", 4), ("gen-length", 64), ("answers", 8)):
        parser.add_argument(f"--{name}", type=int, default=default)
    arguments = parser.parse_args(argv)
    torch.set_num_threads(1)
    keep_memory()
    try:
        model = make_model(arguments.width, arguments.layers, PROMPT + arguments.gen_length)
    except ValueError as error:
        fail(parser.prog, 2, error)
    size = sum(x.numel() for x in model.parameters()) / 1e6
    print(f"{platform.machine()}, one thread, torch {torch.__version__}, {size:.1f}M parameters")
    compare(model, arguments.answers, arguments.gen_length)


def make_model(width: int, layers: int, length: int) -> Backbone:
    """A model of LLaDA's architecture with random weights, with History Reference."""
    config = LladaConfig(
        d_model=width,
        n_layers=layers,
        n_heads=max(1, width // 64),
        n_kv_heads=max(1, width // 64),
        mlp_hidden_size=3 * width,
        vocab_size=VOCABULARY,
        mask_token_id=VOCABULARY - 1,
        max_sequence_length=length + LENGTHS,
    )
    torch.manual_seed(0)
    return LladaMDM(config, HistoryConfig(norm="match")).eval()


def compare(model: Backbone, answers: int, gen_length: int) -> None:
    """Compare each decoder, with a pass per token, with as many bare passes."""
    prompts = [list(range(i, i + PROMPT)) for i in range(answers)]
    decoders = {
        "without revision (absorbing)": Decoder(policy="absorbing"),
        "with revision, 2 tokens a step": Decoder(settings={"reveal_count": 2, "patience": 9999}),
    }
    for name, decoder in decoders.items():
        fitted = fit_to_masks(decoder, gen_length)
        responses = generate(model, prompts, gen_length, fitted)
        passes = max(answer.forward_passes for answer in responses)
        sides = [
            partial(generate, model, prompts, gen_length, fitted),
            partial(bare_passes, model, answers, gen_length, passes),
        ]
        times = [[seconds(side) for side in sides] for _ in range(REPEATS)]
        decoding, bare = (statistics.median(column) for column in zip(*times, strict=True))
        remasked = statistics.mean(answer.remasked for answer in responses)
        print(
            f"{name}: {answers * gen_length / decoding:,.0f} tokens/s in {passes} passes, "
            f"{remasked:.1f} re-masked\n"
            f"  share of the bare forward passes' speed: {bare / decoding:.2f}"
        )


@torch.inference_mode()
def bare_passes(model: Backbone, answers: int, gen_length: int, passes: int) -> None:
    """Run forward passes alone, on whole canvases, with logits of the answer and no history."""
    ids = torch.full((answers, PROMPT + gen_length), model.mask_id)
    for _ in range(passes):
        embeds = HistoryState(HistoryConfig(variant="none", norm="match"), model.token_embedding)
        hidden = model.hidden(embeds.update(ids))
        model.head(hidden[:, PROMPT:])


if __name__ == "__main__":
    main()
