"""`remask report`: the page as a file, and as a reader uses it in a real browser."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from remask.evaluation.report.make import write_report
from remask.evaluation.report.templates import render_template
from remask.infra.cli import main
from tests.evaluation.folders import SOLUTION, STATES, entry, frame, make_folder, sample, score

HOSTILE = """</script><script>document.title='taken'</script><img src=x onerror="alert(1)">&'"""


def refused(argv, capsys):
    """The one line a wrong request gets."""
    with pytest.raises(SystemExit, match="2"):
        main(["report", *argv])
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("remask report: ")
    assert printed.err.count("\n") == 1
    return printed.err


class Elements(HTMLParser):
    """Names and attributes of all elements."""

    def __init__(self, page):
        super().__init__()
        self.elements = []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))


def test_the_report_is_one_file_beside_the_scores(tmp_path, capsys):
    folder = make_folder(tmp_path / "eval")
    main(["report", folder])
    printed = capsys.readouterr()
    took = r"report: one page in \d+\.\d s: "
    assert re.fullmatch(took + re.escape(f"{folder}/report.html\n"), printed.out)
    assert printed.err == f"next: open {folder}/report.html in a browser\n"
    page = Path(folder, "report.html").read_text()
    for text in (
        "90.0",
        "[89.0, 91.0]",
        "exact by forward passes",
        "2.13.0",
        "811,264",
        "runs/her",
    ):
        assert text in page
    assert [p.name for p in Path(folder).iterdir() if "partial" in p.name] == []


def test_it_names_nothing_outside_itself(tmp_path):
    page = Path(write_report([make_folder(tmp_path)])).read_text()
    elements = Elements(page).elements
    assert not {tag for tag, _ in elements} & {"link", "img", "iframe", "object", "embed", "base"}
    assert not [a for _, a in elements if {"src", "srcset", "style", "onclick"} & set(a)]
    ids = {a["id"] for _, a in elements if "id" in a}
    assert {a["href"] for _, a in elements if "href" in a} <= {f"#{name}" for name in ids}
    assert not re.search(r'url\((?!"data:image/png;base64,)|@import|https?://', page)


def test_several_folders_are_told_apart(tmp_path):
    folders = [make_folder(tmp_path / name, checkpoint=name) for name in ("one", "two")]
    page = Path(write_report(folders, str(tmp_path / "both.html"))).read_text()
    for folder in folders:
        assert folder in page.partition('id="origin"')[2]
    headings = re.findall(r"<h3>(.*?)</h3>", page.partition('id="figures"')[2])
    assert headings[:2] == ["Evaluation (1)", "Evaluation (2)"]
    assert not re.search(r"<h\d[^>]*>[^<]*/", page), "no paths in headings"
    ids = [a["id"] for _, a in Elements(page).elements if "id" in a]
    assert len(ids) == len(set(ids))


def test_published_figures_stand_beside_ours(tmp_path):
    row = {"label": "RM", "checkpoint": "her", "decoder": "rm", "quoted": [93.4]}
    table = {"title": "Paper", "suite": "sudoku", "metrics": ["exact"], "rows": [row]}
    page = Path(write_report([make_folder(tmp_path, tables=[table])])).read_text()
    assert '<td class="quoted">93.4</td>' in page
    assert "<caption><span>Paper</span></caption>" in page


def test_samples_without_a_player_are_mentioned(tmp_path):
    showcase = [entry(kind="sound", samples=[{"what": "ever"}])]
    page = Path(write_report([make_folder(tmp_path, showcase=showcase)])).read_text()
    assert "sudoku, her: the report has no player for samples of kind sound" in page
    assert 'id="player"' not in page


def test_no_showcase_is_no_error(tmp_path):
    folder = make_folder(tmp_path)
    (tmp_path / "showcase.json").unlink()
    assert "no samples to step through" in Path(write_report([folder])).read_text()


def test_no_scores_at_all_still_make_a_page(tmp_path):
    page = Path(write_report([make_folder(tmp_path, scores=frame(), showcase=[])])).read_text()
    assert "How it was made" in page


