"""The `remask` command as its users run it, with right and wrong input."""

import fcntl
import importlib.util
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import termios
import time
import tomllib
from importlib import metadata

import pytest
import torch
from rich.console import Console

from remask.infra import doctor, run
from remask.infra.boards import show_revision
from remask.infra.cli import GROUPS, VERBS, main
from remask.models import (
    Action,
    Revision,
    RevisionPolicy,
    SudokuConfig,
    SudokuMDM,
    load,
    revise,
    save,
)
from remask.models.checkpoints.decoding_file import Choice, write_decoding
from remask.models.decoding.revision import RevisionStats
from remask.pipeline.recipe import BuildRecipe
from remask.pipeline.runtime.recipes import load_recipe, make_recipe
from remask.training.recipe import TrainRecipe
from remask.training.run.folder import RunFolder, RunOutcome
from tests.models.checkpoints.test_decoding_file import trial, tuned
from tests.places import ROOT

BOARD = "1234341221434321"
BUILD = ROOT / "pipeline/recipes/sudoku4.yaml"


def remask(*argv, stdin="", **environment):
    """A process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "remask.infra.cli", *argv],
        input=stdin,
        capture_output=True,
        text=True,
        env=os.environ | environment,
    )


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("run") / "model"
    save(SudokuMDM(SudokuConfig(side=4, layers=1, width=32, heads=2, feed_forward=32)), folder)
    return str(folder)


def help_of(verb, capsys):
    with pytest.raises(SystemExit, match="0"):
        main([verb, "--help"])
    return capsys.readouterr().out


def test_help_lists_the_verbs_with_examples(capsys):
    main(["--help"])
    out = capsys.readouterr().out
    assert "remask doctor" in out
    assert "remask push RUN OWNER/NAME" in out
    for verb in VERBS:
        assert f"remask {verb}" in out
    for verb in VERBS:
        assert f"remask {verb}" in help_of(verb, capsys)


def test_help_lists_each_verb_once_below_its_purpose(capsys):
    main([])
    groups = re.split(r"\n\n(?=[a-z ]+:\n)", capsys.readouterr().out)[1:]
    assert [x.partition(":")[0] for x in groups] == list(GROUPS)
    assert {*GROUPS} >= {"data", "train", "evaluate", "use", "run elsewhere", "inspect"}
    listed = [re.findall(r"^  remask (\w+)", x, re.MULTILINE) for x in groups]
    assert listed == [[verb.name for verb in verbs] for verbs in GROUPS.values()]
    assert len(VERBS) == sum(map(len, listed))


def test_the_version_is_that_of_the_project():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert remask("--version").stdout == f"remask {project['version']}\n"


def test_the_version_of_a_clone_that_is_not_installed(monkeypatch, capsys):
    def missing(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", missing)
    main(["--version"])
    assert re.fullmatch(r"remask \d+\.\d+\.\d+\n", capsys.readouterr().out)


RUN_ON_CLUSTERS = ("source", "probe", "build", "rollout", "vq", "tune", "eval")


@pytest.mark.parametrize("verb", VERBS)
def test_help_names_modules_as_they_are_imported(verb, capsys):
    modules = re.findall(r"(?:python -m|--module) ([\w.]+)", help_of(verb, capsys))
    for module in modules:
        assert module.startswith("remask.")
        assert importlib.util.find_spec(module)
    if verb in RUN_ON_CLUSTERS:
        assert VERBS[verb] in modules
    if verb == "train":
        assert modules == ["remask.training.train"]


def test_the_harness_says_what_to_install(monkeypatch, capsys):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(SystemExit, match="2"):
        main(["harness", "--tasks", "gsm8k"])
    assert "`pip install 'remask[harness]'`" in capsys.readouterr().err


def test_unknown_verbs_are_named():
    done = remask("dream")
    assert done.returncode == 2
    assert done.stderr == f"remask: no verb 'dream'; the verbs are {', '.join(VERBS)}\n"


@pytest.mark.parametrize("verb", ["source", "probe", "build", "rollout"])
def test_a_missing_recipe_is_all_that_is_asked_for(verb, capsys):
    with pytest.raises(SystemExit, match="2"):
        main([verb])
    assert capsys.readouterr().err.endswith("arguments are required: recipe\n")


def test_doctor_says_what_runs_and_why_not(tmp_path):
    good = remask("doctor", COLUMNS="200")
    assert good.returncode == 0
    assert "torch" in good.stdout
    assert re.search(
        r"sandbox +(holds|none, so MBPP and HumanEval will not run: .*install)", good.stdout
    )
    assert re.search(r"bf16 +matrix products at [0-9.]+ times the speed of fp32", good.stdout)
    bad = remask("doctor", CXX="no-such-compiler", REMASK_CACHE=str(tmp_path), COLUMNS="200")
    assert bad.returncode == 0
    assert "reference path, slower: no C++ compiler found (CXX=no-such-compiler)" in bad.stdout


def test_doctor_prints_the_same_for_programs(monkeypatch, capsys):
    monkeypatch.setattr(doctor, "installed", {"diffusers": "0.40", "torch": "2.13"}.get)
    monkeypatch.setattr(doctor, "sandbox", lambda: doctor.Finding(False, "sandbox", "none"))
    main(["doctor", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert found["versions"]["torch"] == "2.13"
    assert found["versions"]["ray"] is None
    assert found["extras"]["image"]["packages"] == {"diffusers": "0.40", "scikit-image": None}
    assert all(0 < x["free_bytes"] <= x["bytes"] for x in found["disks"])
    assert "outputs" in " ".join(x["holds"] for x in found["disks"])
    findings = {x["item"]: x for x in found["findings"]}
    assert not findings["image"]["ok"]
    assert findings["image"]["status"] == (
        "scikit-image missing, for published image tokenisers, PSNR and SSIM: "
        "`pip install 'remask[image]'`"
    )
    assert "deepspeed missing" in findings["versions"]["status"]


def test_doctor_knows_the_extras_of_the_project():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = {
        name: {re.split(r"[\[>=]", need)[0] for need in needs}
        for name, needs in project["optional-dependencies"].items()
        if name != "test"
    }
    assert {x.name: {*x.packages} for x in doctor.EXTRAS if x.is_ours} == extras


def test_revise_prints_full_boards_only(checkpoint):
    blanks = "." * 16
    done = remask("revise", "--checkpoint", checkpoint, BOARD, blanks)
    assert done.returncode == 0, done.stderr
    boards = done.stdout.split()
    assert len(boards) == 2
    assert all(len(b) == 16 and set(b) <= set("1234") for b in boards)


def test_revise_reads_standard_input_and_leaves_fixed_cells(checkpoint):
    lines = f"{BOARD} {'0' * 16}\n\n{'0' * 8 + BOARD[8:]} {'1' * 8 + '0' * 8}\n"
    done = remask("revise", "--checkpoint", checkpoint, "--max-steps", "3", stdin=lines)
    first, second = done.stdout.split()
    assert first == BOARD
    assert second[8:] == BOARD[8:]


def test_revise_reads_files_and_names_their_bad_lines(checkpoint, tmp_path):
    path = tmp_path / "boards.txt"
    path.write_text(f"{BOARD} {'0' * 16}\n\n{BOARD} {'0' * 16}\n")
    done = remask("revise", "--checkpoint", checkpoint, str(path))
    assert done.stdout.split() == [BOARD, BOARD]
    path.write_text(f"{BOARD}\nhello\n" + "55\n" * 5)
    done = remask("revise", "--checkpoint", checkpoint, str(path))
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{path}: line 2: a board is" in done.stderr
    assert done.stderr.endswith("; and 3 more\n")


def test_revise_uses_tuned_settings_unless_told_otherwise(checkpoint, tmp_path, capsys):
    def revised(*argv, start="given", budget=8):
        folder = tmp_path / "model"
        shutil.copytree(checkpoint, folder, dirs_exist_ok=True)
        best = trial(budget - 1, -9.0, reveal_within=1.0)
        chosen = (Choice(budget=budget, trial=best),)
        write_decoding(folder, tuned(start=start, chosen=chosen))
        main(["revise", "--checkpoint", str(folder), "--no-show", *argv, *boards])
        return capsys.readouterr()

    boards = ["1" * 16, "." * 16, BOARD[:8] + "." * 8]
    main(["revise", "--checkpoint", checkpoint, "--no-show", *boards])
    printed = capsys.readouterr().out
    by_hand = RevisionPolicy(margin=-9.0, reveal_within=1.0)
    starts = torch.tensor([[int(c) for c in x.replace(".", "0")] for x in boards])
    expected = revise(load(checkpoint), starts, policy=by_hand, max_steps=7).tokens.tolist()
    expected = "".join(f"{''.join(map(str, board))}\n" for board in expected)
    assert expected != printed, "the settings must matter for this test"
    assert revised() == (
        expected,
        "remask revise: settings tuned for 8 passes: margin -9.0, reveal_within 1.0, 7 steps\n",
    )
    assert revised("--no-tuned") == (printed, "")
    assert revised("--patience", "1") == (printed, "")
    assert revised(start="blank") == (printed, "")
    assert revised(budget=40) == (printed, "")  # more than the default limit of steps


def test_show_draws_the_steps_on_stderr(checkpoint):
    done = remask("revise", "--checkpoint", checkpoint, "--show", "." * 16)
    assert "start" in done.stderr
    assert "step 1" in done.stderr
    assert len(done.stdout.split()) == 1
    quiet = remask("revise", "--checkpoint", checkpoint, "." * 16)  # not a terminal
    assert (quiet.stdout, quiet.stderr) == (done.stdout, "")


def test_a_board_that_stays_wrong_is_reported_as_invalid(checkpoint):
    fixed = "11" + BOARD[2:] + " " + "0" * 16
    done = remask("revise", "--checkpoint", checkpoint, "--show", fixed)
    assert done.stdout == "11" + BOARD[2:] + "\n"
    assert "not valid, 3 cells break a rule: 0 steps" in done.stderr


def test_shown_boards_are_told_apart_without_colour():
    before = torch.tensor([[1, 1, 3, 4, 3, 4, 1, 2, 2, 1, 4, 3, 4, 3, 2, 1]])
    masked = before.clone()
    masked[0, 1] = 0
    after = before.clone()
    after[0, 1] = 2
    actions = torch.zeros(2, 1, 16, dtype=torch.int8)
    actions[0, 0, 1], actions[1, 0, 1] = Action.REMASK, Action.REVEAL
    counts = torch.tensor([2])
    revision = Revision(
        after, torch.stack([before, masked, after]), actions, RevisionStats(*[counts] * 5)
    )
    console = Console(file=io.StringIO(), width=120, color_system=None)
    show_revision(console, revision, 0)
    first = next(line for line in console.file.getvalue().splitlines() if "1×" in line)
    # Cell 0 and its double at 1 break a rule; 1 is about to go, is gone, is back as 2.
    assert first.startswith("│ 1×1?│ 3 4")
    assert "1 · │ 3 4" in first
    assert "1 2+│ 3 4" in first


@pytest.mark.parametrize(
    ("text", "argv", "message"),
    [
        ("stages: []", [], "stages must be 1 .. 1000, got 0"),
        ("stages: [fly away]", [], "a stage begins with one of .* got 'fly away'"),
        ("stages: ['']", [], "a stage begins with one of"),
        ("steps: []", [], r"unknown keys \['steps'\]"),
        ("stages: [build x]", ["train.steps=1"], "an override is VERB.key=value"),
        ("stages: [build x]", ["build"], "an override is VERB.key=value"),
        ("stages: [report x, build]", [], "stage 2, build, names no recipe"),
        ("stages: [report x, build none.yaml]", [], "stage 2, build: cannot read recipe none.yaml"),
        ("stages: [build sudoku5]", [], "stage 1, build: cannot read recipe sudoku5.* sudoku4"),
        (f"stages: [build {BUILD}]", ["build.seed=x"], f"stage 1, build: {BUILD}: seed"),
        (f"stages: [train {BUILD} --ranks 2]", [], "stage 1, train: .* unknown keys"),
    ],
)
def test_bad_runs_are_refused(text, argv, message, tmp_path, capsys):
    path = tmp_path / "run.yaml"
    path.write_text(text)
    with pytest.raises(SystemExit, match="2"):
        main(["run", str(path), *argv])
    assert re.search(message, capsys.readouterr().err)


def test_a_run_prints_its_stages_with_overrides(tmp_path, capsys):
    path = tmp_path / "run.yaml"
    train = ROOT / "training/recipes/sudoku4.yaml"
    path.write_text(f"stages: [build {BUILD}, train --ranks 1 {train} seed=1, report x]")
    main(["run", str(path), "train.steps=5", "--dry-run"])
    assert capsys.readouterr().out.splitlines() == [
        f"remask build {BUILD}",
        f"remask train --ranks 1 {train} seed=1 steps=5",
        "remask report x",
    ]


def test_a_run_finds_recipes_beside_itself_and_packaged_ones(tmp_path, monkeypatch, capsys):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "data.yaml").write_text(BUILD.read_text())
    run = "stages: [build data.yaml, build sudoku4, train --ranks 1 training/recipes/sudoku4.yaml]"
    (tmp_path / "mine" / "run.yaml").write_text(run)
    monkeypatch.chdir(tmp_path)
    main(["run", "mine/run.yaml", "--dry-run"])
    assert capsys.readouterr().out.splitlines() == [
        "remask build mine/data.yaml",
        f"remask build {BUILD}",
        f"remask train --ranks 1 {ROOT / 'training/recipes/sudoku4.yaml'}",
    ]


OWN = """
stages:
  - build data
  - train --ranks 1 base seed=1
  - train reviser
  - tune run/model data --budgets 4
  - report scores
