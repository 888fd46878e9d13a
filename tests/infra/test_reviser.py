"""A reviser's records: exactly what `models.revise` does, shown step by step."""

import base64
import dataclasses
import io
import json
import math
import shutil

import numpy as np
import pytest
import torch
from PIL import Image

import remask
from remask.infra.record import Step, without_tail
from remask.infra.reviser import FILL_STEPS, MAX_STEPS, PACE, Options, open_reviser
from remask.models import (
    P2,
    Absorbing,
    CheckpointError,
    ReMDM,
    RevisionPolicy,
    load,
    revise,
)
from remask.models.checkpoints.decoding_file import Choice, write_decoding
from remask.models.checkpoints.input_files import INPUTS, TOKENIZER
from remask.models.history import HistoryState
from tests.models.checkpoints.test_decoding_file import trial, tuned
from tests.pipeline.pictures import png
from tests.revisers import DRAFT, PROMPT, write_boards, write_edits, write_sums
from tests.text_folders import write_llada

BOARD = "4234341221434321"


@pytest.fixture(scope="module")
def boards(tmp_path_factory):
    return open_reviser(write_boards(tmp_path_factory.mktemp("boards") / "model"))


@pytest.fixture(scope="module")
def sums(tmp_path_factory):
    return open_reviser(write_sums(tmp_path_factory.mktemp("sums") / "model"))


@pytest.fixture(scope="module")
def edits(tmp_path_factory):
    folder, _, (pair, *_) = write_edits(tmp_path_factory.mktemp("edits"))
    return open_reviser(folder), {
        "picture": png(Image.fromarray(pair.source)),
        "instruction": pair.instruction,
    }


@pytest.fixture(params=["boards", "sums", "edits"])
def asked(request, boards, sums, edits):
    """A reviser of each kind and a request for it."""
    return {
        "boards": (boards, {"board": BOARD, "editable": "1" * 12 + "0" * 4}),
        "sums": (sums, {"prompt": PROMPT, "draft": DRAFT}),
        "edits": edits,
    }[request.param]


@pytest.mark.parametrize(
    ("options", "policy"),
    [
        (Options(max_steps=6), RevisionPolicy()),
        (Options(max_steps=6, margin=-2.0), RevisionPolicy(margin=-2.0)),
        (Options(max_steps=6, pace=0.5), RevisionPolicy(reveal_within=0.5)),
        (Options(max_steps=6, policy="absorbing"), Absorbing()),
        (Options(max_steps=6, policy="p2", seed=3), P2()),
        (Options(max_steps=6, policy="remdm", seed=3), ReMDM()),
    ],
)
@pytest.mark.parametrize("history", [True, False])
def test_records_are_what_revise_does_on_the_same_tokens(asked, options, policy, history):
    reviser, request = asked
    start = reviser.start(request)
    own = reviser.backbone.history
    expected = revise(
        reviser.backbone,
        start.tokens[None],
        start.editable[None],
        policy=policy,
        max_steps=6,
        seed=options.seed,
        history=own if history else dataclasses.replace(own, variant="none"),
    )
    record = reviser.revise(start, dataclasses.replace(options, history=history))
    steps = int(expected.stats.steps[0])
    assert record.counts.steps == len(record.steps) - 1 == steps
    for name in ("forward_passes", "remasked", "revealed"):
        assert getattr(record.counts, name) == int(getattr(expected.stats, name)[0])
    for k, step in enumerate(record.steps):
        shown = start.shown[: len(step.cells)]
        state = expected.trajectory[k, 0]
        assert step.cells == reviser.reader.cells(state[shown].tolist())
        if k:
            taken = expected.actions[k - 1, 0, shown].tolist()
            names = ["keep", "remask", "reveal", "wait"]
            assert step.actions == [names[x] for x in taken]
    assert record.steps[0].actions == ["start"] * len(record.steps[0].cells)
    assert record.result == reviser.reader.result(start, expected.tokens[0])
    assert record.editable == start.editable[shown].tolist()


