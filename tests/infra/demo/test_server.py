"""`POST /revise` and what describes it, asked over HTTP as programs do."""

import base64
import io
import json
import socket
from pathlib import Path

import httpx
import jsonschema
import openapi_spec_validator
import pytest
from PIL import Image

from remask.infra.demo.body import MAX_BYTES
from remask.infra.demo.requests import KINDS
from remask.infra.reviser import Options, open_reviser
from tests.infra.demo.servers import BOARD

SUDOKU = {"kind": "sudoku", "board": BOARD}
TEXT = {"kind": "text", "prompt": "abc", "draft": "hello"}


@pytest.fixture
def client(running):
    with httpx.Client(base_url=running.address, timeout=60) as client:
        yield client


def sentence(answer):
    """The one sentence of a refusal."""
    assert answer.headers["content-type"] == "application/json"
    assert list(answer.json()) == ["error"]
    text = answer.json()["error"]
    assert text
    assert "\n" not in text
    assert len(text) < 500
    return text


def test_a_board_is_revised_as_the_reviser_does(client):
    request = SUDOKU | {"options": {"margin": 0.5, "pace": 0.5, "max_steps": 12, "seed": 3}}
    answer = client.post("/revise", json=request)
    assert answer.status_code == 200
    reviser = open_reviser("sudoku")
    options = Options(margin=0.5, pace=0.5, max_steps=12, seed=3)
    record = reviser.revise(reviser.start({"board": BOARD}), options)
    assert answer.json() == json.loads(json.dumps(record.to_json()))
    assert answer.json()["result"] != BOARD


def test_locked_cells_do_not_change(client):
    editable = "1" * 80 + "0"
    record = client.post("/revise", json=SUDOKU | {"editable": editable}).json()
    assert record["editable"] == [True] * 80 + [False]
    assert {step["cells"][80] for step in record["steps"]} == {BOARD[80]}


def test_text_is_revised_by_the_model_of_that_name(client):
    record = client.post("/revise", json=TEXT | {"checkpoint": "letters"}).json()
    assert record["kind"] == "text"
    assert record["checkpoint"] == "letters"
    assert record["prompt"] == "abc"
    assert "".join(record["steps"][0]["cells"]).startswith("hello")


def test_a_picture_is_edited_step_by_step(client, edit_folder):
    picture = base64.b64encode(Path(edit_folder).with_name("large.png").read_bytes()).decode()
    request = {"kind": "image_edit", "picture": picture, "instruction": "make the circle blue"}
    record = client.post("/revise", json=request | {"checkpoint": "shapes"}).json()
    assert (record["kind"], record["columns"]) == ("image_edit", 4)
    assert len(record["steps"]) == record["counts"]["steps"] + 1
    for step in record["steps"]:
        assert len(step["cells"]) == 16
        assert Image.open(io.BytesIO(base64.b64decode(step["picture"]))).size == (32, 32)
    assert record["picture"] == record["steps"][-1]["picture"]
    answer = client.post("/revise", json=request | {"picture": picture[:400]})
    assert answer.status_code == 400
    assert "picture" in sentence(answer)


@pytest.mark.parametrize("policy", ["revision", "absorbing", "p2", "remdm"])
@pytest.mark.parametrize("history", [True, False])
def test_every_decoder_answers(client, policy, history):
    options = {"policy": policy, "history": history, "max_steps": 4}
    answer = client.post(
        "/revise", json=SUDOKU | {"board": "0" * 9 + BOARD[9:], "options": options}
    )
    assert answer.status_code == 200
    assert "·" not in answer.json()["steps"][-1]["cells"]


def test_its_description_is_openapi(client):
    description = client.get("/openapi.json").json()
    openapi_spec_validator.validate(description)
    assert description["openapi"].startswith("3.1")
    assert set(description["paths"]) == {"/revise", "/models", "/openapi.json"}
    request = description["components"]["schemas"]["SudokuRequest"]
    options = request["properties"]["options"]["properties"]
    assert options["max_steps"]["minimum"] == 1
    assert options["pace"]["exclusiveMinimum"] == 0
    assert "nats" in options["margin"]["description"]  # from the class that it extends


def test_every_documented_example_is_answered_as_documented(client):
    description = client.get("/openapi.json").json()
    content = description["paths"]["/revise"]["post"]["requestBody"]["content"]["application/json"]
    assert len(content["examples"]) >= 4
    for example in content["examples"].values():
        kind = example["value"]["kind"]
        fits(description, KINDS[kind].__name__, example["value"])
        answer = client.post("/revise", json=example["value"])
        assert answer.status_code == 200, answer.text
        fits(description, "Record", answer.json())


def test_answers_about_models_and_errors_are_as_documented(client):
    description = client.get("/openapi.json").json()
    answer = client.get("/models").json()
    for model in answer["models"]:
        fits(description, "Model", model)
    columns = {model["name"]: model["columns"] for model in answer["models"]}
    assert columns.items() >= {"letters": None, "shapes": None, "sudoku": 9}.items()
    refused = client.post("/revise", json={"kind": "sudoku"})
    assert str(refused.status_code) in description["paths"]["/revise"]["post"]["responses"]
    fits(description, "Error", refused.json())


