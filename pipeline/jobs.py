"""Ray at the edge: run plain functions on units of work, on a cluster, locally, or in this process.

A unit is retried when its worker dies; an error of ours ends the job at once, and what is committed
stays. Only a bounded number of units is under way, so memory does not grow with their number.
"""

import contextlib
import functools
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from pipeline.memory import keep_memory

WORKER_RETRIES = 20
"""Times a unit is tried again when its worker or node dies."""
OBJECT_STORE_BYTES = 256 << 20
"""Results are manifest rows: a small store is enough."""


class JobError(RuntimeError):
    """Ray could not finish the work; what is committed stays."""


@contextlib.contextmanager
def ray_session(workers: int | None) -> Iterator[int]:
    """Join the cluster that RAY_ADDRESS or a submitted job names, or start a local one.

    Yields how many units to keep under way: on a cluster as many as `workers`, if given, and else
    enough that no core waits. Within another session it is that one; with 0 workers there is none.
    """
    if workers == 0:
        yield 1
        return
    logging.getLogger("ray").setLevel(logging.ERROR)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    on_cluster = bool(os.environ.get("RAY_ADDRESS"))
    if not on_cluster:  # a local Ray listens on this machine only
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
    import ray

    if ray.is_initialized():
        yield workers or 2 * int(ray.cluster_resources().get("CPU", 1))
        return
    if on_cluster:
        ray.init(log_to_driver=False, logging_level=logging.ERROR)
    else:
        ray.init(
            address="local",
            num_cpus=workers or os.cpu_count(),
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
            object_store_memory=OBJECT_STORE_BYTES,
            _node_ip_address="127.0.0.1",
        )
    try:
        cores = int(ray.cluster_resources().get("CPU", 1))
        yield workers if workers and on_cluster else 2 * cores
    finally:
        ray.shutdown()


def run_tasks(
    function: Callable[[Any], Any],
    units: Iterable[Any],
    *,
    workers: int | None,
    num_gpus: float = 0.0,
) -> Iterator[Any]:
    """Results of function(unit), in the order they come; in this process when workers is 0."""
    units = list(units)
    if workers == 0 or not units:
        yield from map(function, units)
        return
    with ray_session(workers) as most:
        import ray

        actors_that_fit(ray.cluster_resources(), num_gpus)
        task = ray.remote(num_cpus=1, num_gpus=num_gpus, max_retries=WORKER_RETRIES)(_call)
        shipped = ray.put(function)
        yield from _bounded(lambda unit: task.remote(shipped, unit), units, most)


def run_actors(
    make: Callable[[], Callable[[Any], Any]],
    units: Iterable[Any],
    *,
    workers: int | None,
    num_gpus: float = 0.0,
) -> Iterator[Any]:
    """The same with state: each worker calls make() once and then its result on every unit."""
    units = list(units)
    if not units:
        return
    if workers == 0:
        yield from map(make(), units)
        return
    with ray_session(workers):
        import ray

        worker = ray.remote(
            num_cpus=1,
            num_gpus=num_gpus,
            max_restarts=WORKER_RETRIES,
            max_task_retries=WORKER_RETRIES,
        )(_Worker)
        room = actors_that_fit(ray.cluster_resources(), num_gpus)
        idle: list[Any] = [
            worker.remote(make) for _ in range(min(workers or room, room, len(units)))
        ]
        busy: dict[Any, Any] = {}

        def start(unit: Any) -> Any:
            actor = idle.pop()
            reference = actor.run.remote(unit)
            busy[reference] = actor
            return reference

        yield from _bounded(start, units, len(idle), lambda done: idle.append(busy.pop(done)))


def actors_that_fit(resources: Mapping[str, float], num_gpus: float) -> int:
    """How many workers of a core, and so many GPUs, the cluster can hold at once."""
    room = int(resources.get("CPU", 0))
    if num_gpus:
        room = min(room, int(resources.get("GPU", 0) / num_gpus))
    if room < 1:
        cores, gpus = resources.get("CPU", 0), resources.get("GPU", 0)
        raise ValueError(
            f"the cluster has {cores:.0f} cores and {gpus:.0f} GPUs, a worker needs 1 and "
            f"{num_gpus:g}; set the GPUs per worker in the recipe's run section to what is there"
        )
    return room


def _call(function: Callable[[Any], Any], unit: Any) -> Any:
    keep_memory()
    return function(unit)


class _Worker:
    def __init__(self, make: Callable[[], Callable[[Any], Any]]) -> None:
        self._make = functools.cache(make)  # on first use, so that its errors are a unit's errors

    def run(self, unit: Any) -> Any:
        return self._make()(unit)


def _bounded(
    start: Callable[[Any], Any],
    units: Iterable[Any],
    most: int,
    on_done: Callable[[Any], None] = lambda done: None,
) -> Iterator[Any]:
    """Keep at most this many units under way; yield what finishes, raise what fails."""
    import ray
    from ray.exceptions import RayError, RayTaskError

    under_way: list[Any] = []
    queue = iter(units)
    more = True
    while True:
        while more and len(under_way) < most:
            try:
                unit = next(queue)
            except StopIteration:
                more = False
                break
            under_way.append(start(unit))
        if not under_way:
            return
        (finished,), under_way = ray.wait(under_way, num_returns=1)
        on_done(finished)
        try:
            result = ray.get(finished)
        except RayTaskError as error:
            raise error.cause if isinstance(error.cause, Exception) else error from None
        except RayError as error:
            reason = str(error).splitlines()[0]
            raise JobError(f"Ray gave up on a unit: {reason}; run it again to go on") from error
        yield result
