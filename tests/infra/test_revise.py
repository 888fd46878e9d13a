"""`remask revise` for text and pictures; boards are in test_commands.py."""

import io
import json

import numpy as np
import pytest
from PIL import Image

from remask.infra.cli import main
from remask.infra.record import Step
from remask.infra.reviser import Options, open_reviser
from remask.infra.steps import text_step
from tests.pipeline.pictures import png
from tests.revisers import DRAFT, PROMPT, write_boards, write_edits, write_sums
from tests.text_folders import write_text_tokenizer

BOARD = "4234341221434321"


@pytest.fixture(scope="module")
def sums(tmp_path_factory):
    return write_sums(tmp_path_factory.mktemp("sums") / "model")


@pytest.fixture(scope="module")
def boards(tmp_path_factory):
    return write_boards(tmp_path_factory.mktemp("boards") / "model")


@pytest.fixture(scope="module")
def edits(tmp_path_factory):
    """The folder of a model, a file with a picture, and an instruction."""
    folder = tmp_path_factory.mktemp("edits")
    model, _, (pair, *_) = write_edits(folder)
    (folder / "scene.png").write_bytes(png(Image.fromarray(pair.source)))
    return model, str(folder / "scene.png"), pair.instruction


def revised(capsys, *argv):
    main(["revise", *argv])
    return capsys.readouterr()


def record_of(folder, request, **options):
    reviser = open_reviser(folder)
    return reviser.revise(reviser.start(request), Options(**options))


def test_a_draft_is_revised_and_every_step_shown(sums, capsys):
    printed = revised(
        capsys, "--checkpoint", sums, "--prompt", PROMPT, "--draft", DRAFT, "--max-steps", "4"
    )
    record = record_of(sums, {"prompt": PROMPT, "draft": DRAFT}, max_steps=4)
    assert printed.out == f"{record.result}\n"
    lines = printed.err.splitlines()
    assert lines[0] == PROMPT
    assert lines[1].split() == ["start", f"{DRAFT}¶"]
    assert [line.split("  ")[0].strip() for line in lines[1:-2]] == [
        "start", *(f"step {k}" for k in range(1, len(record.steps)))
    ]  # fmt: skip
    counts = record.counts
    assert lines[-2] == (
        f"{counts.steps} steps, {counts.forward_passes} forward passes: {counts.remasked} tokens "
        f"re-masked, {counts.revealed} revealed, {counts.replaced} replaced"
    )
    assert lines[-1] == "[-x] re-masked, [+x] revealed, ▒ still MASK, ¶ the end"
    assert counts.remasked > 0


def test_steps_are_told_apart_without_colour():
    def step(cells, actions):
        return Step(list(cells), actions, [None] * len(cells))

    steps = [
        step("cat\n·¶¶", ["start"] * 7),
        step("··t\n·¶¶", ["remask"] * 2 + ["keep"] * 2 + ["wait"] + ["keep"] * 2),
        step("do·g!·¶", ["reveal"] * 2 + ["remask", "keep", "reveal", "remask", "keep"]),
    ]
    shown = [text_step(steps, k).plain for k in range(3)]
    assert shown == ["cat⏎▒¶", "[-ca]t⏎▒¶", "[+do][-t]g[+!][-¶]¶"]
    assert text_step(steps, 1).spans[0].style == "black on yellow strike"
    assert text_step(steps, 2).spans[0].style == "black on green"


def test_control_characters_of_a_model_are_shown_and_not_obeyed():
    step = Step(["\x1b[2J", "a"], ["start"] * 2, [None] * 2)
    assert text_step([step], 0).plain == r"\x1b[2Ja"


def test_without_a_draft_it_writes_from_nothing(sums, capsys):
    printed = revised(capsys, "--checkpoint", sums, "--prompt", PROMPT, "--length", "5")
    assert printed.err.splitlines()[1].split() == ["start", "▒▒▒▒▒"]
    assert printed.out == record_of(sums, {"prompt": PROMPT, "length": 5}).result + "\n"
    quiet = revised(capsys, "--checkpoint", sums, "--prompt", PROMPT, "--length=5", "--no-show")
    assert (quiet.out, quiet.err) == (printed.out, "")


def test_masks_in_a_draft_are_said_once(sums, capsys):
    printed = revised(capsys, "--checkpoint", sums, "--prompt", PROMPT, "--draft", "8▒3=▒")
    note = "remask revise: the draft holds 2 MASKs, to be filled in\n"
    assert printed.err.startswith(note)
    assert printed.err.count(note) == 1
    assert "start   8▒3=▒▒▒" in printed.err