recipes:
  data:
    output: data
    source: &source {kind: sudoku, side: 4, train: 20}
    trajectories: {noisy_count: [1, 4]}
  base: {shards: data, output: base, model: {kind: sudoku, side: 4}, steps: 5}
  reviser:
    shards: data
    output: run
    start: base/model
    steps: 4
    rounds: {every: 2, rollout: {source: *source, targets: nearest_right}}
"""


def test_a_run_may_hold_the_recipes_of_its_stages(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.yaml").write_text(OWN)
    (tmp_path / "data").mkdir()  # no file: the recipe of that name is meant
    main(["run", "own.yaml", "train.batch_size=8", "base.steps=7", "--dry-run"])
    assert capsys.readouterr().out.splitlines() == [
        "remask build own.yaml:data",
        "remask train --ranks 1 own.yaml:base seed=1 batch_size=8 steps=7",
        "remask train own.yaml:reviser batch_size=8",
        "remask tune run/model own.yaml:data --budgets 4",
        "remask report scores",
    ]
    main(["build", "own.yaml:data", "--dry-run", "source.train=9"])
    out = capsys.readouterr().out
    assert "train: 9" in out
    assert "# build: " in out
    recipe = load_recipe(TrainRecipe, "own.yaml:reviser", ["rounds.rollout.source.train=3"])
    assert recipe.rounds.rollout["source"]["train"] == 3
    assert load_recipe(BuildRecipe, tmp_path / "own.yaml:data", []).source.train == 20


def test_recipes_of_a_run_are_found_from_other_folders_and_from_python(tmp_path, monkeypatch):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "own.yaml").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    made = make_recipe(BuildRecipe, "mine/own.yaml:data", {"source__train": 4})
    assert made.source.train == 4
    (tmp_path / "mine" / "other.yaml").write_text("stages: [build own.yaml:data]")
    main(["run", "mine/other.yaml", "--dry-run"])


@pytest.mark.parametrize(
    ("text", "argv", "message"),
    [
        ("stages: [build data]\nrecipes: {build: {}}", [], "is no verb; got 'build'"),
        ("stages: [build data]\nrecipes: {a b: {}}", [], "a name has letters.* got 'a b'"),
        ("stages: [build data]\nrecipes: {data: 5}", [], "own.yaml:data: expected keys and"),
        ("stages: [build data]\nrecipes: {data: {outptu: x}}", [], "own.yaml:data: unknown keys"),
        ("stages: [build dat]\nrecipes: {data: {}}", [], "cannot read recipe dat"),
        ("stages: [build own.yaml:dat]\nrecipes: {data: {}}", [], r"no recipe 'dat' .*\['data'\]"),
        ("stages: [build data]\nrecipes: [1]", [], "own.yaml: recipes must be"),
        (OWN, ["scores.seed=1"], "or NAME.key=value with one of .*'base'.* got 'scores.seed=1'"),
        (OWN, ["reviser.sede=1"], "own.yaml:reviser: unknown keys .'sede'"),
    ],
)
def test_bad_recipes_of_a_run_are_named(text, argv, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.yaml").write_text(text)
    with pytest.raises(SystemExit, match="2"):
        main(["run", "own.yaml", *argv])
    printed = capsys.readouterr().err
    assert re.search(message, printed)
    assert printed.count("\n") == 1


def test_a_run_ends_with_what_it_made_and_what_to_do_next(checkpoint, tmp_path, capfd):
    """Its stages leave that to the run."""
    recipe = tmp_path / "run.yaml"
    options = "source.train=32 source.held_out=16 run.workers=0"
    recipe.write_text(f"stages: [source sudoku4 output={tmp_path}/data {options}]")
    main(["run", str(recipe)])
    out, err = capfd.readouterr()
    first, last = out.splitlines()
    assert first.startswith("source: 2 of 2 units made, 48 rows")
    assert re.fullmatch(rf"run: 1 stage done in \d+\.\d s: {tmp_path}/data", last)
    assert "next:" not in err
    main(["source", "sudoku4", f"output={tmp_path}/other", *options.split()])
    assert "next: `remask build sudoku4`, with the same keys" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("stages", "advice"),
    [
        (["build sudoku4", "train sudoku4", "report x"], "open x/report.html in a browser"),
        (["train sudoku4", "report x --output y.html"], "open y.html in a browser"),
        (["train sudoku4", "merge a b"], "`remask revise --checkpoint b` or"),
        (["build sudoku4", "train sudoku4"], "`remask revise --checkpoint .*/sudoku4/train/model`"),
        (["build sudoku4"], "`remask train RECIPE shards=runs/sudoku4/data`;"),
    ],
)
def test_a_run_advises_by_what_it_made_last(stages, advice):
    commands, recipes = run.find_recipes(run.with_overrides(tuple(stages), []), ROOT)
    made = list(map(run.output_of, commands, recipes))
    assert re.match(advice, run.advice(commands, made))


def test_a_failed_stage_ends_the_run_with_its_status(tmp_path):
    path = tmp_path / "run.yaml"
    path.write_text(f"stages: [report {tmp_path}/none, report {tmp_path}/none]")
    done = remask("run", str(path))
    assert done.returncode == 2
    assert done.stderr.count("remask report: ") == 1
    assert "remask run: stage 1, report, ended with status 2; fix it and run" in done.stderr


@pytest.mark.parametrize(
    ("argv", "stdin", "message"),
    [
        (["123"], "", "a board is 81 or 16 digits, 0 or . for a blank; got '123'"),
        (["1" * 81], "", "this checkpoint takes boards of 16 cells, got 81"),
        (["9" * 16], "", "a 4×4 board has digits 1 to 4; got 9"),
        ([f"{BOARD} 01"], "", "a board is followed by 16 0s and 1s or nothing, got '01'"),
        (["0" * 16 + " " + "0" * 16], "", "cell 1 is blank and may not change"),
        ([], "", "no boards given: pass them as arguments, in a file or on standard input"),
        ([], f"{BOARD}\n\n12\n{BOARD}\nx\n", "standard input: line 3: a board is"),
        ([], f"12\n{BOARD}\nx\n", "; standard input: line 3: a board is"),
        (["no/such/file"], "", "cannot read boards from no/such/file: "),
        (["boards.txt"], "", "there is no file boards.txt, and a board is 81 or 16 digits"),
        (["x" * 300], "", "xxx, and a board is 81 or 16 digits, 0 or . for a blank"),
        (["./" + "x" * 300], "", "File name too long"),
        (["a/\0"], "", "embedded null byte"),
        (["--max-steps", "0", BOARD], "", "max_steps must be at least 1, got 0"),
        (["--patience", "0", BOARD], "", "patience must be at least 1, got 0"),
    ],
)
def test_bad_requests_get_one_clear_line(checkpoint, argv, stdin, message, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO(stdin))
    with pytest.raises(SystemExit, match="2"):
        main(["revise", "--checkpoint", checkpoint, *argv])
    printed = capsys.readouterr()
    assert printed.out == ""
    assert message in printed.err
    assert printed.err.count("\n") == 1


def test_a_reader_that_leaves_early_is_no_error(checkpoint):
    boards = "\n".join([BOARD] * 3000)
    command = f"{sys.executable} -m remask.infra.cli revise --checkpoint {checkpoint} --max-steps 1"
    done = subprocess.run(
        f"{command} | head -1",
        shell=True,
        input=boards,
        capture_output=True,
        text=True,
        env=os.environ | {"REMASK_KERNELS": "reference"},
    )
    assert len(done.stdout) == 17
    assert done.stderr == ""


def test_ctrl_c_ends_without_a_traceback(checkpoint):
    waiting = subprocess.Popen(
        [sys.executable, "-m", "remask.infra.cli", "revise", "--checkpoint", checkpoint],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    waiting.stdin.write(f"{BOARD}\n")
    waiting.stdin.flush()
    while unread_bytes(waiting.stdin) and waiting.poll() is None:
        time.sleep(0.1)
    waiting.send_signal(signal.SIGINT)  # it waits for more boards
    _, stderr = waiting.communicate(timeout=60)
    assert (waiting.returncode, stderr) == (130, "remask: stopped\n")


def unread_bytes(pipe):
    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)


def test_a_missing_checkpoint_is_named(tmp_path):
    done = remask("revise", "--checkpoint", str(tmp_path / "nowhere"), BOARD)
    assert done.returncode == 2
    assert f"there is no checkpoint folder at {tmp_path}/nowhere" in done.stderr
    assert "Traceback" not in done.stderr


def test_ctrl_c_ends_a_run_though_its_stage_ends_well(tmp_path):
    """As training does, which saves and exits with 0; the next stage must not begin."""
    stage = tmp_path / "stage"
    stage.write_text("#!/bin/sh\nkill -INT $PPID\nsleep 1\nexit 0\n")
    stage.chmod(0o755)
    recipe = tmp_path / "run.yaml"
    recipe.write_text("stages: [merge a b, report c]\n")
    code = f"import sys; sys.executable = {str(stage)!r}; from remask.infra.run import main; "
    done = subprocess.run(
        [sys.executable, "-c", f"{code}main([{str(recipe)!r}])"], capture_output=True, text=True
    )
    assert done.returncode == 130
    assert "2 of 2" not in done.stderr
    assert "stopped in stage 1, merge; run the same command again to continue" in done.stderr


def test_training_that_was_stopped_ends_a_run_though_its_stage_ends_well(tmp_path):
    """Asked to stop by its own file or signal, it saves and exits with 0, and has no model yet."""
    stage = tmp_path / "stage"
    stage.write_text("#!/bin/sh\nexit 0\n")
    stage.chmod(0o755)
    recipe = tmp_path / "run.yaml"
    train = ROOT / "training/recipes/sudoku4.yaml"
    recipe.write_text(f"stages: [train {train} output={tmp_path}/run, report c]\n")
    code = f"import sys; sys.executable = {str(stage)!r}; from remask.infra.run import main; "
    command = [sys.executable, "-c", f"{code}main([{str(recipe)!r}])"]
    ran = {}
    for step in (5, 10):
        RunFolder(tmp_path / "run").path.mkdir(exist_ok=True)
        RunFolder(tmp_path / "run").record(RunOutcome(step, 10, None, "run"))
        ran[step] = subprocess.run(command, capture_output=True, text=True)
    assert ran[5].returncode == 130
    assert "2 of 2" not in ran[5].stderr
    assert "stopped in stage 1, train; run the same command again to continue" in ran[5].stderr
    assert ran[10].returncode == 0
    assert "2 of 2" in ran[10].stderr
