"""Training runs in processes of their own, as users start them."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import yaml

from remask.training.launch import free_port
from tests.training.data import VOCABULARY

MODEL = {"kind": "sudoku", "side": 4, "layers": 2, "width": 32, "heads": 2, "feed_forward": 64}
LLADA = {
    "kind": "llada",
    "d_model": 16,
    "n_layers": 1,
    "n_heads": 2,
    "n_kv_heads": 2,
    "mlp_hidden_size": 24,
    "vocab_size": VOCABULARY.size,
    "mask_token_id": VOCABULARY.mask_id,
    "max_sequence_length": 32,
}
IN_ONE_PROCESS = """
import json, sys
from remask.pipeline.runtime.memory import keep_memory
from remask.training.train import run
keep_memory()
for path in sys.argv[1:]:
    try:
        run(path, [])
    except SystemExit as end:
        print(f"exit {end.code}", file=sys.stderr)
"""


def write_recipe(folder, name, data, **changes):
    """A recipe of a small model and a few steps; returns its path."""
    recipe = {
        "shards": str(data),
        "output": str(Path(folder) / name),
        "model": MODEL,
        "history": {"decay": 0.5},
        "optimizer": {"lr": 0.01, "warmup": 2},
        "steps": 6,
        "batch_size": 16,
        "save": {"every": 3},
        "held_out": {"every": 3, "rows": 24, "max_steps": 4},
        "log": {"every": 1, "tensorboard": False},
    }
    for key, value in changes.items():
        if value is None:
            del recipe[key]
        elif key != "model" and isinstance(value, dict) and isinstance(recipe.get(key), dict):
            recipe[key] = recipe[key] | value
        else:
            recipe[key] = value
    path = Path(folder) / f"{name}.yaml"
    path.write_text(yaml.safe_dump(recipe))
    return str(path)


def environment(**extra):
    return os.environ | {"OMP_NUM_THREADS": "1", "DS_ACCELERATOR": "cpu"} | extra


def run_together(paths):
    """Several recipes one after another in one process, which saves starting it each time."""
    command = [sys.executable, "-c", IN_ONE_PROCESS, *paths]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return done


def start_ranks(path, world_size=1, how=("-m", "remask.training.train")):
    """The ranks of a run, without the launcher."""
    port = free_port()
    return [
        subprocess.Popen(
            [sys.executable, *how, path],
            env=environment(
                RANK=str(rank),
                LOCAL_RANK=str(rank),
                WORLD_SIZE=str(world_size),
                LOCAL_SIZE=str(world_size),
                MASTER_PORT=str(port),
            ),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(world_size)
    ]


def start_command(*arguments, output=subprocess.PIPE):
    """`remask train ...`."""
    return subprocess.Popen(
        [sys.executable, "-m", "remask.infra.cli", "train", *arguments],
        env=environment(),
        stdout=output,
        stderr=output,
        text=True,
    )


def start_deepspeed(path, ranks=1):
    """`deepspeed --module remask.training.train ...`."""
    deepspeed = str(Path(sys.executable).with_name("deepspeed"))
    where = ["--num_gpus", str(ranks), "--master_port", free_port()]
    return subprocess.Popen(
        [sys.executable, deepspeed, *where, "--module", "remask.training.train", path],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def chain(top):
    """A process and those below it, level by level: `remask train`, DeepSpeed's runner, its
    launcher, the ranks. Shorter while they are starting or ending."""
    levels = [[psutil.Process(top.pid)]]
    while levels[-1]:
        below = []
        for process in levels[-1]:
            with contextlib.suppress(psutil.NoSuchProcess):
                below += process.children()
        levels.append(below)
    return levels[:-1]


def is_gone(process):
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def wait_for(condition, process=None, timeout_s=120):
    """Wait for an event, while a process runs if one is named."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert process is None or process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)


def finish(processes):
    """Exit status, output and errors of each."""
    outcomes = []
    for process in processes:
        out, err = process.communicate(timeout=240)
        outcomes.append((process.returncode, out, err))
    return outcomes


def run_ranks(path, world_size=1, how=("-m", "remask.training.train")):
    outcomes = finish(start_ranks(path, world_size, how))
    assert [x[0] for x in outcomes] == [0] * world_size, outcomes[0][2][-3000:]
    return outcomes


def log_lines(output, event="train"):
    path = Path(output) / "log.jsonl"
    if not path.exists():
        return []
    lines = []
    for line in path.read_text().splitlines():
        try:
            lines.append(json.loads(line))
        except ValueError:  # being written
            continue
    return [line for line in lines if line["event"] == event]


def losses(output):
    """The loss of every step, by step."""
    return {line["step"]: line["loss"] for line in log_lines(output)}


def kill_at(processes, output, step, signum=signal.SIGKILL, who=0):
    """Wait until a step is logged, then send a signal to one of the ranks."""
    deadline = time.monotonic() + 120
    while not any(line["step"] >= step for line in log_lines(output)):
        assert processes[who].poll() is None, processes[who].stderr.read()
        assert time.monotonic() < deadline
        time.sleep(0.01)
    processes[who].send_signal(signum)