def test_json_is_the_record(sums, capsys):
    options = ["--margin", "-1.5", "--no-history", "--pace", "0.5", "--seed", "3"]
    printed = revised(
        capsys, "--checkpoint", sums, "--prompt", PROMPT, "--draft", DRAFT, "--json", *options
    )
    record = record_of(
        sums, {"prompt": PROMPT, "draft": DRAFT}, margin=-1.5, history=False, pace=0.5, seed=3
    )
    assert json.loads(printed.out) == record.to_json()
    assert printed.err == ""


def test_files_and_standard_input_hold_many_and_each_is_as_if_alone(
    sums, capsys, tmp_path, monkeypatch
):
    requests = [{"prompt": PROMPT, "draft": DRAFT}, {"prompt": "1+1-1:"}, {"prompt": "9-4-4:"}]
    lines = "".join(f"{json.dumps(x)}\n\n" for x in requests)
    (tmp_path / "x.jsonl").write_text(lines)
    command = ["--checkpoint", sums, "--policy", "remdm", "--max-steps", "5", "--json"]
    printed = revised(capsys, *command, str(tmp_path / "x.jsonl"))
    expected = [record_of(sums, x, policy="remdm", max_steps=5).to_json() for x in requests]
    assert [json.loads(line) for line in printed.out.splitlines()] == expected
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(lines.encode())))
    assert revised(capsys, *command).out == printed.out
    plain = revised(capsys, *command[:-1], str(tmp_path / "x.jsonl"))
    assert plain.out.splitlines() == [x["result"] for x in expected]
    assert plain.err == ""


def test_boards_have_records_too(boards, capsys):
    masked = f"{BOARD} {'1' * 8}{'0' * 8}"
    printed = revised(capsys, "--checkpoint", boards, "--json", BOARD, masked)
    plain = revised(capsys, "--checkpoint", boards, "--no-show", BOARD, masked)
    records = [json.loads(line) for line in printed.out.splitlines()]
    assert [x["result"] for x in records] == plain.out.split()
    assert records[1]["editable"] == [True] * 8 + [False] * 8
    as_json = json.dumps({"board": BOARD, "editable": "1" * 8 + "0" * 8})
    assert revised(capsys, "--checkpoint", boards, "--no-show", as_json).out == (
        plain.out.split()[1] + "\n"
    )


def test_random_rules_draw_the_same_for_a_board_in_any_place(boards, capsys):
    command = ["--checkpoint", boards, "--no-show", "--policy", "remdm", "--max-steps", "6"]
    alone = revised(capsys, *command, BOARD).out
    assert revised(capsys, *command, "0" * 16, BOARD).out.splitlines()[1] == alone.strip()
    other = revised(capsys, *command, "--seed", "9", "0" * 16).out
    assert other != revised(capsys, *command, "0" * 16).out


def test_the_shipped_model_is_used_without_a_checkpoint(capsys):
    solved = "534678912672195348198342567859761423426853791713924856961537284287419635345286179"
    assert revised(capsys, "--no-show", f"9{solved[1:]}").out == f"{solved}\n"


def test_a_picture_is_edited(edits, capsys, tmp_path):
    model, scene, instruction = edits
    out = str(tmp_path / "out.png")
    asked = ["--checkpoint", model, "--picture", scene, "--instruction", instruction]
    printed = revised(capsys, *asked, "--output", out, "--max-steps", "4")
    with open(scene, "rb") as file:
        request = {"picture": file.read(), "instruction": instruction}
    record = record_of(model, request, max_steps=4)
    assert printed.out.startswith(f"{out}: {record.counts.steps} steps, ")
    assert "start" in printed.err
    assert printed.err.count("-") > 0
    edited = (tmp_path / "out.png").read_bytes()
    main(["edit", scene, instruction, "--checkpoint", model, "--output", out, "--max-steps", "4"])
    with Image.open(out) as short, Image.open(io.BytesIO(edited)) as long:
        assert np.array_equal(np.asarray(short), np.asarray(long))
    capsys.readouterr()
    as_json = revised(capsys, *asked, "--output", out, "--max-steps", "4", "--json")
    assert json.loads(as_json.out) == record.to_json()


