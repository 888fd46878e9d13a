"""Image edits in the report: the pictures themselves, and the page in a real browser."""

import base64
import io
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from remask.evaluation.report.make import write_report
from remask.evaluation.report.sheet import LINE, PAD, TILE
from remask.evaluation.suites.image_edit_showcase import (
    GREY,
    MAX_SIDE,
    draw_edit,
    heat,
    to_text,
    with_grey,
    with_stripes,
)
from remask.infra.cli import main
from remask.pipeline.edits import ShapePairs
from tests.evaluation.folders import entry, frame, make_folder, sample, score
from tests.evaluation.report.test_report import (
    HOSTILE,
    Elements,
    open_report,  # noqa: F401
    refused,
    status,
)

PAIR = ShapePairs().pair("held_out", 0)
# A grid of 2 × 2: two cells to change, one re-masked by mistake and revealed as it was.
STATES = [[1, 2, 3, 4], [0, 2, 0, 4], [5, 0, 3, 4], [5, 6, 3, 4]]
SOLUTION = [5, 6, 3, 4]


def edit_sample(sample_id="shapes-1", states=STATES, **changes):
    masked = np.array(states).reshape(-1, 2, 2) == 0
    drawn = draw_edit(
        PAIR, steps=[PAIR.source] * (len(states) - 1) + [PAIR.target], is_masked=masked,
        remasked=((~masked[:-1]) & masked[1:]).any(0), source=PAIR.source,
    )  # fmt: skip
    values = {
        "sample_id": sample_id,
        "instruction": "remove the <red> circle",
        "note": "remove it; 100% as the target",
        "solution": SOLUTION,
        "states": states,
    }
    return values | drawn | changes


def edit_entry(checkpoint="rm", samples=None):
    shown = [edit_sample()] if samples is None else samples
    return entry(checkpoint, shown, suite="edits", kind="image_edit")


def to_array(text):
    return np.array(Image.open(io.BytesIO(base64.b64decode(text))).convert("RGB"))


def test_heat_is_white_where_nothing_changed_and_darkens_with_the_distance():
    source = np.zeros((1, 4, 3), np.uint8)
    edit = np.array([[[0, 0, 0], [64, 0, 0], [0, 128, 0], [255, 0, 9]]], np.uint8)
    shades = heat(edit, source)[0].astype(int)
    assert shades[0].tolist() == [255, 255, 255]
    assert shades[3].tolist() == [0, 0, 0]
    assert (np.diff(shades.sum(-1)) < 0).all()


def test_masked_and_remasked_cells_are_marked():
    cells = np.array([[True, False], [False, False]])
    grey = with_grey(PAIR.source, cells)
    assert (grey[:16, :16] == GREY).all()
    assert np.array_equal(grey[:, 16:], PAIR.source[:, 16:])
    striped = with_stripes(PAIR.source, cells)
    dark = (striped == 40).all(-1)
    assert dark.shape == (192, 192)
    assert 0.3 < dark[:96, :96].mean() < 0.7
    assert not dark[:, 96:].any()


def test_a_sheet_has_source_target_and_what_each_run_made(tmp_path):
    filled = edit_sample(states=[[0, 0, 0, 0], SOLUTION])
    folder = make_folder(tmp_path, showcase=[edit_entry("sft", [filled]), edit_entry("rm")])
    main(["report", str(folder), "--sheet", str(tmp_path / "sheet.png")])
    sheet = np.array(Image.open(tmp_path / "sheet.png"))
    columns = ("source", "target", "sft's edit", "rm's edit", "rm's re-masked cells")
    assert sheet.shape == (2 * LINE + TILE, len(columns) * TILE, 3)
    tiles = sheet[2 * LINE : 2 * LINE + TILE - 2 * PAD].reshape(-1, len(columns), TILE, 3)
    side = TILE - 2 * PAD
    for number, picture in ((0, PAIR.source), (1, PAIR.target), (2, PAIR.target), (3, PAIR.target)):
        large = Image.fromarray(picture).resize((side, side), Image.Resampling.NEAREST)
        assert np.array_equal(tiles[:, number, PAD:-PAD], np.array(large))
    assert not np.array_equal(tiles[:, 4], tiles[:, 0])


