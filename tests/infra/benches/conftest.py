"""Fixtures that the benches' tests share with those of the kernels."""

from tests.kernels.conftest import cpu_library

__all__ = ["cpu_library"]
