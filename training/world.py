"""The ranks of a run: this process's rank and device, and collective operations."""

import os
import socket
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor
from torch.distributed import HashStore, Store, TCPStore  # pyright: ignore[reportPrivateImportUsage]

JOIN_TIMEOUT = timedelta(minutes=30)
"""How long ranks wait for the first one, which checks data and weights before it joins."""


class TrainingError(RuntimeError):
    """Training cannot continue; the message says why and what to do."""


@dataclass(frozen=True)
class World:
    """One process of those that the launcher started. Defaults to a single rank."""

    rank: int
    size: int
    local_rank: int
    local_size: int

    @staticmethod
    def from_environment() -> "World":
        """Read the launcher's environment variables."""
        size = int(os.environ.get("WORLD_SIZE", "1"))
        return World(
            rank=int(os.environ.get("RANK", "0")),
            size=size,
            local_rank=int(os.environ.get("LOCAL_RANK", "0")),
            local_size=int(os.environ.get("LOCAL_SIZE", str(size))),
        )

    @property
    def device(self) -> torch.device:
        if torch.cuda.is_available():
            return torch.device("cuda", self.local_rank)
        return torch.device("cpu")

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    def join(self) -> None:
        """Join the process group. Ranks of one machine communicate over loopback only."""
        if torch.distributed.is_initialized():
            return
        # Set before DeepSpeed is imported. Its shared-memory op takes minutes to compile and is for
        # inference only.
        if self.device.type == "cpu":
            os.environ.setdefault("DS_ACCELERATOR", "cpu")
            if "OMP_NUM_THREADS" not in os.environ:
                torch.set_num_threads(max(1, (os.cpu_count() or 1) // self.local_size))
        else:
            torch.cuda.set_device(self.device)
        os.environ.setdefault("LOCAL_RANK", str(self.local_rank))  # which DeepSpeed reads
        import deepspeed
        from deepspeed.ops import __compatible_ops__ as compatible

        compatible["deepspeed_shm_comm"] = False
        backend = "gloo" if self.device.type == "cpu" else "nccl"
        if self.size == self.local_size:
            os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
            torch.distributed.init_process_group(
                backend, store=self._store(), rank=self.rank, world_size=self.size
            )
        deepspeed.init_distributed(backend, auto_mpi_discovery=False, verbose=False)

    def _store(self) -> Store:
        """The rendezvous of the ranks of one machine: a port of its loopback interface."""
        if self.size == 1:
            return HashStore()
        port = int(os.environ.get("MASTER_PORT", "29500"))
        listener = None
        if self.is_first:
            listener = socket.socket()
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                listener.bind(("127.0.0.1", port))
            except OSError as error:
                raise TrainingError(
                    f"port {port} is taken ({error.strerror}); choose another with MASTER_PORT or "
                    "the launcher's --master_port"
                ) from error
            listener.listen()
        return TCPStore(
            "127.0.0.1",
            port,
            self.size,
            self.is_first,
            timeout=JOIN_TIMEOUT,
            master_listen_fd=listener.detach() if listener else None,
        )

    def leave(self) -> None:
        """Leave the process group, if joined."""
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()

    def total(self, values: Tensor) -> Tensor:
        """Sum over ranks, on every rank."""
        if self.size > 1:
            values = values.to(self.device)
            torch.distributed.all_reduce(values)
        return values.cpu()

    def gather(self, value: Any) -> list[Any]:
        """The values of all ranks, on every rank."""
        if self.size == 1:
            return [value]
        values: list[Any] = [None] * self.size
        torch.distributed.all_gather_object(values, value)
        return values

    def wait(self) -> None:
        """Wait until all ranks get here."""
        if self.size > 1:
            torch.distributed.barrier()
