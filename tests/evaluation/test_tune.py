"""Tuning: the choice beside a plain search, what is written, and who uses it."""

import json

import numpy as np
import pytest
import torch

from remask.evaluation import tune as tune_module
from remask.evaluation.decode.generation import fit_to_masks
from remask.evaluation.decoder import Decoder, resolve
from remask.evaluation.evaluate import run
from remask.evaluation.held_out import read_held_out, solved_rows
from remask.evaluation.recipe import EvalRecipe
from remask.evaluation.runs import make_runs
from remask.evaluation.suites.countdown import CountdownSuite
from remask.evaluation.tune import choose, describe, main, make_grid, tune
from remask.models import RevisionPolicy, SudokuConfig, SudokuMDM, fingerprint, revise, save
from remask.models.checkpoints.decoding_file import Choice, Trial, read_decoding, write_decoding
from remask.models.checkpoints.folder import DECODING
from remask.models.config import from_mapping
from remask.pipeline.recipe import BuildRecipe
from remask.pipeline.rollout_recipe import RolloutRecipe
from remask.pipeline.runtime.recipes import load_recipe
from remask.pipeline.sources.countdown import (
    ALPHABET,
    CountdownSource,
    decode,
    encode,
    solutions,
)
from remask.pipeline.sources.sudoku import SudokuSource
from tests.evaluation.suites.test_countdown import small_model
from tests.models.checkpoints.test_decoding_file import trial, tuned, verify

SUMS = {"kind": "countdown", "numbers": [2, 3], "held_out": 40}
BOARDS = {"kind": "sudoku", "side": 4, "held_out": 40}
TRAJECTORIES = {"horizon": 6, "noisy_count": [1, 4]}


def recipe(source, **changes):
    values = {"output": "data", "source": source, "trajectories": TRAJECTORIES, **changes}
    return from_mapping(BuildRecipe, values, "recipe")


@pytest.fixture
def sums(tmp_path):
    save(small_model(), tmp_path / "sums")
    return tmp_path / "sums"


@pytest.fixture
def boards(tmp_path):
    torch.manual_seed(0)
    config = SudokuConfig(side=4, layers=1, width=16, heads=2, feed_forward=16)
    save(SudokuMDM(config), tmp_path / "boards")
    return tmp_path / "boards"


@pytest.fixture(autouse=True)
def easier(monkeypatch):
    """A random model solves nothing, so what counts as solved is a property of random rows."""
    monkeypatch.setattr(tune_module, "solved_rows", lambda _, tokens: is_lucky(tokens))


def is_lucky(tokens):
    return tokens.astype(int).sum(1) % 3 == 0


def best_by_hand(model, held_out, budget, budgets, start):
    """A plain search, a row at a time: (solved, mean passes, |margin|) of the best settings."""
    results = []
    for steps in (x - 1 for x in budgets if x <= budget):
        for margin in (0, -0.5, -1, -2):
            for pace in (None, 0.34, 0.5, 0.7, 1.0):
                policy = RevisionPolicy(margin=margin, reveal_within=pace)
                if start == "blank" and policy.reveals_all(steps):
                    continue
                solved, passes = [], []
                for row, editable in zip(
                    held_out.starts.astype(int), held_out.examples.editable, strict=True
                ):
                    out = revise(
                        model,
                        torch.tensor(row)[None],
                        torch.tensor(editable)[None],
                        policy=policy,
                        max_steps=steps,
                    )
                    solved.append(bool(is_lucky(out.tokens.numpy())[0]))
                    passes.append(int(out.stats.forward_passes[0]))
                assert max(passes) <= budget
                results.append((-np.mean(solved), np.mean(passes), -margin))
    return min(results)


@pytest.mark.parametrize("start", ["blank", "given"])
def test_the_choice_is_that_of_a_plain_search(sums, start):
    data, budgets = recipe(SUMS), (3, 5)
    result = tune(sums, data, budgets=budgets, rows=8, start=start)
    assert result == read_decoding(sums)
    assert [x.budget for x in result.chosen] == [3, 5]
    held_out = read_held_out(data, 8, start)
    for choice in result.chosen:
        best = choice.trial
        key = (-best.solved, best.mean_passes, -best.settings["margin"])
        by_hand = best_by_hand(small_model(), held_out, choice.budget, budgets, start)
        assert key == pytest.approx(by_hand)
    assert len({x.solved for x in result.grid}) > 1, "the settings must differ for this test"
    assert len(result.grid) == len(list(make_grid(budgets, start)))


def test_budgets_may_come_in_any_order(sums):
    result = tune(sums, recipe(SUMS), budgets=[5, 3, 5], rows=4)
    assert [x.budget for x in result.chosen] == [3, 5]
    assert result.chosen[0].trial.solved <= result.chosen[1].trial.solved


