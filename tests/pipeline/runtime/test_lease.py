"""Leases: one owner at a time, on every storage, and none that is dead."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import threading

import pytest

from remask.pipeline.runtime import lease
from remask.pipeline.runtime.lease import BusyError, Owner, held
from remask.pipeline.runtime.storage import Storage, StorageError

ELSEWHERE = dataclasses.replace(Owner.here(), host="node7", processes="another boot")


def leases(storage):
    return {name for name in storage.names("") if name.startswith("lease-")}


def put(storage, owner, number=1):
    storage.write(f"lease-{number:08d}.json", json.dumps(dataclasses.asdict(owner)).encode())


@pytest.fixture
def clock(monkeypatch):
    """Time that passes only while somebody sleeps; what happens meanwhile is the test's to say."""

    class Clock:
        now = 0.0
        meanwhile = staticmethod(lambda: None)

        def sleep(self, seconds):
            self.now += seconds
            self.meanwhile()

    clock = Clock()
    monkeypatch.setattr(lease.time, "sleep", clock.sleep)
    monkeypatch.setattr(lease.time, "monotonic", lambda: clock.now)
    return clock


def test_one_at_a_time(storage):
    with held(storage) as first:
        first.check()
        here = f"process {os.getpid()} on .*; wait for it, stop it, or choose another output"
        with pytest.raises(BusyError, match=f"is being written to by {here}"), held(storage):
            pass
        first.check()
    assert leases(storage) == set()
    with held(storage):
        pass


def test_of_many_that_want_it_one_gets_it(storage):
    """Eight threads at one moment, many times over; some find it taken, one has it."""
    for _ in range(10):
        gate, done, owners = threading.Barrier(8), threading.Barrier(8), []

        def want(gate=gate, done=done, owners=owners):
            gate.wait()
            try:
                with held(storage):
                    owners.append(1)
                    done.wait()
            except BusyError:
                done.wait()

        threads = [threading.Thread(target=want) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(owners) == 1
        assert leases(storage) == set()


def test_a_killed_owners_lease_is_taken_over_at_once(tmp_path):
    script = (
        "import sys, time\n"
        "from remask.pipeline.runtime.lease import held\n"
        "from remask.pipeline.runtime.storage import Storage\n"
        "with held(Storage(sys.argv[1])):\n"
        "    print('held', flush=True)\n"
        "    time.sleep(1000)\n"
    )
    storage = Storage(str(tmp_path))
    owner = subprocess.Popen([sys.executable, "-c", script, tmp_path], stdout=subprocess.PIPE)
    assert owner.stdout.readline() == b"held\n"
    with pytest.raises(BusyError, match=f"process {owner.pid} on"), held(storage):
        pass
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    owner.stdout.close()
    with held(storage) as mine:
        mine.check()


def test_an_owner_elsewhere_that_beats_is_left_alone(storage, clock):
    put(storage, ELSEWHERE)
    beats = iter(range(1, 100))
    clock.meanwhile = lambda: put(storage, dataclasses.replace(ELSEWHERE, beat=next(beats)))
    with pytest.raises(BusyError, match="by process .* on node7"), held(storage):
        pass


def test_an_owner_elsewhere_that_is_silent_is_taken_over(storage, clock, capsys):
    put(storage, ELSEWHERE)
    with held(storage):
        assert "on node7; checking whether it is alive" in capsys.readouterr().err
        assert clock.now > lease.WATCH_S
        assert leases(storage) == {"lease-00000002.json"}
    assert leases(storage) == set()


def test_an_owner_elsewhere_that_lets_go_is_followed(storage, clock):
    put(storage, ELSEWHERE)
    clock.meanwhile = lambda: storage.remove(["lease-00000001.json"])
    with held(storage):
        assert clock.now < lease.WATCH_S


def test_leases_that_a_kill_left_behind_do_not_matter(storage):
    dead = dataclasses.replace(Owner.here(), started=1.0)
    for number in (3, 5, 6):
        put(storage, dataclasses.replace(dead, token=str(number)), number)
    with held(storage):
        assert leases(storage) == {"lease-00000007.json"}
    assert leases(storage) == set()


def test_an_owner_that_was_suspended_notices(storage):
    with held(storage) as mine:
        put(storage, ELSEWHERE, 2)
        with pytest.raises(StorageError, match="another process has taken over"):
            mine.check()


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b'{"token": 1}', b"[" * 99_999, b"\xff"])
def test_a_damaged_lease_holds_nobody_up(storage, content):
    storage.write("lease-00000004.json", content)
    with held(storage):
        assert leases(storage) == {"lease-00000005.json"}
