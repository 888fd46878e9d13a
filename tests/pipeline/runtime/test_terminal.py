"""Text from data reaches the terminal as text: no escape sequence, no markup, no encoding error."""

import io
import os
import subprocess
import sys

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from remask.evaluation.recipe import RowConfig, TableConfig
from remask.evaluation.stats.tables import make_tables, print_table
from remask.pipeline import build, shards
from remask.pipeline.recipe import RunConfig
from remask.pipeline.runtime.terminal import (
    MAX_ERROR,
    complain,
    fail,
    make_console,
    say,
    visible,
)
from tests.evaluation.folders import frame, score
from tests.places import ROOT

HOSTILE = "\x1b[31m[/red]\x9b2J\u202ex\ud800\r\n\x00:smile:[bold]"


def test_what_a_terminal_would_obey_is_escaped():
    assert visible("\x1b[2J \x9b \u202e \u2066 \ud800 \x7f a\nb\tc \u2028") == (
        r"\x1b[2J \x9b \u202e \u2066 \ud800 \x7f a\nb\tc \u2028"
    )
    assert visible("plain × γ 数独 \u3000 😀") == "plain × γ 数独 \u3000 😀"


@given(st.text(st.characters()))
def test_all_that_is_left_is_printable(text):
    shown = visible(text)
    assert all(c.isprintable() or c.isspace() for c in shown)
    assert not set(shown) & set("\n\r\t\x0b\x0c\x1b\x85\u2028\u2029")
    shown.encode()


def test_errors_are_one_line_and_keep_their_end(capsys):
    with pytest.raises(SystemExit, match="2"):
        fail("remask build", 2, ValueError("the key\n   is wrong: \x1b[31m"))
    assert capsys.readouterr().err == "remask build: the key is wrong: \\x1b[31m\n"
    complain("remask build", f"cannot read {'x' * 100_000}; remove it and build again")
    line = capsys.readouterr().err
    assert len(line) < MAX_ERROR + 50
    assert line.startswith("remask build: cannot read xxx")
    assert line.endswith("xxx; remove it and build again\n")


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_streams_of_any_encoding_take_any_text(monkeypatch, encoding):
    stream = io.TextIOWrapper(io.BytesIO(), encoding)
    monkeypatch.setattr(sys, "stdout", stream)
    say(f"数独 × {HOSTILE}")
    make_console().print("数独 ×")
    stream.flush()
    first, second, *_ = stream.buffer.getvalue().decode(encoding).split("\n")
    assert r"\x1b[31m[/red]\x9b2J\u202ex\ud800\r\n\x00:smile:[bold]" in first
    assert "数独 ×" in second or r"\u6570\u72ec" in second


def rename(path, name):
    """Give the first row of a shard another id."""
    table = pq.read_table(path)
    ids = [name, *table["example_id"].to_pylist()[1:]]
    index = table.schema.get_field_index("example_id")
    field = table.schema.field(index)
    pq.write_table(table.set_column(index, field, pa.array(ids, field.type)), path)


def test_show_prints_an_id_as_it_is(toy, tmp_path, capsys):
    build.run(toy(run=RunConfig(workers=0), output=str(tmp_path)))
    (path, *_) = sorted(tmp_path.glob("shards/train-*.parquet"))
    rename(path, "[/red]\x1b[31m:smile:\n")
    shards.main([str(tmp_path), "show", path.stem, "0"])
    assert r"[/red]\x1b[31m:smile:\n: 16 tokens" in capsys.readouterr().out


def test_tables_and_errors_of_shards_hold_no_escapes(toy, tmp_path, capsys):
    build.run(toy(run=RunConfig(workers=0), output=str(tmp_path)))
    manifest = tmp_path / "manifest.parquet"
    evil = pl.lit("\x1b[31m\u202e\n[/red]")
    pl.read_parquet(manifest).with_columns(tokenizer=evil).write_parquet(manifest)
    for arguments in (
        ["--all"],
        ["--sql", "select tokenizer from manifest"],
        ["--sql", 'select array_agg(tokenizer) as "\x1b[31m" from manifest'],
    ):
        shards.main([str(tmp_path), *arguments])
        out = capsys.readouterr().out
        assert "\x1b" not in out
        assert "\u202e" not in out
        assert r"\x1b[31m" in out
    with pytest.raises(SystemExit, match="2"):
        shards.main([str(tmp_path), "show", "\x1b[31m", "0"])
    assert r"there is no shard \x1b[31m;" in capsys.readouterr().err


def test_tables_of_an_evaluation_hold_no_escapes():
    scores = frame(score(checkpoint="rm"))
    row = RowConfig(label="[/red]\x1b[31m", checkpoint="rm", decoder="rm")
    table = TableConfig(title="\x1b]0;x\x07", suite="sudoku", metrics=("exact",), rows=(row,))
    console = make_console()
    with console.capture() as captured:
        for made in make_tables(scores, [table]):
            print_table(console, made)
    assert r"[/red]\x1b[31m" in captured.get()
    assert "\x1b" not in captured.get()


def test_commands_print_in_a_terminal_without_unicode(tmp_path):
    (tmp_path / "recipe.yaml").write_text("[1")
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "remask.infra.cli",
            "build",
            str(tmp_path / "recipe.yaml"),
            "é=\udc80",
        ],
        cwd=ROOT,
        env=os.environ | {"PYTHONIOENCODING": "ascii:strict", "LC_ALL": "C.UTF-8"},
        capture_output=True,
    )
    assert done.returncode == 2
    assert b"Traceback" not in done.stderr
    assert done.stderr.count(b"\n") == 1
