"""The image suite: a tiny model and tokeniser, and decodes made by hand."""

import base64
import dataclasses
import io
import json
import math

import numpy as np
import pyarrow as pa
import pytest
import torch
from PIL import Image

from remask.evaluation.decode.canvas import canvas_cells
from remask.evaluation.decode.paths import Paths, arrays
from remask.evaluation.decoder import Decoder
from remask.evaluation.evaluate import run
from remask.evaluation.recipe import EvalRecipe
from remask.evaluation.registry import make_suite
from remask.evaluation.suite import left_out
from remask.evaluation.suites.image_edit import CODES, ImageEditSuite
from remask.models import (
    Guidance,
    HistoryConfig,
    LuminaConfig,
    LuminaMDM,
    SudokuConfig,
    SudokuMDM,
    TwoPhase,
    revise,
    save,
)
from remask.models.config import from_mapping
from remask.pipeline.edits import FilePairs, ShapePairs
from remask.pipeline.edits.text import WordText
from remask.pipeline.sources.image_edit import ImageEditSource
from tests.evaluation.folders import explained
from tests.pipeline.pictures import write_plain, write_tokenizer


@pytest.fixture(scope="module")
def edits(tmp_path_factory):
    """Shapes on a canvas of 2 × 2 cells of 16 pixels: a cell holds a thing."""
    pairs = ShapePairs(train=4, held_out=12)
    pictures = [
        getattr(pairs.pair("held_out", i), x) for i in range(12) for x in ("source", "target")
    ]
    folder = tmp_path_factory.mktemp("vq") / "tokenizer"
    return ImageEditSource(pairs=pairs, tokenizer=write_tokenizer(folder, pictures, 16, 100))


@pytest.fixture(scope="module")
def suite(edits):
    return ImageEditSuite(edits=edits)


@pytest.fixture(scope="module")
def model(edits):
    torch.manual_seed(0)
    vocabulary = edits.vocabulary()
    config = LuminaConfig(
        d_model=16,
        n_layers=1,
        n_heads=2,
        n_kv_heads=2,
        mlp_hidden_size=16,
        vocab_size=vocabulary.size,
        mask_token_id=vocabulary.mask_id,
        max_sequence_length=64,
        layout=edits.layout,
    )
    return LuminaMDM(config, HistoryConfig(decay=0.5)).eval()


def replayed(suite, table, path):
    """The predictions with each sample decoded through path(source, target), measured anew."""
    revisions = []
    for row in range(len(table)):
        source, target = (
            np.frombuffer(table[name][row].as_py(), CODES).astype(np.int64)
            for name in ("start", "solution")
        )
        revisions.append(np.stack(path(source, target)))
    pairs = [suite.edits.pairs.pair("held_out", i) for i in range(suite.num_samples)]
    codes = [
        [torch.from_numpy(x.astype(np.int64) - 1).view(2, 2) for x in arrays(table[n], CODES)]
        for n in ("start", "solution")
    ]
    final = [torch.from_numpy(r[-1]).view(2, 2) - 1 for r in revisions]
    compared = suite._compared(pairs, tuple(codes))
    measures = suite._measure(pairs, suite.edits.decode(final), compared)
    columns = {
        "states": [r.astype(CODES).tobytes() for r in revisions],
        "edit_mask": [
            ((r[1:] == 0) & (r[:-1] != 0)).any(0).astype(np.uint8).tobytes() for r in revisions
        ],
        **{name: [getattr(m, name) for m in measures] for name in vars(measures[0])},
    }
    for name, values in columns.items():
        table = table.set_column(table.schema.get_field_index(name), name, pa.array(values))
    return table


@pytest.fixture(scope="module")
def table(suite, model):
    return suite.predict(model, range(12), Decoder(max_steps=3))


def figures(suite, table):
    return {s.metric: s for s in explained(suite, suite.score(table)) if s.by is None}


