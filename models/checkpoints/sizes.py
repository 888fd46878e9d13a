"""How large a model may be: limits on the sizes in a config, and on what is built from them.

A config may come from anywhere and ask for a billion layers. Its numbers are checked one by one as
they are read; what they amount to together is counted while the model is built, on the meta device,
where a parameter takes no memory whatever its shape. Weights from files are compared with it there.
"""

import contextlib
import math
from collections.abc import Callable, Iterator
from typing import TypeVar

import psutil
import torch
from torch import nn
from torch.nn.modules.module import register_module_parameter_registration_hook

MOST_SIZE = 1 << 22
"""Of any one width, depth, vocabulary or length."""
MOST_TENSORS = 10_000
"""Parameters of a model: some 1,000 layers."""
MOST_ELEMENTS = 1 << 40
"""Numbers in all of them together."""

Built = TypeVar("Built", bound=nn.Module)


def check_size(name: str, value: int, most: int = MOST_SIZE) -> None:
    """Raise ValueError for a size that is not in 1 .. most."""
    if not 1 <= value <= most:
        raise ValueError(f"{name} must lie in 1 .. {most}, got {shown(value)}")


def check_sizes(config: object, names: tuple[str, ...]) -> None:
    """Raise ValueError for a size of a config that no model has."""
    for name in names:
        check_size(name, getattr(config, name))


def check_positive(config: object, names: tuple[str, ...]) -> None:
    """Raise ValueError for a number of a config that is not finite and above 0."""
    for name in names:
        value = getattr(config, name)
        if not 0 < value < math.inf:
            raise ValueError(f"{name} must be a finite number above 0, got {value}")


def shown(value: int) -> str:
    """An integer for an error; one of thousands of digits by their number."""
    digits = int(abs(value).bit_length() * math.log10(2)) + 1
    return str(value) if digits <= 20 else f"a number of about {digits} digits"


@contextlib.contextmanager
def on_meta(elements: int = MOST_ELEMENTS) -> Iterator[None]:
    """Build modules on the meta device; ValueError as soon as they have too many parameters.

    Args:
        elements: Numbers that the parameters may hold together; of a file, its bytes are enough.
    """
    num_tensors = num_elements = 0

    def count(module: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        nonlocal num_tensors, num_elements
        num_tensors += parameter is not None
        num_elements += parameter.numel() if parameter is not None else 0
        if num_tensors > MOST_TENSORS or num_elements > elements:
            raise ValueError(
                f"its sizes ask for more than {MOST_TENSORS:,} parameters, or more than "
                f"{elements:,} numbers in them, which is what there can be at most; lower them"
            )

    hook = register_module_parameter_registration_hook(count)
    try:
        with torch.device("meta"):
            yield
    finally:
        hook.remove()


def build(make: Callable[[], Built]) -> Built:
    """Make a module with random weights; ValueError, and no memory taken, if it is too large."""
    with on_meta():
        needed = sum(4 * x.numel() for x in make().parameters())
    memory = psutil.virtual_memory().total
    if torch.get_default_device().type == "cpu" and needed > memory:
        raise ValueError(
            f"its weights take {needed / 1e9:,.0f} GB and this machine has {memory / 1e9:,.0f}; "
            "lower its sizes"
        )
    return make()
