"""The page as people use it, in a real browser: by mouse, by keyboard, on a phone."""

import base64
import io
import json
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from PIL import Image

from remask.infra.demo.examples import SMALL_BOARDS
from remask.infra.demo.offers import Offers
from remask.infra.reviser import open_reviser
from tests.infra.demo.servers import BOARD, run_server
from tests.revisers import write_boards

WIDE, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}
REFUSED = "Failed to load resource: the server responded with a status of 400"


@pytest.fixture
def open_page(browser, running):
    """Opens the page; in the end nothing may have failed, nor anything been asked elsewhere."""
    problems, requests, pages, addresses = [], [], [], set()

    def open_one(address=None, **options):
        options = {"viewport": WIDE, "reduced_motion": "reduce"} | options
        page = browser.new_page(**options)
        page.on("console", lambda message: problems.append(message.text))
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("request", lambda request: requests.append(request.url))
        addresses.add(address or running.address)
        page.goto(address or running.address)
        page.wait_for_selector("[data-ready]")
        pages.append(page)
        return page

    yield open_one
    for page in pages:
        page.close()
    assert [problem for problem in problems if not problem.startswith(REFUSED)] == []
    elsewhere = [url for url in requests if urlsplit(url).scheme not in ("data", "blob")]
    assert {f"http://{urlsplit(url).netloc}" for url in elsewhere} == addresses


def asked(page, act, count=1):
    """What the page asks the server as a result of an act; the answers are shown afterwards."""
    posts = []
    page.on("request", lambda r: posts.append(json.loads(r.post_data)) if r.post_data else None)
    act()
    page.wait_for_selector("#player[aria-busy=false] .board :is(td, span)")
    assert len(posts) == count
    return posts if count > 1 else posts[0]


def revise(page, count=1):
    return asked(page, lambda: page.click("#revise"), count)


def status(page, view="a"):
    return page.inner_text(f"#view-{view} .status")


def shown(page, view="a"):
    return "".join(page.locator(f"#view-{view} .board td .digit").all_inner_texts())


def edited(page):
    return "".join(page.locator("#editor td").all_inner_texts()).replace("·", "0")


def test_one_click_revises_the_first_example(open_page):
    page = open_page()
    assert edited(page) == BOARD
    assert page.is_visible("#empty")
    request = revise(page)
    assert request == {
        "kind": "sudoku",
        "checkpoint": "sudoku",
        "board": BOARD,
        "options": {"policy": "revision", "history": True, "seed": 0},
    }
    assert not page.is_visible("#empty")
    assert shown(page) == BOARD
    assert "in conflict" in status(page)
    page.click("#next")
    assert status(page).startswith("step 1 of 3: 14 re-masked, 0 revealed, 14 masked")
    page.click("#last")
    assert status(page).endswith("valid")
    assert "14 re-masked" in page.inner_text("#outcome-a")
    assert not page.is_visible("#view-b")
    assert "curl" in page.text_content("#command")


def test_all_of_it_works_by_keyboard(open_page):
    page = open_page()
    page.focus("#kinds :checked")
    page.keyboard.press("Tab")  # the examples
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.getAttribute('aria-label')").startswith("row 1")
    for key in (
        "ArrowRight",
        "ArrowDown",
        "7",
        "ArrowDown",
        "l",
        "Home",
        "0",
        "l",
        "End",
        "Delete",
    ):
        page.keyboard.press(key)
    digits = list(BOARD)
    digits[10], digits[18], digits[26] = "7", "0", "0"
    assert edited(page) == "".join(digits)
    assert page.locator("#editor td.locked").count() == 1  # a MASK cannot be locked
    assert page.input_value("#example") == ""  # no longer an example
    while page.evaluate("document.activeElement.id") != "revise":
        page.keyboard.press("Tab")
    request = asked(page, lambda: page.keyboard.press("Enter"))
    assert request["board"] == "".join(digits)
    assert request["editable"] == "1" * 19 + "0" + "1" * 61
    assert page.evaluate("document.activeElement.className") == "board"
    page.keyboard.press("ArrowRight")
    assert status(page).startswith("step 1 of")
    page.keyboard.press("End")
    assert page.inner_text("#view-a .board td >> nth=19") == digits[19]
    page.keyboard.press("Home")
    assert status(page).startswith("step 0 of")