@pytest.mark.parametrize(
    "change",
    [{"recipe": {"tables": 7}}, {"recipe": None}, {"runs": [7]}, {"provenance": "here"}],
)
def test_an_evaluation_of_another_shape_is_refused(tmp_path, capsys, change):
    folder = make_folder(tmp_path)
    path = tmp_path / "evaluation.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    assert "evaluation.json is damaged" in refused([folder], capsys)


def test_it_reads_and_writes_any_storage(tmp_path):
    import fsspec

    memory = fsspec.filesystem("memory")
    make_folder(tmp_path)
    memory.put(str(tmp_path), "/eval-of-report", recursive=True)
    written = write_report(["memory://eval-of-report"])
    assert written == "memory:///eval-of-report/report.html"
    assert memory.cat("/eval-of-report/report.html").startswith(b"<!doctype html>")


def test_a_missing_folder_and_missing_scores_are_named(tmp_path, capsys):
    missing = refused([f"{tmp_path}/nowhere"], capsys)
    assert f"there is no folder {tmp_path}/nowhere; run `remask eval` first" in missing
    error = refused([str(tmp_path)], capsys)
    assert f"{tmp_path} has no scores.parquet; run `remask eval` first" in error


@pytest.mark.parametrize("name", ["scores.parquet", "evaluation.json", "showcase.json"])
@pytest.mark.parametrize("damage", ["empty", "cut", "noise", "other"])
def test_a_damaged_file_is_named_and_the_old_report_stays(tmp_path, capsys, name, damage):
    folder = make_folder(tmp_path)
    report = tmp_path / "report.html"
    report.write_text("the old one")
    whole = (tmp_path / name).read_bytes()
    other = frame().drop("value").write_parquet if name == "scores.parquet" else None
    bad = {"empty": b"", "cut": whole[: len(whole) // 2], "noise": b"\xff\x00" * 50, "other": b"7"}
    if damage == "other" and other:
        other(tmp_path / name)
    else:
        (tmp_path / name).write_bytes(bad[damage])
    assert f"{tmp_path}/{name} is damaged" in refused([folder], capsys)
    assert report.read_text() == "the old one"
    assert {p.name for p in tmp_path.iterdir()} == {
        "scores.parquet",
        "evaluation.json",
        "showcase.json",
        "report.html",
    }


@pytest.mark.parametrize(
    "change",
    [
        {"states": [[1, 2, 3]]},
        {"states": []},
        {"solution": ["<b>"] * 16},
        {"states": [[10] * 16]},
        {"side": "4"},
    ],
)
def test_a_malformed_board_is_refused(tmp_path, capsys, change):
    folder = make_folder(tmp_path, showcase=[entry(samples=[sample() | change])])
    assert "showcase.json is damaged" in refused([folder], capsys)


def test_an_unwritable_output_fails_in_one_line(tmp_path, capsys):
    folder = make_folder(tmp_path / "eval")
    (tmp_path / "taken").mkdir()
    with pytest.raises(SystemExit, match="1"):
        main(["report", folder, "--output", str(tmp_path / "taken")])
    assert "cannot write" in capsys.readouterr().err
    assert "must be a file" in refused([folder, "--output", f"{tmp_path}/"], capsys)


def test_embedded_json_cannot_end_its_script():
    values = [{HOSTILE: [HOSTILE, "\u2028"]}]
    page = render_template("player.html", player_runs=values, not_shown=[])
    data = page.partition('<script type="application/json" id="showcase">')[2]
    embedded = data.rpartition("</script>")[0]
    assert not set("<>&'\u2028") & set(embedded)
    assert json.loads(embedded) == values


@pytest.fixture
def open_report(browser, tmp_path):
    """Opens a folder's report from disk; in the end nothing may have failed or been fetched."""
    problems, requests, pages = [], [], []

    def open_page(**options):
        path = write_report([make_folder(tmp_path, **options.pop("folder", {}))])
        page = browser.new_page(**options)
        page.on("console", lambda message: problems.append(message.text))
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("dialog", lambda dialog: problems.append(dialog.message))
        page.on("request", lambda request: requests.append(request.url))
        page.goto(f"file://{path}")
        pages.append(page)
        return page

    yield open_page
    for page in pages:
        page.close()
    assert problems == []
    assert len(requests) == len(pages)
    assert all(url.startswith("file://") for url in requests)


def shown(page):
    """The digits on the board, 0 for MASK."""
    digits = page.locator("#board td .digit").all_inner_texts()
    return [0 if digit == "·" else int(digit) for digit in digits]


def status(page):
    return page.inner_text("#status")


def test_buttons_step_through_the_states(open_report):
    page = open_report()
    assert shown(page) == STATES[0]
    assert status(page) == "step 0 of 4: 3 wrong at the start"
    for k in (1, 2):
        page.click("#next")
        assert shown(page) == STATES[k]
    assert status(page) == "step 2 of 4: 1 re-masked, 2 revealed, 1 wrong left, 1 masked"
    page.click("#next")
    assert status(page) == "step 3 of 4: 1 re-masked, 0 revealed, 0 wrong left, 2 masked"
    page.click("#previous")
    assert shown(page) == STATES[2]
    page.click("#last")
    assert shown(page) == SOLUTION
    assert status(page) == "step 4 of 4: 0 re-masked, 2 revealed, 0 wrong left, solved"
    page.click("#next", force=True)  # at the end already; the button keeps the focus
    assert shown(page) == SOLUTION
    assert page.evaluate("document.activeElement.id") == "next"
    page.click("#first")
    assert shown(page) == STATES[0]


def test_keys_step_through_the_states(open_report):
    page = open_report()
    page.focus("#board")
    for key, k in (("ArrowRight", 1), ("ArrowRight", 2), ("ArrowLeft", 1), ("End", 4), ("Home", 0)):
        page.keyboard.press(key)
        assert shown(page) == STATES[k]
        assert page.input_value("#step") == str(k)
    page.keyboard.press("Space")
    assert page.inner_text("#play") == "Pause"
    page.keyboard.press("Space")
    assert page.inner_text("#play") == "Play"
    page.focus("#step")
    page.keyboard.press("ArrowRight")
    assert shown(page) == STATES[1]
    page.focus("#run")
    page.keyboard.press("ArrowRight")  # a list's own key
    assert shown(page) == STATES[1]


def test_the_slider_goes_to_any_step(open_report):
    page = open_report()
    page.fill("#step", "3")
    assert shown(page) == STATES[3]
    assert page.get_attribute("#step", "aria-valuetext") == status(page)


@pytest.mark.parametrize("motion", ["no-preference", "reduce"])
def test_playing_reaches_the_end_and_stops(open_report, motion):
    page = open_report(reduced_motion=motion)
    moves = page.eval_on_selector("#board td", "cell => getComputedStyle(cell).transitionDuration")
    assert (moves == "0s") == (motion == "reduce")
    page.clock.install()
    page.click("#play")
    assert page.inner_text("#play") == "Pause"
    page.clock.run_for(10_000)
    assert shown(page) == SOLUTION
    assert page.inner_text("#play") == "Play"
    page.click("#play")  # again from the start
    assert shown(page) == STATES[0]


def test_cells_are_told_apart_without_colour(open_report):
    page = open_report()
    page.click("#next")
    page.click("#next")

    def cell(i):
        located = page.locator("#board td").nth(i)
        return located.get_attribute("aria-label"), located.inner_text().split()

    assert cell(1) == ("row 1 column 2: 2", ["2"])
    assert cell(0) == ("row 1 column 1: 1, just revealed", ["1", "+"])
    assert cell(5) == ("row 2 column 2: 2, just revealed, wrong", ["2", "+", "×"])
    assert cell(9) == ("row 3 column 2: masked, just re-masked, was 3", ["·", "−3"])
    style = "cell => getComputedStyle(cell{}).{}"
    wrong = page.locator("#board td .digit").nth(5)
    assert "line-through" in wrong.evaluate(style.format("", "textDecorationLine"))
    masked = page.locator("#board td").nth(9)
    assert masked.evaluate(style.format(", '::after'", "borderTopStyle")) == "dashed"
    page.click("#next")
    assert cell(5) == ("row 2 column 2: masked, just re-masked, was 2", ["·", "−2"])
    assert cell(9) == ("row 3 column 2: masked", ["·"])
    legend = page.inner_text(".key")
    for kind in ("kept", "just re-masked", "still masked", "just revealed", "wrong"):
        assert kind in legend
    assert page.get_attribute("#status", "aria-live") == "polite"


def test_boxes_have_borders(open_report):
    page = open_report()
    cells = page.locator("#board td").all()
    assert len(cells) == 16
    left = [i for i, c in enumerate(cells) if "box-left" in c.get_attribute("class")]
    top = [i for i, c in enumerate(cells) if "box-top" in c.get_attribute("class")]
    assert (left, top) == ([2, 6, 10, 14], [8, 9, 10, 11])


def test_another_run_shows_the_same_sample(open_report):
    samples = [sample("a"), sample("b", [STATES[0], STATES[4]], "fixed at once")]
    showcase = [entry(samples=samples), entry("none", samples=samples[1:])]
    page = open_report(folder={"showcase": showcase})
    assert page.locator("#sample option").all_inner_texts()[1] == "b (fixed at once)"
    page.select_option("#sample", label="b (fixed at once)")
    assert status(page).startswith("step 0 of 1")
    page.select_option("#run", label="none, rm")
    assert page.input_value("#sample") == "0"  # where the other run has it
    assert status(page).startswith("step 0 of 1")


def test_hostile_names_are_only_text(open_report):
    scores = frame(
        score(checkpoint=HOSTILE), score(checkpoint=HOSTILE, by=HOSTILE, at=1.0, metric=HOSTILE)
    )
    showcase = [entry(HOSTILE, [sample(HOSTILE, note=HOSTILE)]), entry(kind=HOSTILE)]
    table = {
        "title": HOSTILE,
        "note": HOSTILE,
        "suite": "sudoku",
        "metrics": ["exact"],
        "rows": [{"label": HOSTILE, "checkpoint": HOSTILE, "decoder": "rm"}],
    }
    page = open_report(
        folder={
            "scores": scores,
            "showcase": showcase,
            "tables": [table],
            "checkpoint": HOSTILE,
        }
    )
    assert page.title() == HOSTILE
    assert page.inner_text("h1") == HOSTILE
    assert page.locator("img").count() == 0
    assert page.locator("script").count() == 2
    assert page.inner_text("#figures tbody th >> nth=0") == HOSTILE
    assert page.inner_text("#figures caption >> nth=0") == HOSTILE
    assert page.locator("#run option").inner_text() == HOSTILE
    assert page.locator("#sample option").inner_text() == f"{HOSTILE} ({HOSTILE})"


RM = {"policy": "revision"}
RUNS = {
    ("base", "fill"): (0.4, {"policy": "absorbing"}),
    ("sft", "fill"): (0.6, {"policy": "absorbing"}),
    ("rm", "rm"): (0.9, RM),
}


def compared_folder(path, **changes):
    """An evaluation of base, SFT and RM, with a ceiling and boards as given."""
    scores = [score(value=v, checkpoint=c, decoder=d) for (c, d), (v, _) in RUNS.items()]
    own = {"checkpoint": "rm", "decoder": "rm"}
    scores += [score("as_given", 0.0, **own, low=0.0, high=0.01), score("ceiling", 0.95, **own)]
    rows = [{"label": c.upper(), "checkpoint": c, "decoder": d} for c, d in RUNS]
    table = {"title": "Boards", "suite": "sudoku", "metrics": ["exact"], "rows": rows}
    samples = [sample("kept", [STATES[4]]), sample("telling"), sample("lost", STATES[:2])]
    showcase = [entry("sft", samples, decoder="fill"), entry("rm", samples)]
    make_folder(path, frame(*scores), showcase, [table])
    file = path / "evaluation.json"
    facts = json.loads(file.read_text())
    facts["runs"] = [
        facts["runs"][0] | {"checkpoint": c, "decoder": d, "settings": settings}
        for (c, d), (_, settings) in RUNS.items()
    ]
    facts["recipe"] |= changes
    file.write_text(json.dumps(facts))
    return str(path)


def test_the_page_opens_with_the_answer_then_the_player_and_ends_with_settings(tmp_path):
    folder = compared_folder(tmp_path, title="Boards, repaired")
    page = Path(write_report([folder])).read_text()
    assert "<title>Boards, repaired</title>" in page
    assert "<h1>Boards, repaired</h1>" in page
    contents = re.findall(r'<a href="#(\w+)">', page)
    assert contents == ["answer", "player", "figures", "origin"]
    places = [page.index(f'id="{name}"') for name in contents]
    assert places == sorted(places)
    said = re.sub(r"<[^>]+>", "", page.partition('class="verdict">')[2].partition("</p>")[0])
    assert said == (
        "Yes. With RM, 90.0% of 1,000 boards are solved; 0.0% as given, 40.0% with BASE, "
        "60.0% with SFT. No reviser can be expected to exceed 95.0%."
    )
    names = re.findall(r'<span class="who">([^<]+)<', page)
    assert names == ["as given", "BASE", "SFT", "RM"]
    widths = re.findall(r'class="fill" x="0" y="22%" width="([\d.]+)%"', page)
    assert [float(x) for x in widths] == [0, 40, 60, 90], "from zero, of a scale to 100"
    assert page.count('class="ceiling" x1="95.0%"') == 4


def test_the_player_opens_with_a_sample_that_was_put_right(tmp_path):
    page = Path(write_report([compared_folder(tmp_path)])).read_text()
    data = json.loads(page.partition('id="showcase">')[2].partition("</script>")[0])
    assert [run["name"] for run in data] == ["RM", "SFT"]
    assert [x["sample_id"] for x in data[0]["samples"]] == ["telling", "kept", "lost"]


def test_an_evaluation_of_an_earlier_version_is_named_by_its_first_table(tmp_path):
    page = Path(write_report([compared_folder(tmp_path)])).read_text()
    assert "<h1>Boards</h1>" in page


@pytest.mark.parametrize("headline", [7, {"suite": 3}, {"suite": "sudoku", "what": 1}])
def test_a_malformed_headline_is_refused(tmp_path, capsys, headline):
    folder = compared_folder(tmp_path, headline=headline)
    assert "evaluation.json: headline" in refused([folder], capsys)


def test_the_answer_and_the_contents_work_in_a_browser(browser, tmp_path):
    path = write_report([compared_folder(tmp_path)])
    page = browser.new_page(viewport={"width": 1280, "height": 700}, reduced_motion="reduce")
    page.goto(f"file://{path}")
    assert page.inner_text("#answer h2") == "Did revision help?"
    bars = [x.bounding_box() for x in page.locator(".bar .fill").all()]
    assert bars[3]["width"] / bars[1]["width"] == pytest.approx(90 / 40, rel=0.01)
    assert bars[3]["x"] == bars[1]["x"]
    page.click("nav a[href='#origin']")
    assert page.evaluate("window.scrollY") > 100
    assert page.locator("nav").bounding_box()["y"] == 0, "the contents stay in view"
    page.close()


def test_tables_fit_a_screen_of_1280_pixels(open_report):
    label = "a label as long as the labels of recipes are"
    metrics = [f"first_remask_precision_{i}" for i in range(14)]
    runs = [f"run-{i}" for i in range(11)]
    scores = frame(*(score(m, checkpoint=c) for c in runs for m in metrics))
    rows = [
        {"label": f"{label} {c}", "checkpoint": c, "decoder": "rm", "quoted": [9.5] * 14}
        for c in runs
    ]
    table = {"title": "Wide", "suite": "sudoku", "metrics": metrics, "rows": rows}
    page = open_report(
        folder={"scores": scores, "tables": [table]}, viewport={"width": 1280, "height": 800}
    )
    sizes = page.locator("#figures .scroll").evaluate_all(
        "all => all.map(x => [x.scrollWidth, x.clientWidth])"
    )
    assert len(sizes) > 1, "folded"
    assert all(width <= room for width, room in sizes)


def test_a_phone_and_the_dark_need_no_sideways_scrolling(open_report):
    for width, scheme in ((360, "light"), (1280, "dark")):
        page = open_report(viewport={"width": width, "height": 800}, color_scheme=scheme)
        assert page.evaluate("document.documentElement.scrollWidth") == width
    paper = page.eval_on_selector("body", "body => getComputedStyle(body).backgroundColor")
    assert paper == "rgb(23, 25, 28)"