def test_predictions_hold_the_path_of_every_sample(suite, table):
    paths = Paths.read(table, CODES)
    assert paths.start.shape == (12, 4)
    assert (paths.states[0] == paths.start).all(), "a reviser starts from the source picture"
    assert (paths.final > 0).all()
    assert table["number"].to_pylist() == list(range(12))
    remasked = paths.remasks().any(0)
    stored = np.stack([np.frombuffer(x.as_py(), np.uint8) for x in table["edit_mask"]])
    assert np.array_equal(stored > 0, remasked)


def test_predictions_do_not_depend_on_the_chunks(suite, model, table):
    decoder = Decoder(max_steps=3, batch_size=5)
    parts = [suite.predict(model, samples, decoder) for samples in (range(7), range(7, 12))]
    assert pa.concat_tables(parts).equals(table)


def test_other_models_start_from_a_blank_canvas_with_the_source_in_the_prompt(suite, model):
    decoder = Decoder(policy="absorbing", start="blank", max_steps=2)
    paths = Paths.read(suite.predict(model, range(4), decoder), CODES)
    assert (paths.states[0] == 0).all()
    assert (paths.start > 0).all()
    assert paths.forward_passes.tolist() == [2] * 4
    oracle = Paths.read(
        suite.predict(model, range(4), Decoder(policy="absorbing", start="oracle", max_steps=2)),
        CODES,
    )
    assert np.array_equal(oracle.states[0] == 0, oracle.start != oracle.solution)


def test_guidance_and_the_two_phases_are_decoders_too(suite, model):
    guided = Decoder(max_steps=2, guidance=Guidance(text=2.0, image=1.0))
    passes = Paths.read(suite.predict(model, range(4), guided), CODES).forward_passes
    plain = Paths.read(suite.predict(model, range(4), Decoder(max_steps=2)), CODES).forward_passes
    assert (passes % 3 == 0).all()
    assert (plain <= 3).all()
    released = from_mapping(Decoder, {"preset": "released"}, "decoder")
    assert released.make_policy() == TwoPhase(mask_steps=8, fill_steps=8, threshold=0.9)
    assert released.guidance == Guidance(text=4.0, image=0.0, at="masked")
    assert released.steps == 16
    values = {"preset": "released", "guidance": {"image": 1.0}}
    some = from_mapping(Decoder, values, "decoder")
    assert some.guidance == Guidance(text=4.0, image=1.0, at="masked"), "the rest is the preset's"
    paths = Paths.read(suite.predict(model, range(4), released), CODES)
    assert (paths.final > 0).all()


def test_perfect_edits_have_perfect_scores(suite, table):
    def perfect(source, target):
        return source, np.where(source == target, source, 0), target

    out = figures(suite, replayed(suite, table, perfect))
    for name in ("precision", "coverage", "success", "agreement", "exact"):
        assert out[name].value == 1, name
    assert out["outside_mae"].value == 0
    assert out["outside_psnr"].value == 60
    assert out["outside_ssim"].value == pytest.approx(1)
    assert (out["mask_precision"].value, out["mask_recall"].value) == (1, 1)
    assert (out["fixed"].value, out["broken"].value) == (1, 0)
    assert out["remasked"].value == out["revealed"].value == 1
    kinds = {name for name in out if name.startswith("success_")}
    assert kinds == {f"success_{x}" for x in ("add", "recolour", "remove", "replace")}


def test_the_ideal_is_what_the_target_leaves_of_the_rest(edits, model):
    drawn = dataclasses.replace(edits.pairs, side=64)
    suite = ImageEditSuite(edits=dataclasses.replace(edits, pairs=drawn), samples=4)
    table = suite.predict(model, range(4), Decoder(max_steps=1))
    pairs = [drawn.pair("held_out", i) for i in range(4)]
    before = edits.decode(edits.encode([pair.source for pair in pairs]))
    after = edits.decode(edits.encode([pair.target for pair in pairs]))
    expected = []
    for pair, x, y in zip(pairs, before, after, strict=True):
        stays = np.abs(pair.source.astype(float) - pair.target).max(-1) <= 0.1 * 255
        expected.append(np.abs(x.astype(float) - y)[stays].mean())
    assert table["ideal_outside_mae"].to_pylist() == pytest.approx(expected)
    assert max(expected) > 0, "a cell is larger than the thing in it"
    assert figures(suite, table)["ideal_outside_mae"].value == pytest.approx(np.mean(expected))