def test_p_mask_is_the_models_own_in_each_state(sums):
    """Without history, p(MASK) of a state follows from that state alone."""
    start = sums.start({"prompt": PROMPT, "draft": DRAFT})
    record = sums.revise(start, Options(max_steps=4, history=False))
    plain = dataclasses.replace(sums.backbone.history, variant="none")
    editable = start.editable[None]
    revision = revise(sums.backbone, start.tokens[None], editable, history=plain, max_steps=4)
    states = revision.trajectory[:, 0]
    assert len(states) == len(record.steps)
    for state, step in zip(states[:-1], record.steps, strict=False):
        if None in step.p_mask:  # before a closing step
            continue
        probabilities = p_mask_of(sums.backbone, state.long(), plain)[start.shown]
        assert step.p_mask == pytest.approx(probabilities[: len(step.p_mask)].tolist(), abs=1e-4)
    assert record.steps[-1].p_mask == [None] * len(record.steps[-1].cells)


def p_mask_of(backbone, state, history):
    """p(MASK) at every position of a state without past."""
    past = HistoryState(history, backbone.token_embedding, torch.ones(1, len(state)).bool())
    with torch.no_grad():
        return backbone.logits(past.update(state[None]))[0].softmax(-1)[:, backbone.mask_id]


def test_cells_that_may_not_change_are_not_looked_at(boards):
    record = boards.revise(boards.start({"board": BOARD, "editable": "1" * 12 + "0" * 4}))
    assert record.steps[0].p_mask[12:] == [None] * 4
    assert None not in record.steps[0].p_mask[:12]
    assert (record.columns, record.box, record.result[12:]) == (4, 2, BOARD[12:])
    assert record.editable == [True] * 12 + [False] * 4


def test_steps_are_watched_as_they_are_taken(asked):
    reviser, request = asked
    seen = []
    record = reviser.revise(reviser.start(request), Options(max_steps=5), seen.append)
    # A closing step is not seen.
    assert len(record.steps) - 1 <= len(seen) <= len(record.steps)
    for step, taken in zip(seen, record.steps, strict=False):
        length = len(taken.cells)
        assert (step.cells[:length], step.actions[:length]) == (taken.cells, taken.actions)


def test_watching_can_be_interrupted(sums):
    def stop(step):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sums.revise(sums.start({"prompt": PROMPT}), watch=stop)


def test_a_record_is_json_with_its_pictures(edits):
    reviser, request = edits
    record = reviser.revise(reviser.start(request), Options(max_steps=3))
    values = json.loads(json.dumps(record.to_json()))
    assert set(values) == {
        "kind", "checkpoint", "columns", "box", "prompt", "steps", "editable", "result",
        "picture", "counts", "note",
    }  # fmt: skip
    assert set(values["counts"]) == {
        "steps", "forward_passes", "remasked", "revealed", "replaced"
    }  # fmt: skip
    assert set(values["steps"][0]) == {"cells", "actions", "p_mask", "picture"}
    assert values["picture"] == values["steps"][-1]["picture"]
    for step in values["steps"]:
        with Image.open(io.BytesIO(base64.b64decode(step["picture"]))) as picture:
            grey = (np.asarray(picture) == 170).all(-1)
        masked = np.array([cell == "·" for cell in step["cells"]]).reshape(4, 4)
        assert (grey.reshape(4, 8, 4, 8).all((1, 3)) >= masked).all()


def test_replaced_counts_cells_that_end_as_another_token(boards):
    record = boards.revise(boards.start({"board": BOARD}), Options(max_steps=5, margin=-1.0))
    first = record.steps[0].cells
    assert record.counts.replaced == sum(
        a != b for a, b in zip(first, record.steps[-1].cells, strict=True)
    )
    assert record.counts.replaced > 0


