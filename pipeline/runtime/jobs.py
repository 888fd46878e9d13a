"""Ray at the edge: run plain functions on units of work, on a cluster, locally, or in this process.

A unit is retried when its worker dies; an error of ours ends the job at once, and what is committed
stays. Only a bounded number of units is under way, so memory does not grow with their number.
"""

import collections
import contextlib
import functools
import itertools
import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from remask.pipeline.runtime.memory import keep_memory
from remask.pipeline.runtime.retries import Retries

WORKER_RETRIES = 20
"""Times a unit is tried again when its worker or node dies."""
CALL_SECONDS = 0.1
"""Work that a call to a worker should hold, where units are small."""
OBJECT_STORE_BYTES = 256 << 20
"""Results are manifest rows: a small store is enough."""
CHECK_SECONDS = 1.0
"""Without a result for this long, a local Ray is looked after."""
RECONNECT_SECONDS = 20
"""After so long without its control service, Ray ends a process; its default of 60 is for networks,
and on one machine a connection breaks only when the service is dead."""
VITAL = {"gcs_server": "Ray's control service (gcs_server)", "raylet": "Ray's scheduler (raylet)"}
"""Processes that a local Ray cannot do without, by their kind."""


class JobError(RuntimeError):
    """Ray could not finish the work; what is committed stays."""


@contextlib.contextmanager
def ray_session(workers: int | None) -> Iterator[None]:
    """Join the cluster that RAY_ADDRESS or a submitted job names, or start a local one.

    Within another session it is that one; with 0 workers there is none.
    """
    if workers == 0:
        yield
        return
    logging.getLogger("ray").setLevel(logging.ERROR)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if not _on_cluster():  # a local Ray listens on this machine only
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
        os.environ.setdefault("RAY_gcs_rpc_server_reconnect_timeout_s", str(RECONNECT_SECONDS))
    import ray

    if ray.is_initialized():
        yield
        return
    _start(workers)
    try:
        yield
    finally:
        ray.shutdown()


def _on_cluster() -> bool:
    return bool(os.environ.get("RAY_ADDRESS"))


def _start(workers: int | None) -> None:
    """Join the cluster, or start a local one: a second time if the first fails."""
    import ray

    quiet = {"log_to_driver": False, "logging_level": logging.ERROR}
    try:
        if _on_cluster():
            ray.init(**quiet)
            return
        local = {
            "address": "local",
            "num_cpus": workers or os.cpu_count(),
            "include_dashboard": False,
            "object_store_memory": OBJECT_STORE_BYTES,
            "_node_ip_address": "127.0.0.1",
        }
        try:
            ray.init(**local, **quiet)
        except Exception:  # Ray raises bare ones
            ray.shutdown()
            ray.init(**local, **quiet)
    except Exception as error:
        ray.shutdown()
        advice = "check RAY_ADDRESS and the token" if _on_cluster() else "run it again to go on"
        raise JobError(f"Ray did not start: {_first_line(error)}; {advice}") from error


def _first_line(error: Exception) -> str:
    """What an error says, without Ray's pages of logs below it."""
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")


def _check_alive() -> None:
    """Raise JobError if a process that a local Ray cannot do without has ended.

    Ray itself notices only after tens of seconds.
    """
    for kind, process in _dead_processes():
        raise JobError(
            f"{VITAL[kind]} ended with status {process.returncode}, for want of memory perhaps; "
            "run it again to go on"
        )


def _dead_processes() -> list[tuple[str, Any]]:
    """Of a local Ray that this process started, the vital ones that have ended, by their kind."""
    from ray._private import worker

    node: Any = worker._global_node
    return [dead for dead in node.dead_processes() if dead[0] in VITAL] if node else []


def run_tasks(
    function: Callable[[Any], Any],
    units: Iterable[Any],
    *,
    workers: int | None,
    num_gpus: float = 0.0,
) -> Iterator[Any]:
    """Results of function(unit), in the order they come; in this process when workers is 0.

    Units that take a few milliseconds go to a worker several at a time, so that the milliseconds of
    Ray's own do not show. A core has its next ones waiting; on a cluster that others use too, no
    more than `workers` run at once.
    """
    units = list(units)
    if workers == 0 or not units:
        yield from map(function, units)
        return
    with ray_session(workers):
        import ray

        room = actors_that_fit(ray.cluster_resources(), num_gpus)
        most = workers if workers and _on_cluster() else 2 * room
        task = ray.remote(num_cpus=1, num_gpus=num_gpus, max_retries=WORKER_RETRIES)(_call)
        queue, size = collections.deque(units), 1

        def batches() -> Iterator[list[Any]]:
            while queue:
                yield [queue.popleft() for _ in range(min(size, len(queue)))]

        for results, seconds, retries in _bounded(
            lambda b: task.remote(function, b), batches(), most
        ):
            Retries.count += retries
            size = max(1, int(CALL_SECONDS * len(results) / max(seconds, 1e-6)))
            yield from results


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
        most = min(workers or room, room, len(units))
        idle: list[Any] = [worker.remote(make) for _ in range(most)]
        busy: dict[Any, Any] = {}
        waiting = len(units)

        def start(unit: Any) -> Any:
            nonlocal waiting
            waiting -= 1
            actor = idle.pop()
            reference = actor.run.remote(unit)
            busy[reference] = actor
            return reference

        def rest(done: Any) -> None:
            actor = busy.pop(done)
            if waiting:  # else it is let go: one that lost its node may wait for the core
                idle.append(actor)

        try:
            for result, retries in _bounded(start, units, most, rest):
                Retries.count += retries
                yield result
        finally:
            if not _dead_processes():  # else nobody is left to end them, and Ray would wait
                for actor in (*idle, *busy.values()):  # an error leaves them at work
                    ray.kill(actor)


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


def _call(function: Callable[[Any], Any], units: list[Any]) -> tuple[list[Any], float, int]:
    """Results, the seconds they took, and how often storage was tried again for them."""
    keep_memory()
    start, before = time.perf_counter(), Retries.count
    results = [function(unit) for unit in units]
    return results, time.perf_counter() - start, Retries.count - before


class _Worker:
    def __init__(self, make: Callable[[], Callable[[Any], Any]]) -> None:
        self._make = functools.cache(make)  # on first use, so that its errors are a unit's errors

    def run(self, unit: Any) -> tuple[Any, int]:
        before = Retries.count
        return self._make()(unit), Retries.count - before


def _bounded(
    start: Callable[[Any], Any],
    units: Iterable[Any],
    most: int,
    on_done: Callable[[Any], object] = lambda done: None,
) -> Iterator[Any]:
    """Keep at most this many units under way; yield what finishes, raise what fails."""
    import ray
    from ray.exceptions import RayError, RayTaskError

    under_way: list[Any] = []
    queue = iter(units)
    while True:
        try:
            under_way += map(start, itertools.islice(queue, most - len(under_way)))
            if not under_way:
                return
            ready, under_way = ray.wait(under_way, num_returns=1, timeout=CHECK_SECONDS)
            _check_alive()
            if not ready:
                continue
            on_done(ready[0])
            result = ray.get(ready[0])
        except RayTaskError as error:
            raise error.cause if isinstance(error.cause, Exception) else error from None
        except RayError as error:
            _check_alive()
            reason = _first_line(error)
            raise JobError(f"Ray gave up on a unit: {reason}; run it again to go on") from error
        yield result