def test_edit_needs_a_recipe_only_if_the_checkpoint_says_nothing(edits, capsys, tmp_path, boards):
    _, scene, instruction = edits
    command = ["edit", scene, instruction, "--output", str(tmp_path / "out.png"), "--checkpoint"]
    for checkpoint, said in (
        ("sudoku", "sudoku has no inputs.json; name the build recipe of its data with --recipe"),
        (boards, "takes inputs of kind sudoku, not image_edit"),
    ):
        with pytest.raises(SystemExit, match="2"):
            main([*command, checkpoint])
        assert said in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        main([*command, boards, "pairs.seed=2"])
    assert "overrides a key of a recipe; name one with --recipe" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--prompt", ""], "the prompt is empty"),
        (["--prompt", PROMPT, "--draft", "8" * 99], "the draft has 99 tokens, and there is room"),
        (["--prompt", PROMPT, "--length", "0"], "length must be at least 1"),
        (["--prompt", "8\udcff"], r"--prompt is not UTF-8: '8\udcff'"),
        (["--prompt", PROMPT, "--draft", "\udcff"], "--draft is not UTF-8"),
        (["--draft", DRAFT], "--draft and --length go with --prompt"),
        (["--prompt", PROMPT, "x.jsonl"], "x.jsonl stands beside --prompt; give one of them"),
        (["--picture", "x.png"], "--picture and --instruction are given together"),
        (["--prompt", "x", "--picture", "x", "--instruction", "x"], "give one of them"),
        (["--picture", "x.png", "--instruction", "x"], "inputs of kind text, not image_edit"),
        (["--prompt", PROMPT, "--policy", "p2", "--patience", "2"], "--patience is an option of"),
        (["--prompt", PROMPT, "--policy", "p2", "--margin", "2"], "margin is a setting of policy"),
        (
            ["--prompt", PROMPT, "--pace", "0.5", "--reveal-count", "2"],
            "give one of reveal_count, reveal_threshold and reveal_within",
        ),
        (['{"prompt": '], "request 1: a line is a JSON object such as"),
        (['{"prompt": "8+1:", "x": 1}'], "request 1: unknown keys ['x']"),
        (["lines.jsonl"], "there is no file lines.jsonl, and a board is 81 or 16 digits"),
    ],
)
def test_bad_requests_get_one_clear_line(sums, argv, said, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["revise", "--checkpoint", sums, *argv])
    printed = capsys.readouterr()
    assert printed.out == ""
    assert said in printed.err
    assert printed.err.count("\n") == 1
    assert printed.err.startswith("remask revise: ")


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b'{"prompt": "8+1:"}\n\xff\n', "line 2 is not UTF-8: invalid start byte at byte 0"),
        (b"1\n[1]\n{}\n{\n5\n", "line 3: the request lacks 'prompt'; "),
        (b"\n\n", "no prompts given"),
    ],
)
def test_bad_files_are_named_with_their_lines(sums, data, said, capsys, tmp_path):
    (tmp_path / "x.jsonl").write_bytes(data)
    with pytest.raises(SystemExit, match="2"):
        main(["revise", "--checkpoint", sums, str(tmp_path / "x.jsonl")])
    assert said in capsys.readouterr().err


def test_a_checkpoint_of_another_kind_or_vocabulary_is_refused(sums, edits, capsys, tmp_path):
    with pytest.raises(SystemExit, match="2"):
        main(["revise", "--checkpoint", "sudoku", "--prompt", "x"])
    assert "sudoku takes inputs of kind sudoku, not text" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        main(["revise", "--checkpoint", edits[0], BOARD])
    assert "edits pictures; give --picture and --instruction" in capsys.readouterr().err
    folder = write_sums(tmp_path / "model")
    write_text_tokenizer(tmp_path / "model")
    (tmp_path / "model" / "SHA256SUMS").unlink()
    with pytest.raises(SystemExit, match="2"):
        main(["revise", "--checkpoint", folder, "--prompt", "x"])
    assert "has MASK at 259, the model at 0; use the tokenizer" in capsys.readouterr().err


def test_a_picture_that_cannot_be_written_fails_the_run(edits, capsys, tmp_path):
    model, scene, instruction = edits
    (tmp_path / "file").touch()
    out = str(tmp_path / "file" / "out.png")
    command = ["--checkpoint", model, "--picture", scene, "--instruction", instruction]
    with pytest.raises(SystemExit, match="1"):
        main(["revise", *command, "--output", out, "--max-steps", "1", "--no-show"])
    assert "cannot write" in capsys.readouterr().err
