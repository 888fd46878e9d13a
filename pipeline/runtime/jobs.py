"""Run plain functions on units of work: on a Ray cluster, on a local Ray, or in this process.

A unit is retried if its worker dies. An error that the function raises ends the job at once; units
that are already committed stay. The number of units in flight is bounded, so memory does not grow
with the number of units.
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
"""Number of times a unit is retried after its worker or node has died."""
CALL_SECONDS = 0.1
"""Target duration of one call to a worker; small units are batched to reach it."""
OBJECT_STORE_BYTES = 256 << 20
"""Size of the object store. Results are small tuples, so a small store is enough."""
CHECK_SECONDS = 1.0
"""Interval without a result after which the processes of a local Ray are checked."""
RECONNECT_SECONDS = 20
"""Time without its control service after which a Ray process ends itself. Ray's default of 60
allows for network faults; on one machine a connection breaks only if the service is dead."""
REQUIRED = {
    "gcs_server": "Ray's control service (gcs_server)",
    "raylet": "Ray's scheduler (raylet)",
}
"""Processes that a local Ray needs, by their kind in Ray."""


class JobError(RuntimeError):
    """Ray could not finish the work; units that are already committed stay."""


@contextlib.contextmanager
def ray_session(workers: int | None) -> Iterator[None]:
    """Join the cluster that RAY_ADDRESS or a submitted job names, or start a local Ray.

    An inner session reuses the outer one. With 0 workers, Ray is not used.
    """
    if workers == 0:
        yield
        return
    logging.getLogger("ray").setLevel(logging.ERROR)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if not _on_cluster():  # a local Ray listens on the loopback interface only
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
    """Join the cluster, or start a local Ray, with a second attempt if the first fails."""
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
        except Exception:  # Ray raises bare exceptions
            ray.shutdown()
            ray.init(**local, **quiet)
    except Exception as error:
        ray.shutdown()
        advice = "check RAY_ADDRESS and the token" if _on_cluster() else "run it again to continue"
        raise JobError(f"Ray did not start: {_first_line(error)}; {advice}") from error


def _first_line(error: Exception) -> str:
    """The first line of an error, without the logs that Ray appends."""
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")


def _check_alive() -> None:
    """Raise JobError if a process that a local Ray needs has ended.

    Ray itself notices only after tens of seconds.
    """
    for kind, process in _dead_processes():
        raise JobError(
            f"{REQUIRED[kind]} ended with status {process.returncode}, perhaps out of memory; "
            "run it again to continue"
        )


def _dead_processes() -> list[tuple[str, Any]]:
    """Required processes, by kind, that have ended in a local Ray started by this process."""
    from ray._private import worker

    node: Any = worker._global_node
    return [dead for dead in node.dead_processes() if dead[0] in REQUIRED] if node else []


def run_tasks(
    function: Callable[[Any], Any],
    units: Iterable[Any],
    *,
    workers: int | None,
    num_gpus: float = 0.0,
) -> Iterator[Any]:
    """Yield function(unit) for every unit, in order of completion.

    Units that take a few milliseconds are sent to a worker in batches, so that Ray's overhead per
    call is small. Each core has its next batch queued, except on a shared cluster, where at most
    `workers` batches are in flight.

    Args:
        function: Must be picklable.
        units: Arguments of the calls.
        workers: Ray tasks that run at once; defaults to the cluster's cores. 0 runs in this
            process.
        num_gpus: GPUs that each task requests.
    """
    units = list(units)
    if workers == 0 or not units:
        yield from map(function, units)
        return
    with ray_session(workers):
        import ray

        room = actors_that_fit(ray.cluster_resources(), num_gpus)
        limit = workers if workers and _on_cluster() else 2 * room
        task = ray.remote(num_cpus=1, num_gpus=num_gpus, max_retries=WORKER_RETRIES)(_call)
        queue, size = collections.deque(units), 1

        def batches() -> Iterator[list[Any]]:
            while queue:
                yield [queue.popleft() for _ in range(min(size, len(queue)))]

        for results, seconds, retries in _bounded(
            lambda b: task.remote(function, b), batches(), limit
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
    """Like `run_tasks`, with state: each worker calls make() once and its result on every unit."""
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
        num_actors = min(workers or room, room, len(units))
        idle: list[Any] = [worker.remote(make) for _ in range(num_actors)]
        busy: dict[Any, Any] = {}
        waiting = len(units)

        def start(unit: Any) -> Any:
            nonlocal waiting
            waiting -= 1
            actor = idle.pop()
            reference = actor.run.remote(unit)
            busy[reference] = actor
            return reference

        def release(done: Any) -> None:
            actor = busy.pop(done)
            if waiting:  # otherwise it is dropped: an actor that lost its node may need the core
                idle.append(actor)

        try:
            for result, retries in _bounded(start, units, num_actors, release):
                Retries.count += retries
                yield result
        finally:
            if not _dead_processes():  # ray.kill would wait for a dead control service
                for actor in (*idle, *busy.values()):  # after an error some are still busy
                    ray.kill(actor)


def actors_that_fit(resources: Mapping[str, float], num_gpus: float) -> int:
    """The number of workers with one core and `num_gpus` GPUs each that the cluster can hold."""
    room = int(resources.get("CPU", 0))
    if num_gpus:
        room = min(room, int(resources.get("GPU", 0) / num_gpus))
    if room < 1:
        cores, gpus = resources.get("CPU", 0), resources.get("GPU", 0)
        raise ValueError(
            f"the cluster has {cores:.0f} cores and {gpus:.0f} GPUs, a worker needs 1 and "
            f"{num_gpus:g}; lower the GPUs per worker in the recipe's run section"
        )
    return room


def _call(function: Callable[[Any], Any], units: list[Any]) -> tuple[list[Any], float, int]:
    """The results, the seconds they took, and the number of storage retries."""
    keep_memory()
    start, before = time.perf_counter(), Retries.count
    results = [function(unit) for unit in units]
    return results, time.perf_counter() - start, Retries.count - before


class _Worker:
    def __init__(self, make: Callable[[], Callable[[Any], Any]]) -> None:
        # It is called on first use, so that its errors are reported as those of a unit.
        self._make = functools.cache(make)

    def run(self, unit: Any) -> tuple[Any, int]:
        before = Retries.count
        return self._make()(unit), Retries.count - before


def _bounded(
    start: Callable[[Any], Any],
    units: Iterable[Any],
    limit: int,
    on_done: Callable[[Any], object] = lambda done: None,
) -> Iterator[Any]:
    """Keep at most `limit` units in flight; yield the results, raise the first error."""
    import ray
    from ray.exceptions import RayError, RayTaskError

    in_flight: list[Any] = []
    queue = iter(units)
    while True:
        try:
            in_flight += map(start, itertools.islice(queue, limit - len(in_flight)))
            if not in_flight:
                return
            ready, in_flight = ray.wait(in_flight, num_returns=1, timeout=CHECK_SECONDS)
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
            raise JobError(f"Ray gave up on a unit: {reason}; run it again to continue") from error
        yield result