def test_a_no_op_decode_keeps_everything_and_never_succeeds(suite, table):
    out = figures(suite, replayed(suite, table, lambda source, target: (source, source)))
    assert math.isnan(out["precision"].value), "nothing was changed"
    assert (out["coverage"].value, out["success"].value, out["agreement"].value) == (0, 0, 0)
    assert out["outside_psnr"].value == 60
    assert (out["fixed"].value, out["broken"].value) == (0, 0)
    assert math.isnan(out["mask_precision"].value)
    assert out["mask_recall"].value == 0


def test_repainting_everything_is_distinguished_from_editing(suite, table):
    def repaint(source, target):
        return source, source * 0, np.roll(target, 1)

    out = figures(suite, replayed(suite, table, repaint))
    assert out["mask_recall"].value == 1
    assert out["mask_precision"].value == 0.25
    assert out["precision"].value < 0.6
    assert out["outside_psnr"].value < 40
    assert out["broken"].value > 0.5


def test_curves_follow_the_steps(suite, table):
    def slow(source, target):
        return source, np.where(source == target, source, 0), target

    scores = suite.score(replayed(suite, table, slow))
    curve = {s.at: s.value for s in scores if (s.metric, s.by) == ("edited_cells", "steps")}
    assert curve == {0: 0, 1: 0, 2: 1}
    kept = {s.at: s.value for s in scores if (s.metric, s.by) == ("kept_cells", "steps")}
    assert kept == {0: 1, 1: 1, 2: 1}


def test_no_op_edits_succeed_if_nothing_changes(edits, model):
    pairs = dataclasses.replace(edits.pairs, edits=("no_op",))
    suite = ImageEditSuite(edits=dataclasses.replace(edits, pairs=pairs), samples=5)
    table = suite.predict(model, range(5), Decoder(max_steps=1))
    out = figures(suite, replayed(suite, table, lambda source, target: (source, source)))
    assert out["success"].value == 1
    assert math.isnan(out["coverage"].value)


def test_the_showcase_has_pictures_of_the_right_size(suite, table):
    shown = suite.showcase(table)
    assert [s["sample_id"] for s in shown] == table["sample_id"].to_pylist()[:6]
    first = shown[0]
    assert (first["rows"], first["columns"]) == (2, 2)
    assert len(first["steps"]) == len(first["states"])
    assert set(first["pictures"]) == {"source", "target", "edit", "mask", "difference"}
    assert Image.open(io.BytesIO(base64.b64decode(first["pictures"]["mask"]))).size == (192, 192)
    plain = [text for name, text in first["pictures"].items() if name != "mask"]
    for text in (*plain, *first["steps"]):
        assert Image.open(io.BytesIO(base64.b64decode(text))).size == (32, 32)
    source = np.array(Image.open(io.BytesIO(base64.b64decode(first["pictures"]["source"]))))
    assert np.array_equal(source, suite.edits.pairs.pair("held_out", 0).source)