def test_ties_go_to_fewer_passes_then_to_the_margin_nearest_zero():
    def made(solved, passes, margin, max_steps=3):
        settings = {"margin": margin}
        return Trial(settings=settings, max_steps=max_steps, solved=solved, mean_passes=passes)

    worse, longer, eager = made(0.4, 1, 0.0), made(0.5, 3, 0.0), made(0.5, 2, -2.0)
    best, later = made(0.5, 2, -0.5), made(0.9, 2, 0.0, max_steps=7)
    trials = [worse, longer, eager, best, later]
    assert choose(trials, 4) == best
    assert choose(trials, 7) == best
    assert choose(trials, 8) == later


def test_blank_rows_are_never_revealed_at_once():
    for max_steps, settings in make_grid([3, 4, 12], "blank"):
        assert not RevisionPolicy(**settings).reveals_all(max_steps)
    assert not list(make_grid([2], "blank"))
    assert len(list(make_grid([2], "given"))) == 20


def test_the_same_request_writes_the_same_bytes_and_leaves_the_model(sums):
    before = fingerprint(sums)
    written = []
    for _ in range(2):
        tune(sums, recipe(SUMS), budgets=[4], rows=8)
        written.append((sums / DECODING).read_bytes())
        assert verify(sums)
    assert written[0] == written[1]
    assert fingerprint(sums) == before == read_decoding(sums).model
    other = tune(sums, recipe(SUMS, seed=1), budgets=[4], rows=8)
    assert other.seed == 1
    assert other.recipe != json.loads(written[0])["recipe"]
    assert [x.solved for x in other.grid] != [x["solved"] for x in json.loads(written[0])["grid"]]


def test_the_summary_shows_the_printed_rule_beside_the_choice(sums):
    result = tune(sums, recipe(SUMS), budgets=[3, 6], rows=8)
    (printed,) = [
        x for x in result.grid
        if x.max_steps == 5 and x.settings == {"margin": 0.0, "reveal_within": 0.5}
    ]  # fmt: skip
    first, second = describe(result)
    assert first.startswith("tune: 3 passes: margin ")
    assert first.endswith("printed rule: cannot write")
    assert second.endswith(f"printed rule: {printed.solved:.1%}")
    assert f"solved {result.chosen[1].trial.solved:.1%}" in second


def test_nothing_is_written_if_nothing_is_solved(boards, monkeypatch):
    monkeypatch.setattr(tune_module, "solved_rows", solved_rows)
    with pytest.raises(ValueError, match="no settings solved any of the 4 rows of sudoku"):
        tune(boards, recipe(BOARDS), budgets=[4], rows=4)
    assert not (boards / DECODING).exists()


def test_an_interrupt_leaves_the_old_settings(sums, monkeypatch):
    write_decoding(sums, tuned())

    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(tune_module, "run_trial", stop)
    with pytest.raises(KeyboardInterrupt):
        tune(sums, recipe(SUMS), budgets=[4], rows=4)
    assert read_decoding(sums) == tuned()
    assert verify(sums)


def test_tuning_sees_held_out_prompts_alone():
    held_out = read_held_out(recipe(SUMS | {"numbers": [3, 3]}), 40)
    suite = CountdownSuite(numbers=(3, 3))
    source, rng = CountdownSource(numbers=(3, 3)), np.random.default_rng(0)
    others = {suite.sample(i)[0] for i in range(200)}
    others |= {source.draw("train", rng)[0] for _ in range(400)}
    prompts = {"".join(ALPHABET[i] for i in row[:6]) for row in held_out.examples.target}
    assert len(prompts) > 10
    assert not prompts & others


def test_blank_rows_are_masked_and_given_rows_have_wrong_tokens():
    blank = read_held_out(recipe(SUMS), 10)
    masked = blank.starts == blank.examples.vocabulary.mask_id
    assert (masked == blank.examples.editable).all()
    given = read_held_out(recipe(BOARDS, proposal={"kind": "wrong_digit"}), 40, "given")
    again = read_held_out(recipe(BOARDS, proposal={"kind": "wrong_digit"}), 40, "given")
    assert (given.starts == again.starts).all()
    noisy = (given.starts != given.examples.target).sum(1)
    assert set(noisy) == {1, 2, 3, 4}
    assert ((given.starts != given.examples.target) & (given.starts != 0)).any()


def test_rows_are_gathered_from_sources_that_hold_out_few_records(tmp_path):
    every = SudokuSource(side=4, held_out_share=0.99).examples(
        "held_out", 0, 400, np.random.default_rng(0)
    )
    lines = ["".join(map(str, row)) for row in every.target]
    (tmp_path / "boards.txt").write_text("\n".join(lines))
    source = {"kind": "sudoku", "side": 4, "file": str(tmp_path / "boards.txt")}
    data = recipe(source)
    kept = [x for part in (slice(0, 256), slice(256, 400)) for x in lines[part]]
    expected = data.source.examples("held_out", 0, 400, np.random.default_rng(0)).target
    whole = read_held_out(data, 400)
    assert 40 < whole.num_rows < 120
    assert (whole.examples.target == expected).all()
    assert {"".join(map(str, row)) for row in whole.examples.target} <= set(kept)
    assert (read_held_out(data, 30).examples.target == expected[:30]).all()


