"""`remask demo` as a command: what it says, what it refuses, how it ends."""

import os
import re
import signal
import subprocess
import sys

import httpx
import pytest

from remask.infra.cli import main
from remask.infra.demo.serve import listen


def refused(argv, capsys, status):
    """The one line on stderr of a command that does not start."""
    with pytest.raises(SystemExit, match=str(status)):
        main(["demo", *argv])
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("remask demo: ")
    assert printed.err.count("\n") == 1
    return printed.err


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--port", "65536"], "--port must lie in [0, 65535], got 65536"),
        (["--checkpoint", "model"], "--checkpoint must be NAME=FOLDER, got 'model'"),
        (["--checkpoint", "=model"], "--checkpoint must be NAME=FOLDER"),
        (["--checkpoint", "a=b", "--checkpoint", "a=c"], "two models of the name 'a'"),
        (["--port", "0", "--checkpoint", "a=nowhere"], "nowhere"),
        (["--host", "not an address"], "--host 'not an address' is no address"),
        (["--host", "192.0.2.1"], "192.0.2.1 is no address of this machine"),
    ],
)
def test_a_wrong_request_is_refused(capsys, argv, said):
    assert said in refused(argv, capsys, 2)


def test_a_port_in_use_is_named(capsys):
    with listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        assert f"port {port} is in use" in refused(["--port", str(port)], capsys, 1)


@pytest.mark.slow
def test_it_says_where_it_is_and_ends_on_interrupt():
    argv = [sys.executable, "-m", "remask.infra.cli", "demo", "--port", "0", "--host", "0.0.0.0"]
    with subprocess.Popen(
        argv,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
    ) as process:
        line = process.stdout.readline()
        (address,) = re.findall(r"http://127\.0\.0\.1:\d+", line)
        page = httpx.get(address)
        assert page.status_code == 200
        assert "Watch a model" in page.text
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert out == ""
    warning, end = err.splitlines()
    assert warning.startswith("remask demo: 0.0.0.0 is no loopback address")
    assert end == "remask: stopped"
