"""Weights from files: one shard at a time, to the device asked for, what is shared once."""

import torch
from safetensors import safe_open
from torch import nn

from remask.models import load
from remask.models.checkpoints.weights import read_weights, unique_tensors
from tests.models.checkpoints.test_published import llada
from tests.models.folders import LLADA, write_folder


def test_shards_are_read_one_after_another_straight_to_the_device(tmp_path, monkeypatch):
    folder = write_folder(tmp_path / "x", LLADA, llada().state_dict(), shards=3)
    opened = []

    class Watched:
        """safe_open, saying what is open, and where its tensors go."""

        def __init__(self, path, framework, device):
            self.path, self.device = path, device
            self.file = safe_open(path, framework=framework, device="cpu")

        def __enter__(self):
            opened.append((self.path.name, self.device))
            assert len(opened) == 1
            return self.file.__enter__()

        def __exit__(self, *error):
            seen.append(opened.pop())
            return self.file.__exit__(*error)

    seen = []
    monkeypatch.setattr("remask.models.checkpoints.weights.safe_open", Watched)
    load(folder, device="cpu:0")
    names = sorted(x.name for x in folder.glob("*.safetensors"))
    assert [name for name, _ in seen] == names * 2  # the headers first, then the tensors
    assert [device for _, device in seen[3:]] == ["cpu:0"] * 3


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.out = nn.Embedding(5, 3), nn.Linear(3, 5)
        self.out.weight = self.embed.weight


def test_a_shared_tensor_is_stored_once_under_either_name(tmp_path):
    model = Tied()
    tensors = unique_tensors(model)
    assert list(tensors) == ["embed.weight", "out.bias"]
    other = {"out.weight": tensors["embed.weight"], "out.bias": tensors["out.bias"]}
    for name, values in (("one", tensors), ("other", other)):
        folder = write_folder(tmp_path / name, {}, {k: x.detach() for k, x in values.items()})
        with torch.device("meta"):
            again = Tied()
        read_weights(again, folder, lambda x: x, torch.device("cpu"), torch.float64)
        assert again.out.weight is again.embed.weight
        assert torch.equal(again.out.weight, model.embed.weight.double())