def test_text_from_nothing_is_spread_over_steps_and_boards_are_not(sums, boards):
    blank = sums.start({"prompt": PROMPT})
    assert sums.plan(blank, Options())[:2] == (RevisionPolicy(reveal_within=PACE), MAX_STEPS)
    assert sums.plan(blank, Options(pace=0.2))[0] == RevisionPolicy(reveal_within=0.2)
    assert boards.plan(boards.start({"board": "0" * 16}), Options())[0] == RevisionPolicy()
    draft = sums.start({"prompt": PROMPT, "draft": DRAFT})
    assert sums.plan(draft, Options())[0] == RevisionPolicy()


def test_tuned_settings_are_used_unless_others_are_given(tmp_path):
    folder = write_sums(tmp_path / "model")
    best = trial(7, -9.0, reveal_within=1.0)
    write_decoding(tmp_path / "model", tuned(start="given", chosen=(Choice(budget=8, trial=best),)))
    reviser = open_reviser(folder)
    draft = reviser.start({"prompt": PROMPT, "draft": DRAFT})
    policy, max_steps, notes = reviser.plan(draft, Options())
    assert (policy, max_steps) == (RevisionPolicy(margin=-9.0, reveal_within=1.0), 7)
    assert notes == ["settings tuned for 8 passes: margin -9.0, reveal_within 1.0, 7 steps"]
    assert reviser.revise(draft).note == notes[0]
    plain = (RevisionPolicy(margin=1.0), MAX_STEPS, [])
    assert reviser.plan(draft, Options(margin=1.0)) == plain
    assert reviser.plan(draft, Options(max_steps=3))[0] == RevisionPolicy()  # below the budget
    assert reviser.plan(reviser.start({"prompt": PROMPT}), Options())[2] == []  # starts blank


def test_a_canvas_to_fill_is_filled(tmp_path):
    folder, _, (pair, *_) = write_edits(tmp_path)
    inputs = json.loads((tmp_path / "model" / INPUTS).read_text())
    inputs["source"]["source_in"] = "prompt"
    (tmp_path / "model" / "SHA256SUMS").unlink()
    (tmp_path / "model" / INPUTS).write_text(json.dumps(inputs))
    reviser = open_reviser(folder)
    picture = png(Image.fromarray(pair.source))
    start = reviser.start({"picture": picture, "instruction": "make the zebra blue"})
    assert start.is_blank
    record = reviser.revise(start)
    assert record.counts.revealed == FILL_STEPS
    assert record.counts.remasked == 0
    assert record.note == (
        "the model has no token for zebra; this model fills an empty canvas, by policy absorbing"
    )
    with pytest.raises(ValueError, match="takes no margin and no pace"):
        reviser.revise(start, Options(margin=1.0))


def test_a_published_model_is_decoded_as_it_was_published(tmp_path):
    reviser = open_reviser(write_llada(tmp_path / "llada"))
    assert (reviser.kind, reviser.name) == ("text", "llada")
    assert reviser.backbone.history.variant == "none"
    record = reviser.revise(reviser.start({"prompt": "hi", "length": 6}), Options(max_steps=4))
    assert len(record.steps[0].cells) == 6


def test_what_ends_every_state_is_shown_once():
    def step(cells):
        return Step(list(cells), ["keep"] * len(cells), [0.5] * len(cells))

    cut = without_tail([step("ab¶¶¶"), step("a·b¶¶")])
    assert ["".join(x.cells) for x in cut] == ["ab¶¶", "a·b¶"]
    assert [len(x.actions) for x in cut] == [len(x.p_mask) for x in cut] == [4, 4]
    assert ["".join(x.cells) for x in without_tail([step("¶¶")])] == ["¶"]
    assert ["".join(x.cells) for x in without_tail([step("ab")])] == ["ab"]