def test_other_solutions_and_valid_boards_count():
    held_out = read_held_out(recipe(SUMS), 40)
    targets = held_out.examples.target
    prompts = [decode(row).partition(":")[0] + ":" for row in targets]
    others = [
        [row for row in _solutions(prompt, targets.shape[1]) if (row != target).any()]
        for prompt, target in zip(prompts, targets, strict=True)
    ]
    row = next(i for i, rows in enumerate(others) if rows)
    tokens = targets.copy()
    tokens[row] = others[row][0]
    assert solved_rows(held_out, tokens).all()
    tokens[row, -1] = tokens[row, len(prompts[row])]  # a digit after the end
    assert np.flatnonzero(~solved_rows(held_out, tokens)).tolist() == [row]

    held_out = read_held_out(recipe(BOARDS), 2)
    tokens = held_out.examples.target.copy()
    tokens[0] = tokens[0] % 4 + 1  # digits renamed: another valid board
    tokens[1, 0] = tokens[1, 0] % 4 + 1
    assert solved_rows(held_out, tokens).tolist() == [True, False]


def _solutions(prompt, length):
    return [encode(prompt + response, length) for response in solutions(prompt)]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"source": BOARDS | {"held_out": 0}}, "source sudoku has no held-out rows"),
        ({"budgets": []}, "budgets is empty"),
        ({"budgets": [1, 4]}, r"budgets must lie in \[2, 2\^15\], got 1"),
        ({"budgets": [2]}, "a budget of 2 passes reveals every MASK at once"),
        ({"rows": 0}, "rows must be at least 1"),
        ({"source": SUMS}, "has 5 ids with MASK 0, the source 17 with MASK 0"),
        (
            {"proposal": {"kind": "top_k", "backbone": "x"}, "start": "given"},
            "no tokens to start from",
        ),
    ],
)
def test_a_wrong_request_is_refused_before_anything_is_decoded(
    boards, monkeypatch, changes, message
):
    monkeypatch.setattr(tune_module, "run_trial", None)
    arguments = {
        name: changes.pop(name) for name in ("budgets", "rows", "start") if name in changes
    }
    data = recipe(changes.pop("source", BOARDS), **changes)
    with pytest.raises(ValueError, match=message):
        tune(boards, data, **arguments)


def test_folders_that_must_not_change_are_refused(boards, monkeypatch):
    with pytest.raises(ValueError, match="sudoku comes with the package; copy"):
        tune("sudoku", recipe({"kind": "sudoku"}))
    (boards.parent / "state.json").write_text("{}")
    with pytest.raises(ValueError, match="part of a checkpoint that training resumes from"):
        tune(boards, recipe(BOARDS))
    (boards.parent / "state.json").unlink()
    monkeypatch.setattr("os.access", lambda *_: False)  # root may write anywhere
    with pytest.raises(ValueError, match="is read-only; copy it elsewhere"):
        tune(boards, recipe(BOARDS))


def test_the_command_says_what_was_chosen(sums, tmp_path, capsys):
    rollout = {"output": "x", "source": SUMS, "checkpoint": "nothing-is-there"}
    (tmp_path / "r.yaml").write_text(json.dumps(rollout))
    asked = [str(sums), str(tmp_path / "r.yaml"), "--budgets", "4", "6", "--rows", "6"]
    main([*asked, "--dry-run"])
    planned = capsys.readouterr().out
    assert planned.startswith("tune: 28 settings for budgets [4, 6] on 6 held-out rows")
    assert not (sums / DECODING).exists()
    main(asked)
    lines = capsys.readouterr().out.splitlines()
    assert [x.partition(" passes")[0] for x in lines[:2]] == ["tune: 4", "tune: 6"]
    assert lines[2].startswith("tune: 28 settings on 6 held-out rows of countdown, start blank in ")
    assert lines[2].endswith(str(sums / DECODING))


def test_the_command_exits_with_2_for_a_wrong_request_and_1_for_a_failed_write(
    sums, tmp_path, capsys, monkeypatch
):
    with pytest.raises(SystemExit, match="2"):
        main([str(tmp_path / "none"), "sums"])
    assert "there is no checkpoint folder" in capsys.readouterr().err

    def refuse(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tune_module, "write_decoding", refuse)
    asked = ["--budgets", "4", "--rows", "4", "source.numbers=[2, 3]"]
    with pytest.raises(SystemExit, match="1"):
        main([str(sums), "countdown", *asked[-1:], *asked[:-1]])
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.endswith("decoding.json: No space left on device")