def test_a_sheet_leaves_a_gap_where_a_run_lacks_the_sample(tmp_path):
    other = edit_sample("shapes-2")
    showcase = [edit_entry("sft", [other]), edit_entry("rm", [edit_sample(), other])]
    folder = make_folder(tmp_path, showcase=showcase)
    main(["report", str(folder), "--sheet", str(tmp_path / "sheet.png")])
    sheet = np.array(Image.open(tmp_path / "sheet.png"))
    tops = [2 * LINE + row * (TILE + LINE) for row in range(2)]
    tiles = [sheet[top : top + TILE - 2 * PAD].reshape(-1, 6, TILE, 3) for top in tops]
    blank = [[bool((row[:, i] == 255).all()) for i in range(6)] for row in tiles]
    assert blank == [[False] * 6, [False, False, True, True, False, False]]


def test_a_sheet_needs_pictures(tmp_path, capsys):
    folder = make_folder(tmp_path)
    with pytest.raises(SystemExit, match="2"):
        main(["report", str(folder), "--sheet", str(tmp_path / "sheet.png")])
    assert "has no edited pictures to show" in capsys.readouterr().err


def test_pictures_are_small():
    assert to_array(to_text(np.zeros((512, 256, 3), np.uint8))).shape == (MAX_SIDE, 96, 3)
    noise = np.random.default_rng(0).integers(0, 256, (MAX_SIDE,) * 2 + (3,), np.uint8)
    larger = noise.repeat(2, 0).repeat(2, 1)
    assert len(to_text(larger)) < len(to_text(noise)) / 2, "by a palette"
    few = PAIR.source.repeat(12, 0).repeat(12, 1)
    assert np.array_equal(to_array(to_text(few)), PAIR.source.repeat(6, 0).repeat(6, 1))
    assert np.array_equal(to_array(to_text(PAIR.source)), PAIR.source)


def test_the_mask_shows_what_was_remasked_at_any_step():
    drawn = edit_sample()["pictures"]
    expected = with_stripes(PAIR.source, np.array([[True, True], [True, False]]))
    assert np.array_equal(to_array(drawn["mask"]), expected)


def test_runs_of_one_sample_stand_side_by_side(tmp_path):
    other = edit_sample("shapes-2")
    showcase = [edit_entry("rm", [edit_sample(), other]), edit_entry("sft"), entry()]
    page = Path(write_report([make_folder(tmp_path, showcase=showcase)])).read_text()
    assert page.count('<article class="edit">') == 2
    assert page.count("remove the &lt;red&gt; circle <small>shapes-1") == 1
    first = page.split('<article class="edit">')[1]
    assert '<th scope="row">rm, rm</th>' in first
    assert '<th scope="row">sft, rm</th>' in first
    assert first.count("<img ") == 10


@pytest.mark.parametrize(
    "change",
    [
        {"states": [[1, 2, 3]]},
        {"rows": 3},
        {"columns": "2"},
        {"steps": []},
        {"solution": [-1, 2, 3, 4]},
        {"pictures": {}},
        {"steps": [base64.b64encode(b"<svg onload=alert(1)>").decode()] * 4},
        {"steps": ['"><script>alert(1)</script>'] * 4},
    ],
)
def test_a_malformed_edit_is_refused(tmp_path, capsys, change):
    showcase = [edit_entry(samples=[edit_sample() | change])]
    with pytest.raises(SystemExit, match="2"):
        main(["report", make_folder(tmp_path, showcase=showcase)])
    assert "showcase.json is damaged" in capsys.readouterr().err


def hostile_answer(text):
    names = ("sample_id", "prompt", "response", "answer", "verdict", "note", "expected")
    return dict.fromkeys(names, text) | {"symbols": ["·", text, text, text, text, text]}


