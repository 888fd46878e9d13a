"""Tables of classes that recipes and checkpoints name, filled by class decorators."""

from typing import TypeVar

T = TypeVar("T")


def add_to(table: dict[str, type[T]], name: str, entry: type[T]) -> None:
    """Enter a class under a name.

    Defining the same class again replaces it, as re-running a notebook cell does.

    Raises:
        ValueError: Another class has that name.
    """
    other = table.get(name, entry)
    if (other.__module__, other.__qualname__) != (entry.__module__, entry.__qualname__):
        raise ValueError(
            f"{entry.__qualname__} cannot be registered as {name!r}: that is "
            f"{other.__module__}.{other.__qualname__}; choose another name"
        )
    table[name] = entry