def test_rollout_recipes_are_told_from_build_recipes():
    assert isinstance(tune_module.load_data_recipe("sums", []), BuildRecipe)
    rollout = tune_module.load_data_recipe("sums_rollout", ["seed=5"])
    assert rollout == load_recipe(RolloutRecipe, "sums_rollout", ["seed=5"])


# Who uses the settings.


def evaluation(checkpoint, output, **decoders):
    values = {
        "output": str(output),
        "suites": {"boards": {"kind": "sudoku", "side": 4, "boards": 6, "wrong": [1, 4]}},
        "checkpoints": {"model": str(checkpoint)},
        "decoders": decoders,
        "run": {"workers": 0},
    }
    return from_mapping(EvalRecipe, values, "recipe")


def predictions(folder):
    return {p.relative_to(folder): p.read_bytes() for p in folder.rglob("*.parquet")}


def test_tuned_is_the_same_as_the_settings_written_out(boards, tmp_path):
    write_decoding(boards, tuned())  # 8 passes: 5 steps, margin -1, reveal_within 0.5
    written_out = {"max_steps": 5, "settings": {"margin": -1.0, "reveal_within": 0.5}}
    run(evaluation(boards, tmp_path / "tuned", rm={"policy": "tuned", "max_steps": 9}))
    run(evaluation(boards, tmp_path / "plain", rm=written_out))
    own, plain = (predictions(tmp_path / x / "predictions") for x in ("tuned", "plain"))
    assert own
    assert own == plain
    facts = json.loads((tmp_path / "tuned" / "evaluation.json").read_text())["runs"][0]
    assert facts["settings"]["policy"] == "revision"
    assert facts["settings"]["settings"] == written_out["settings"]
    assert facts["settings"]["max_steps"] == 5


def test_tuning_again_decodes_again(boards, tmp_path):
    asked = evaluation(boards, tmp_path / "eval", rm={"policy": "tuned", "max_steps": 9})
    write_decoding(boards, tuned())
    assert run(asked).new_units == 1
    assert run(asked).new_units == 0
    chosen = (Choice(budget=8, trial=trial(5, -2.0, reveal_within=0.5)),)
    write_decoding(boards, tuned(chosen=chosen))
    assert run(asked).new_units == 1
    write_decoding(boards, tuned(chosen=chosen, rows=99))  # the same settings
    assert run(asked).new_units == 0


def test_an_untuned_checkpoint_is_decoded_by_the_printed_rule(boards, tmp_path):
    both = evaluation(
        boards, tmp_path, tuned={"policy": "tuned", "max_steps": 9}, printed={"max_steps": 9}
    )
    first, second = make_runs(both)
    assert first.decoder == second.decoder
    write_decoding(boards, tuned())
    small = evaluation(boards, tmp_path, tuned={"policy": "tuned", "max_steps": 2})
    assert make_runs(small)[0].decoder == Decoder(max_steps=2)  # all budgets are larger


def test_a_damaged_file_stops_only_those_who_ask_for_it(boards, tmp_path):
    (boards / DECODING).write_text("{}")
    make_runs(evaluation(boards, tmp_path, rm={}))
    with pytest.raises(ValueError, match=r"decoders: rm: .*decoding\.json: .*missing keys"):
        make_runs(evaluation(boards, tmp_path, rm={"policy": "tuned"}))


def test_rows_of_masks_get_a_pace_where_nothing_was_tuned():
    suite = CountdownSuite(prompts=2, numbers=(3, 3))
    untuned = resolve(Decoder(policy="tuned", max_steps=7), None, suite.adapt)
    assert untuned == Decoder(max_steps=7, settings={"reveal_within": 0.5})
    whole = resolve(Decoder(policy="tuned"), None, suite.adapt)
    assert whole.max_steps == 31
    own = {"margin": -4.0, "patience": 2}
    chosen = resolve(Decoder(policy="tuned", settings=own), tuned(), suite.adapt)
    assert chosen == Decoder(max_steps=5, settings={"reveal_within": 0.5, **own})
    limit = resolve(Decoder(policy="tuned"), tuned(), lambda x: fit_to_masks(x, 8))
    assert limit.max_steps == 5
    with pytest.raises(ValueError, match="reveals every MASK at once"):  # 4 passes: revises alone
        resolve(Decoder(policy="tuned", max_steps=3), tuned(), suite.adapt)


def test_other_policies_are_left_alone():
    decoder = Decoder(policy="absorbing", max_steps=3)
    assert resolve(decoder, tuned()) == decoder
    with pytest.raises(ValueError, match="policy must be one of .*'tuned'"):
        Decoder(policy="turned")