def test_the_shipped_model_needs_no_checkpoint():
    reviser = remask.open_reviser()
    assert (reviser.name, reviser.kind) == ("sudoku", "sudoku")
    assert remask.open_reviser(kind="sudoku").name == "sudoku"
    solved = "534678912672195348198342567859761423426853791713924856961537284287419635345286179"
    record = reviser.revise(reviser.start({"board": f"9{solved[1:]}"}))
    assert record.result == solved
    assert record.steps[0].p_mask[0] > 0.9
    assert max(record.steps[0].p_mask[1:]) < 0.1


def test_wrong_checkpoints_are_refused(tmp_path, boards):
    with pytest.raises(CheckpointError, match="no checkpoint folder at .*nowhere"):
        open_reviser(str(tmp_path / "nowhere"))
    with pytest.raises(ValueError, match="sudoku takes inputs of kind sudoku, not text"):
        open_reviser("sudoku", "text")
    with pytest.raises(ValueError, match="kind must be one of .*, got 'dance'"):
        open_reviser(kind="dance")
    bare = write_sums(tmp_path / "bare", is_described=False)
    with pytest.raises(CheckpointError, match=r"it has no inputs.json and no tokenizer"):
        open_reviser(bare)
    half = write_sums(tmp_path / "half")
    for name in TOKENIZER:
        (tmp_path / "half" / name).unlink(missing_ok=True)
    with pytest.raises(ValueError, match="cannot load tokenizer"):
        open_reviser(half)


def test_a_model_that_takes_boards_by_inputs_json_alone(tmp_path):
    """inputs.json decides, not the kind of the backbone."""
    folder = write_boards(tmp_path / "model")
    shutil.copytree(folder, tmp_path / "bare")
    (tmp_path / "bare" / INPUTS).unlink()
    assert open_reviser(str(tmp_path / "bare")).kind == "sudoku"  # by its backbone
    values = {"format": 1, "source": {"kind": "sudoku", "side": 9}}
    (tmp_path / "model" / INPUTS).write_text(json.dumps(values))
    (tmp_path / "model" / "SHA256SUMS").unlink()
    with pytest.raises(ValueError, match="takes boards of side 9, but its model has 5 tokens"):
        open_reviser(folder)
    assert load(folder).config.side == 4


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"policy": "dance"}, "policy must be one of"),
        ({"policy": "p2", "margin": 1.0}, "margin is a setting of policy revision, not of p2"),
        ({"policy": "remdm", "pace": 0.5}, "pace is a setting of policy revision"),
        ({"margin": math.nan}, "margin must be a finite number"),
        ({"pace": 0.0}, "pace must lie in"),
        ({"max_steps": 0}, "max_steps must be at least 1, got 0"),
        ({"seed": -1}, "seed must lie in"),
    ],
)
def test_wrong_options_are_refused(values, said):
    with pytest.raises(ValueError, match=said):
        Options(**values)


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        ({}, "the request lacks 'board'"),
        ({"board": 5}, "board must be text, got int"),
        ({"board": "123"}, "a board is 81 or 16 digits"),
        ({"board": "1" * 81}, "takes boards of 16 cells, got 81"),
        ({"board": BOARD, "editable": "01"}, "followed by 16 0s and 1s or nothing, got '01'"),
        ({"board": "0" * 16, "editable": "0" * 16}, "cell 1 is blank and may not change"),
        ({"board": BOARD, "prompt": "x"}, r"unknown keys \['prompt'\]"),
    ],
)
def test_wrong_boards_are_refused(boards, request_, said):
    with pytest.raises(ValueError, match=said):
        boards.start(request_)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"picture": None}, "the request lacks 'picture'"),
        ({"picture": "x.png"}, "picture must be the bytes of a picture, got str"),
        ({"picture": b"GIF89a"}, "the picture"),
        ({"instruction": "?!"}, "has no word"),
        ({"instruction": "blue " * 99}, "longer than the model's 96; use fewer words"),
    ],
)
def test_wrong_pictures_are_refused(edits, change, said):
    reviser, request = edits
    with pytest.raises(ValueError, match=said):
        reviser.start(request | change)