def test_a_cells_doubt_is_read_by_mouse_and_by_keys(open_page):
    page = open_page()
    revise(page)
    reading = page.locator("#view-a .reading")
    page.hover("#view-a .board td >> nth=3")  # a wrong cell
    assert reading.inner_text() == "row 1 column 4: 6, breaks a rule, p(MASK) 1.000"
    bar = page.locator("#view-a .board td >> nth=3").locator(".doubt")
    assert bar.bounding_box()["width"] > 20
    page.focus("#view-a .board")
    page.keyboard.press("ArrowDown")
    assert reading.inner_text().startswith("row 2 column 4: 7")
    page.keyboard.press("Shift+ArrowRight")
    assert reading.inner_text().startswith("row 2 column 5: 5")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowUp")  # there is no row above
    assert reading.inner_text().startswith("row 1 column 5: 9")
    page.keyboard.press("Shift+ArrowLeft")
    page.keyboard.press("ArrowRight")
    assert reading.inner_text().startswith("row 1 column 4: masked, just re-masked, was 6")


def test_two_decoders_are_stepped_side_by_side(open_page):
    page = open_page()
    page.select_option("#policy-b", "absorbing")
    page.uncheck("#history-b")
    first, second = revise(page, 2)
    assert first["options"] == {"policy": "revision", "history": True, "seed": 0}
    assert second["options"] == {"policy": "absorbing", "history": False, "seed": 0}
    assert page.inner_text("#title-a") == "Revision"
    assert page.inner_text("#title-b") == "Absorbing, without history"
    assert "only fills in MASKs" in page.inner_text("#outcome-b")
    page.click("#last")
    assert status(page).endswith("valid")
    assert shown(page, "b") == BOARD
    page.select_option("#policy-b", "p2")
    revise(page, 2)
    page.click("#next")
    assert status(page).startswith("step 1 of 3")
    assert status(page, "b").startswith("step 1 of 32")
    page.fill("#step", "32")
    assert status(page).startswith("step 3 of 3")
    assert status(page, "b").startswith("step 32 of 32")
    page.select_option("#policy-b", "")
    revise(page)
    assert not page.is_visible("#view-b")


def test_settings_are_sent_only_once_they_are_set(open_page):
    page = open_page()
    assert page.inner_text("#margin-value") == "automatic"
    page.fill("#margin", "1.5")
    page.fill("#pace", "0.25")
    page.fill("#max-steps", "12")
    page.fill("#seed", "7")
    page.uncheck("#history-a")
    assert page.inner_text("#margin-value") == "1.5 nats"
    assert revise(page)["options"] == {
        "policy": "revision",
        "history": False,
        "margin": 1.5,
        "pace": 0.25,
        "max_steps": 12,
        "seed": 7,
    }
    page.click("#margin-auto")
    assert "margin" not in revise(page)["options"]
    page.select_option("#policy-a", "p2")
    assert page.is_disabled("#pace")
    assert set(revise(page)["options"]) == {"policy", "history", "max_steps", "seed"}


def test_the_pad_edits_the_board_by_touch(open_page):
    page = open_page(viewport=PHONE, has_touch=True)
    page.tap("#editor td >> nth=4")
    page.tap("#pad button >> text='3'")
    assert edited(page)[4] == "3"
    page.tap("#pad button >> text='MASK'")
    assert edited(page)[4] == "0"
    page.tap("#pad button >> text='Lock all digits'")
    assert page.locator("#editor td.locked").count() == 80
    page.tap("#pad button >> text='Unlock all'")
    assert page.locator("#editor td.locked").count() == 0
    page.select_option("#example", label="A puzzle with 30 blanks")
    assert page.locator("#editor td.locked").count() == 51
    request = asked(page, lambda: page.tap("#revise"))
    assert request["editable"].count("1") == 30
    page.tap("#last")
    assert status(page).endswith("valid")
    page.tap("#view-a .board td >> nth=0")
    assert page.inner_text("#view-a .reading").startswith("row 1 column 1: 3, fixed")


def test_text_flows_with_its_masks(open_page):
    page = open_page()
    page.check("[name=kind][value=text]", force=True)
    assert not page.is_visible("#editor")
    page.fill("#prompt", "what?")
    page.fill("#draft", "say  it")
    page.evaluate("document.getElementById('draft').setSelectionRange(4, 4)")
    page.click("#insert-mask")
    assert page.input_value("#draft") == "say ▒ it"
    page.fill("#length", "9")
    request = revise(page)
    assert (request["prompt"], request["draft"], request["length"]) == ("what?", "say ▒ it", 9)
    assert page.inner_text("#given-a") == "what?"
    cells = page.locator("#view-a .flow .cell")
    assert cells.all_inner_texts()[:6] == ["s", "a", "y", " ", "·", " "]
    assert cells.nth(4).get_attribute("aria-label").startswith("token 5: masked")
    assert "holds 1 MASK" in page.inner_text("#outcome-a")
    assert not page.is_visible(".key-wrong")
    page.fill("#draft", "")
    page.fill("#length", "4")
    assert "draft" not in revise(page)
    assert cells.count() == 4


