"""How large a model may be: limits on the sizes in a config, and on the model they describe.

A config may come from anywhere and ask for a billion layers. Each of its numbers is checked as it
is read. The parameters are counted while the model is built on the meta device, where they take no
memory; the shapes of weight files are compared with that model.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Annotated, TypeVar

import psutil
import torch
from torch import nn
from torch.nn.modules.module import register_module_parameter_registration_hook

from remask.models.ranges import Range, check_number

MAX_SIZE = 1 << 22
"""Limit of a single width, depth, vocabulary or length."""
MAX_TENSORS = 10_000
"""Limit of a model's parameter tensors; about 1,000 layers."""
MAX_ELEMENTS = 1 << 40
"""Limit of the elements of all parameters together."""

Size = Annotated[int, Range(f"[1, {MAX_SIZE}]")]
"""A width, depth, vocabulary size or length in a config."""
Positive = Annotated[float, Range("(0, inf)")]

Module = TypeVar("Module", bound=nn.Module)


def check_size(name: str, value: int, limit: int = MAX_SIZE) -> None:
    """Raise ValueError for a size outside [1, limit]."""
    check_number(name, value, Range(f"[1, {limit}]"))


@contextlib.contextmanager
def on_meta(max_elements: int = MAX_ELEMENTS) -> Iterator[None]:
    """Build modules on the meta device; ValueError as soon as they have too many parameters.

    Args:
        max_elements: Limit of the elements of all parameters together. For weights in a file, its
            number of bytes is a sufficient limit.
    """
    num_tensors = num_elements = 0

    def count(module: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        nonlocal num_tensors, num_elements
        num_tensors += parameter is not None
        num_elements += parameter.numel() if parameter is not None else 0
        if num_tensors > MAX_TENSORS or num_elements > max_elements:
            raise ValueError(
                f"its sizes ask for more than {MAX_TENSORS:,} parameters, or more than "
                f"{max_elements:,} numbers in them, which are the limits; lower its sizes"
            )

    hook = register_module_parameter_registration_hook(count)
    try:
        with torch.device("meta"):
            yield
    finally:
        hook.remove()


def build(make: Callable[[], Module]) -> Module:
    """Make a module with random weights; ValueError, before any allocation, if it is too large."""
    with on_meta():
        num_bytes = sum(4 * x.numel() for x in make().parameters())
    memory = psutil.virtual_memory().total
    if torch.get_default_device().type == "cpu" and num_bytes > memory:
        raise ValueError(
            f"its weights take {num_bytes / 1e9:,.0f} GB and this machine has {memory / 1e9:,.0f}; "
            "lower its sizes"
        )
    return make()