def hostile_folder(path, text):
    """An evaluation with the text in every field that a recipe, a checkpoint or a sample names."""
    names = {"suite": text, "checkpoint": text, "decoder": text, "metric": text}
    scores = frame(
        score(**names),
        score(**names | {"by": text, "at": 1.0}),
        score(**names | {"by": text, "at": 2.0}),
    )
    row = {"label": text, "checkpoint": text, "decoder": text, "quoted": [93.4]}
    table = {"title": text, "note": text, "suite": text, "metrics": [text], "rows": [row]}
    runs = {"suite": text, "decoder": text}
    showcase = [
        entry(text, [sample(text, note=text)], **runs),
        entry(text, [edit_sample(text, instruction=text, note=text)], kind="image_edit", **runs),
        entry(text, [TEXT | {"sample_id": text, "note": text}], kind="countdown", **runs),
        entry(text, [QUESTION | hostile_answer(text)], kind="math", **runs),
        entry(text, kind=text, **runs),
    ]
    make_folder(path, scores, showcase, [table], text)
    file = path / "evaluation.json"
    facts = json.loads(file.read_text())
    facts["runs"] = [dict.fromkeys(facts["runs"][0], text) | {"settings": {text: text}}]
    facts["provenance"] = {text: text, "commit": text, "versions": {f"{text} of torch": text}}
    facts["recipe"] |= {"checkpoints": {text: text}, "title": text}
    file.write_text(json.dumps(facts))
    return str(path)


def test_no_field_of_an_evaluation_becomes_markup(tmp_path):
    pages = []
    for name, text in (("plain", "plain"), ("hostile", HOSTILE)):
        page = Path(write_report([hostile_folder(tmp_path / name, text)])).read_text()
        pages.append(page)
    plain, hostile = ([(tag, list(a)) for tag, a in Elements(page).elements] for page in pages)
    assert hostile == plain
    assert HOSTILE not in pages[1]
    texts = [value for _, a in Elements(pages[1]).elements for value in a.values()]
    assert f"the edit: {HOSTILE}" in texts
    data = pages[1].partition('id="showcase">')[2].partition("</script>")[0]
    assert [run["name"] for run in json.loads(data)] == [HOSTILE] * 4


def test_the_gallery_and_the_player_work_in_a_browser(open_report):  # noqa: F811
    page = open_report(folder={"showcase": [edit_entry(), edit_entry("sft")]})
    images = page.locator("#samples img")
    assert images.count() == 10
    widths = images.evaluate_all("all => all.map(image => image.naturalWidth)")
    assert set(widths) == {32, 192}
    assert "remove the <red> circle" in page.inner_text("#samples h4")
    assert status(page) == "step 0 of 3: 2 wrong at the start"
    board = page.locator("#board table")
    before = board.evaluate("table => table.style.backgroundImage")
    page.click("#next")
    assert board.evaluate("table => table.style.backgroundImage") != before
    assert status(page) == "step 1 of 3: 2 re-masked, 0 revealed, 1 wrong left, 2 masked"

    def cell(i):
        located = page.locator("#board td").nth(i)
        return located.get_attribute("aria-label"), located.inner_text().split()

    assert cell(0) == ("row 1 column 1: masked, just re-masked, was 0", ["·", "−"])
    assert cell(1) == ("row 1 column 2: code 1, wrong", ["×"])
    assert cell(3) == ("row 2 column 2: code 3", [])
    page.click("#next")
    assert cell(0) == ("row 1 column 1: code 4, just revealed", ["+"])
    assert cell(2) == ("row 2 column 1: code 2, just revealed", ["+"])
    page.click("#last")
    assert status(page) == "step 3 of 3: 0 re-masked, 1 revealed, 0 wrong left, as the target"
    size = page.locator("#board td").nth(0).bounding_box()
    assert size["width"] == pytest.approx(size["height"], abs=3)


def test_boards_and_edits_share_one_player(open_report):  # noqa: F811
    page = open_report(folder={"showcase": [edit_entry(), entry()]})
    page.select_option("#run", label="her")
    assert page.locator("#board td").count() == 16
    assert page.locator("#board table.picture").count() == 0
    page.select_option("#run", label="rm, rm")
    assert page.locator("#board td").count() == 4