def fits(description, name, value):
    """Raise unless a value has the schema of that name."""
    schema = description["components"]["schemas"][name]
    jsonschema.Draft202012Validator(schema).validate(value)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"kind": "sound"}, "kind must be one of"),
        ({"kind": None}, "kind must be one of"),
        ({"board": None}, "board must be"),
        ({"board": "12"}, "81"),
        ({"board": "x" * 81}, "board"),
        ({"board": "1" * 82}, "more than the limit of 81"),
        ({"editable": "2" * 81}, "0s and 1s"),
        ({"board": "0" * 81, "editable": "0" * 81}, "blank"),
        ({"bored": 1}, "unknown keys ['bored']"),
        ({"options": {"policy": "guess"}}, "policy"),
        ({"options": {"max_steps": 0}}, "max_steps must lie in [1, 256], got 0"),
        ({"options": {"max_steps": 10**6}}, "max_steps must lie in [1, 256]"),
        ({"options": {"max_steps": 1.5}}, "max_steps"),
        ({"options": {"pace": 0}}, "pace must lie in (0, 1], got 0"),
        ({"options": {"margin": "much"}}, "margin"),
        ({"options": {"seed": -1}}, "seed"),
        ({"options": {"history": 1}}, "history"),
        ({"options": {"policy": "p2", "margin": 1.0}}, "margin is a setting of policy revision"),
        ({"options": []}, "options"),
        ({"board": "\0" * 81}, "null character"),
    ],
)
def test_a_wrong_value_is_named(client, change, said):
    answer = client.post("/revise", json=SUDOKU | change)
    assert answer.status_code == 400
    assert said in sentence(answer)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"prompt": ""}, "the prompt is empty"),
        ({"draft": "a" * 600}, "there is room for"),
        ({"length": 5000}, "length must lie in [1, 4096]"),
        ({"prompt": "\ud800"}, "surrogate"),
        ({"prompt": "a" * 20_001}, "more than the limit of 20,000"),
    ],
)
def test_a_wrong_text_is_named(client, change, said):
    body = json.dumps(TEXT | change)
    answer = client.post("/revise", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 400
    assert said in sentence(answer)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"[1]", "must be a JSON object, got a list"),
        (b"\xff{}", "not UTF-8"),
        (b'{"kind": NaN}', "NaN is not a number of JSON"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"a":' + b"9" * 10_000 + b"}", "not JSON"),
    ],
)
def test_a_body_that_is_no_request_is_refused(client, body, said):
    answer = client.post("/revise", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 400
    assert said in sentence(answer)


def test_other_models_kinds_paths_and_methods_are_refused(client):
    answer = client.post("/revise", json=SUDOKU | {"checkpoint": "/etc/passwd"})
    assert (answer.status_code, "'/etc/passwd'" in sentence(answer)) == (404, True)
    answer = client.post("/revise", json=SUDOKU | {"checkpoint": "letters"})
    assert (answer.status_code, "['sudoku']" in sentence(answer)) == (404, True)
    for path in ("/nothing", "/..%2fpyproject.toml", "/page.py", "/page/demo.js"):
        answer = client.get(path)
        assert answer.status_code == 404
        sentence(answer)
    answer = client.get("/revise")
    assert (answer.status_code, "does not take GET" in sentence(answer)) == (405, True)
    answer = client.post("/revise", content=b"{}", headers={"content-type": "text/plain"})
    assert (answer.status_code, "application/json" in sentence(answer)) == (415, True)


def test_pages_elsewhere_are_refused(client, running):
    for headers in (
        {"host": "rebound.example"},
        {"host": f"rebound.example:{running.port}"},
        {"host": "127.0.0.1@rebound.example"},
        {"host": "10.0.0.1"},
        {"host": ""},
        {"origin": "http://rebound.example"},
        {"origin": "null"},
        {"origin": f"http://localhost:{running.port}"},  # another name, another origin
        {"origin": "http://127.0.0.1"},  # another port, another server
    ):
        for answer in (
            client.post("/revise", json=SUDOKU, headers=headers),
            client.get("/", headers=headers),
        ):
            assert answer.status_code == 403, headers
            sentence(answer)


def test_its_own_pages_and_programs_are_let_in(client, running):
    for headers in (
        {"origin": running.address},
        {"host": f"localhost:{running.port}", "origin": f"http://localhost:{running.port}"},
        {"host": "localhost:9000"},  # the other end of a tunnel
        {"host": f"[::1]:{running.port}"},
    ):
        assert client.get("/models", headers=headers).status_code == 200, headers


def test_every_answer_lets_the_page_load_nothing_from_elsewhere(client):
    for answer in (client.get("/"), client.get("/nothing"), client.get("/", headers={"host": "x"})):
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "http" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "access-control-allow-origin" not in answer.headers


def test_a_body_that_is_too_large_is_refused(client):
    body = b" " * (MAX_BYTES + 1)
    headers = {"content-type": "application/json"}
    answer = client.post("/revise", content=body, headers=headers)
    assert (answer.status_code, "larger than the limit" in sentence(answer)) == (413, True)
    pieces = (b" " * (1 << 16) for _ in range(200))  # 12 MB, without Content-Length
    answer = client.post("/revise", content=pieces, headers=headers)
    assert (answer.status_code, "larger than the limit" in sentence(answer)) == (413, True)
    at_limit = json.dumps(SUDOKU).encode().ljust(MAX_BYTES)
    assert client.post("/revise", content=at_limit, headers=headers).status_code == 200


def test_a_client_that_waits_for_leave_is_refused_before_it_sends(running):
    with socket.create_connection(("127.0.0.1", running.port)) as client:
        client.sendall(
            b"POST /revise HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Content-Length: 1000000000\r\nExpect: 100-continue\r\n\r\n"
        )
        answer = b"".join(iter(lambda: client.recv(1 << 16), b""))
    assert answer.startswith(b"HTTP/1.1 413")
    assert b"100 Continue" not in answer