def test_unreadable_samples_are_counted_and_named(edits, model, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    folder = write_plain(tmp_path / "plain")
    (folder / "2-target.png").write_bytes(b"")
    pairs = FilePairs(data=str(folder), height=32, width=32, held_out_share=1.0)
    suite = ImageEditSuite(edits=ImageEditSource(pairs=pairs, tokenizer=edits.tokenizer))
    table = suite.predict(model, range(6), Decoder(max_steps=1))
    assert len(table) == 5
    out = figures(suite, table)
    assert out["left_out"].value == 1
    assert out["success"].count == 5
    (reason,) = left_out(table)
    assert "2-target.png" in reason
    save(model, tmp_path / "model")
    values = {"kind": "image_edit", "edits": dataclasses.asdict(suite.edits)}
    recipe = {
        "output": str(tmp_path / "eval"),
        "suites": {"edits": values},
        "checkpoints": {"m": str(tmp_path / "model")},
        "decoders": {"rm": {"max_steps": 1}},
        "samples_per_chunk": 2,
        "run": {"workers": 0},
    }
    run(from_mapping(EvalRecipe, recipe, "recipe"))
    evaluation = json.loads((tmp_path / "eval" / "evaluation.json").read_text())
    assert evaluation["runs"][0]["left_out"] == [reason]
    assert "edits, m, rm: 1 of 6 samples left out" in capsys.readouterr().err
    (folder / "0-source.png").unlink()
    none = suite.predict(model, range(1), Decoder())  # not fatal: other chunks have some
    assert (len(none), none.schema) == (0, table.schema)
    with pytest.raises(
        ValueError, match="none of the 6 held-out pairs can be used; the first: .*0-so"
    ):
        suite.score(none)


def test_no_op_edits_by_their_tokens_are_skipped_as_in_training(edits, model, tmp_path):
    coarse = write_tokenizer(tmp_path / "vq", [np.zeros((32, 32, 3), np.uint8)], 16, 100)
    same = dataclasses.replace(edits, tokenizer=coarse, equal="skip")
    table = ImageEditSuite(edits=same).predict(model, range(12), Decoder(max_steps=1))
    source = same.examples("held_out", 0, 12, np.random.default_rng(0))
    assert left_out(table) == source.left_out
    assert table["sample_id"].to_pylist() == list(source.example_ids)
    assert source.num_skipped > 0


@pytest.mark.parametrize("start", ["given", "blank", "oracle"])
def test_pictures_of_many_shapes_are_decoded_as_each_alone(
    edits, model, start, tmp_path, monkeypatch
):
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    folder = write_plain(tmp_path / "plain", [(32, 32), (32, 200), (32, 40), (96, 32)])
    pairs = FilePairs(
        data=str(folder), height=32, width=32, shape="own", step=16, held_out_share=1.0
    )
    source = ImageEditSource(pairs=pairs, tokenizer=edits.tokenizer)
    suite = ImageEditSuite(edits=source)
    decoder = Decoder(
        start=start, policy="revision" if start == "given" else "two_phase", max_steps=4
    )
    together = suite.predict(model, range(4), decoder)
    alone = pa.concat_tables([suite.predict(model, range(i, i + 1), decoder) for i in range(4)])
    assert together.equals(alone)
    paths = Paths.read(together, CODES)
    assert paths.lengths.tolist() == [4, 4, 4, 3]
    assert (paths.final[paths.is_own] > 0).all()
    shown = suite.showcase(together)
    assert [(x["rows"], x["columns"]) for x in shown] == [(2, 2), (1, 4), (2, 2), (3, 1)]
    for i, sample in enumerate(shown):
        codes = source.encode([pairs.pair("held_out", i).target])[0].flatten() + 1
        assert sample["solution"] == codes.tolist()
        assert {len(state) for state in sample["states"]} == {len(codes)}
    (kept,) = (x for x in suite.score(together) if x.metric == "kept_cells" and x.at == 0)
    assert kept.count == (paths.start == paths.solution)[paths.is_own].sum(), "no others count"
    assert kept.value == (0.0 if start == "blank" else 1.0)


def test_rows_longer_than_the_model_are_counted(edits, model, monkeypatch):
    pairs = [edits.pairs.pair("held_out", number) for number in range(8)]
    for start, source_in in (("given", "canvas"), ("blank", "prompt")):
        placed = dataclasses.replace(edits, source_in=source_in)
        lengths = [len(placed.examples("held_out", i, 1, None).target[0]) for i in range(8)]
        assert lengths == [placed.row_length(pair) for pair in pairs]
        most = min(lengths)
        short = lengths.count(most)
        assert short < 8
        suite = ImageEditSuite(edits=edits, samples=8)
        with monkeypatch.context() as patch:
            patch.setattr(model, "max_length", most)
            table = suite.predict(model, range(8), Decoder(start=start, max_steps=1))
            assert figures(suite, table)["left_out"].value == 8 - short
            patch.setattr(model, "max_length", most - 1)
            none = suite.predict(model, range(8), Decoder(start=start))
            assert len(none) == 0
            assert f"a row of {most} tokens exceeds the limit of {most - 1}" in "".join(
                left_out(none)
            )


def test_settings_are_read_and_checked(edits, model, suite):
    values = {
        "kind": "image_edit",
        "edits": {
            "kind": "image_edit",
            "pairs": {"kind": "shapes", "held_out": 12},
            "tokenizer": edits.tokenizer,
        },
        "samples": 3,
    }
    made = make_suite(values, "suites: x")
    assert made.num_samples == 3
    made.check(model)
    with pytest.raises(ValueError, match="there are 12 held-out pairs, 13 are asked for"):
        print(make_suite(values | {"samples": 13}, "x").num_samples)
    with pytest.raises(ValueError, match=r"threshold must lie in \(0, 1\], got 0"):
        make_suite(values | {"threshold": 0.0}, "x")
    with pytest.raises(ValueError, match="need a model of image edits, got sudoku"):
        suite.check(SudokuMDM(SudokuConfig(side=4)))


def test_a_model_may_know_more_of_its_template(edits, model, monkeypatch):
    """A published one knows where in its template the instruction is; data need not."""
    knows = dataclasses.replace(model.layout, text_begin_id=9, text_end_id=10)
    monkeypatch.setattr(model, "layout", knows)
    ImageEditSuite(edits=edits).check(model)
    other = dataclasses.replace(knows, unconditional_id=0)
    monkeypatch.setattr(model, "layout", other)
    with pytest.raises(ValueError, match="the ids of the model and of the edits differ"):
        ImageEditSuite(edits=edits).check(model)


def test_a_long_decode_is_shown_in_some_of_its_states(suite, table):
    def path(source, target):
        return [source, *[source * 0] * 29, target]

    long = replayed(suite, table, path)
    first = suite.showcase(long)[0]
    assert len(first["states"]) == len(first["steps"]) == 17
    source, target = (np.frombuffer(table[x][0].as_py(), CODES) for x in ("start", "solution"))
    assert first["states"][0] == source.tolist()
    assert first["states"][-1] == target.tolist()


def test_what_counts_as_outside_is_a_setting(edits, suite, table):
    """Pixels of an edited cell that need not change: inside by cells, outside by pixels."""
    by_cell = ImageEditSuite(edits=edits, zone="cells")
    by_zone = {}
    for name, zoned in (("pixels", suite), ("cells", by_cell)):
        moved = replayed(zoned, table, lambda source, target: [source, source * 0, target])
        by_zone[name] = figures(zoned, moved)
    assert by_zone["cells"]["precision"].value == 1.0
    assert by_zone["cells"]["outside_mae"].value == 0.0
    assert by_zone["pixels"]["coverage"].value == by_zone["cells"]["coverage"].value == 1.0
    full = {
        name: figures(zoned, replayed(zoned, table, lambda s, t: [s, s * 0, t[::-1]]))["precision"]
        for name, zoned in (("pixels", suite), ("cells", by_cell))
    }
    assert full["pixels"].value < full["cells"].value < 1.0


def test_another_models_ids_are_refused(edits, model):
    other = dataclasses.replace(edits, text=WordText(size=300))
    with pytest.raises(ValueError, match="the ids of the model and of the edits differ"):
        ImageEditSuite(edits=other).check(model)
    tokens = torch.tensor([[7, edits.layout.image.code_offset]])
    editable = torch.ones_like(tokens, dtype=torch.bool)
    revision = revise(model, tokens, editable, max_steps=1)
    bad = dataclasses.replace(revision, trajectory=tokens[None])
    with pytest.raises(ValueError, match="the model revealed id 7, which is not a code"):
        canvas_cells(bad, editable, model.mask_id, edits.layout.image)


def test_the_folder_of_predictions_follows_contents_not_paths(suite, edits):
    same = ImageEditSuite(edits=dataclasses.replace(edits, source_in="prompt"))
    assert same.identity() == suite.identity(), "the decoder says where the source lies"
    assert ImageEditSuite(edits=edits, threshold=0.2).identity() != suite.identity()
    assert edits.tokenizer not in repr(suite.identity())