def test_a_phone_needs_no_sideways_scrolling(open_report):  # noqa: F811
    page = open_report(folder={"showcase": [edit_entry()]}, viewport={"width": 360, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") == 360


TEXT = {
    "sample_id": "countdown 3",
    "symbols": "_.0123456789+-=;:",
    "states": [[3, 14, 0, 0], [3, 14, 4, 0], [3, 14, 0, 1], [3, 14, 3, 1]],
    "note": "solved",
}


def test_text_is_stepped_through_by_its_symbols(open_report):  # noqa: F811
    shown = [entry(kind="countdown", suite="countdown", samples=[TEXT])]
    page = open_report(folder={"showcase": shown}, viewport={"width": 360, "height": 800})

    def symbols():
        return "".join(page.locator("#board .flow .digit").all_text_contents())

    assert symbols() == "1=··"
    page.click("#next")
    assert symbols() == "1=2·"
    page.click("#next")
    assert symbols() == "1=·."
    assert page.inner_text("#status") == "step 2 of 3: 1 re-masked, 1 revealed, 1 masked"
    assert "was 2" in page.locator("#board .cell").nth(2).get_attribute("aria-label")
    page.click("#last")
    assert symbols() == "1=1."
    assert page.evaluate("document.documentElement.scrollWidth") == 360


QUESTION = {
    "sample_id": "math 4",
    "prompt": "How many <eggs>?",
    "response": "6 or\n7",
    "answer": "7",
    "is_right": True,
    "verdict": "checked",
    "note": "put right by revision",
    "symbols": ["·", "6", " or", "\n", "7", " 9"],
    "states": [[0, 0, 0, 0], [1, 2, 3, 5], [1, 2, 3, 0], [1, 2, 3, 4]],
    "steps": [0, 4, 9, 10],
}


def test_an_answer_has_prompt_steps_response_and_verdict(open_report):  # noqa: F811
    wrong = QUESTION | {"is_right": False, "response": "9", "states": [], "steps": []}
    del wrong["symbols"]
    showcase = [entry("sft", [wrong], kind="math"), entry("her", [QUESTION], kind="math")]
    page = open_report(folder={"showcase": showcase})
    assert page.locator("#run option").all_inner_texts() == ["her"], "the other has no states"
    assert page.inner_text("#prompt") == "How many <eggs>?"
    assert page.inner_text("#verdict") == "In the end: ✓ right, checked, answer found: 7"
    page.click("#next")
    assert status(page) == "step 4 of 10: 0 re-masked, 4 revealed"
    page.click("#next")
    cells = page.locator("#board .cell").all()
    assert "".join(cell.text_content() for cell in cells[:3]) == "6 or\n"
    assert "just re-masked, was  9" in cells[3].get_attribute("aria-label")
    tops = [cell.bounding_box()["y"] for cell in (cells[0], cells[1], cells[3])]
    assert tops[2] > tops[0] + 10, "the line ends where the text has a line break"
    assert tops[0] == pytest.approx(tops[1], abs=6)
    replies = page.locator(".reply")
    shown = [reply.inner_text().split("\n")[:2] for reply in replies.all()]
    assert [(x[0], x[1]) for x in shown] == [("her", "✓ right"), ("sft, rm", "✗ wrong")]
    assert page.inner_text("#samples blockquote") == "How many <eggs>?"
    assert page.locator("#samples eggs").count() == 0


@pytest.mark.parametrize(
    "change",
    [
        {"prompt": 5},
        {"response": None},
        {"is_right": "yes"},
        {"symbols": ["·", 7, "", "", "", ""]},
        {"symbols": ["·"]},
        {"steps": [0, 1, 1, 2]},
        {"steps": [0, 1]},
        {"states": 7},
        {"states": [[1], [1, 2]]},
    ],
)
def test_a_malformed_answer_is_refused(tmp_path, capsys, change):
    showcase = [entry(kind="math", samples=[QUESTION | change])]
    assert "is damaged" in refused([make_folder(tmp_path, showcase=showcase)], capsys)


@pytest.mark.parametrize(
    "change", [{"symbols": 5}, {"states": []}, {"states": [[1, 2], [1]]}, {"states": [[99]]}]
)
def test_a_malformed_text_is_refused(tmp_path, capsys, change):
    shown = [entry(kind="countdown", samples=[TEXT | change])]
    assert "is damaged" in refused([make_folder(tmp_path, showcase=shown)], capsys)