def test_a_wrong_request_is_explained_and_can_be_mended(open_page):
    page = open_page()
    page.check("[name=kind][value=text]", force=True)
    page.fill("#prompt", " ")
    page.click("#revise")
    page.wait_for_selector("#problem:not(:empty)")
    assert page.inner_text("#problem").startswith("The prompt is empty")
    assert page.get_attribute("#problem", "role") == "alert"
    page.fill("#prompt", "abc")
    revise(page)
    assert page.inner_text("#problem") == ""


def test_a_picture_is_made_small_and_edited(open_page, edit_folder):
    page = open_page(viewport=PHONE)
    page.check("[name=kind][value=image_edit]", force=True)
    page.click("#revise")
    assert page.inner_text("#problem").startswith("There is no picture yet")
    page.set_input_files("#file", str(Path(edit_folder).with_name("large.png")))
    page.wait_for_selector("#preview:not([hidden])")
    page.fill("#instruction", "make the circle blue")
    request = revise(page)
    sent = Image.open(io.BytesIO(base64.b64decode(request["picture"])))
    assert sent.size == (512, 398)
    assert request["instruction"] == "make the circle blue"
    assert page.locator("#view-a .picture td").count() == 16
    style = "table => table.style.backgroundImage"
    before = page.eval_on_selector("#view-a .picture", style)
    assert before.startswith('url("data:image/png')
    page.click("#last")
    assert page.eval_on_selector("#view-a .picture", style) != before
    assert page.inner_text("#given-a") == "make the circle blue"


def test_a_file_that_is_no_picture_is_refused(open_page):
    page = open_page()
    page.check("[name=kind][value=image_edit]", force=True)
    page.set_input_files("#file", {"name": "a.png", "mimeType": "image/png", "buffer": b"none"})
    page.wait_for_selector("#problem:not(:empty)")
    assert page.inner_text("#problem").startswith("That file is no picture")


def test_a_small_board_alone_and_kinds_without_a_model_that_say_how_to_add_one(open_page, tmp_path):
    offers = Offers({"small": open_reviser(write_boards(tmp_path / "small"))})
    with run_server(offers) as alone:
        page = open_page(address=alone.address)
        assert page.locator("#editor td").count() == 16
        assert edited(page) == SMALL_BOARDS["A small board with 2 wrong digits"]["board"]
        assert page.locator("#pad button").count() == 8
        page.check("[name=kind][value=image_edit]", force=True)
        assert "--checkpoint NAME=FOLDER" in page.inner_text("#missing")
        assert page.get_attribute("#revise", "aria-disabled") == "true"
        assert not page.is_visible("#instruction")
        page.check("[name=kind][value=sudoku]", force=True)
        assert not page.is_visible("#missing")
        revise(page)
        assert len(shown(page)) == 16


@pytest.mark.parametrize(
    ("viewport", "scheme"),
    [(WIDE, "light"), (PHONE, "dark"), ({"width": 320, "height": 640}, "light")],
)
def test_any_width_and_the_dark_need_no_sideways_scrolling(open_page, viewport, scheme):
    page = open_page(viewport=viewport, color_scheme=scheme)
    page.evaluate("document.getElementById('settings').open = true")
    page.select_option("#policy-b", "p2")
    revise(page, 2)
    for kind in ("sudoku", "text", "image_edit"):
        page.check(f"[name=kind][value={kind}]", force=True)
        assert page.evaluate("document.documentElement.scrollWidth") == viewport["width"]
    paper = page.eval_on_selector("body", "body => getComputedStyle(body).backgroundColor")
    assert (paper == "rgb(23, 25, 28)") == (scheme == "dark")


@pytest.mark.parametrize("motion", ["no-preference", "reduce"])
def test_it_plays_by_itself_unless_motion_is_reduced(open_page, motion):
    page = open_page(reduced_motion=motion)
    page.clock.install()
    revise(page)
    assert page.inner_text("#play") == ("Play" if motion == "reduce" else "Pause")
    page.clock.run_for(10_000)
    assert status(page).startswith("step 0" if motion == "reduce" else "step 3")
