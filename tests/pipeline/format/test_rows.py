"""Examples and trajectories to Parquet and back."""

import contextlib
import dataclasses
import io
import json
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remask.kernels import Segments
from remask.pipeline import TrajectoryConfig, Uniform, states
from remask.pipeline.format.examples import ExampleFile, Examples, Vocabulary, encode_examples, pad
from remask.pipeline.format.rows import (
    TrajectoryRows,
    decode_trajectories,
    encode_trajectories,
    read_rows,
)
from remask.pipeline.moves import Moves
from remask.pipeline.runtime.storage import StorageError
from remask.pipeline.trajectory import sample_moves


def draw_examples(lengths, vocab_size, seed):
    rng = np.random.default_rng(seed)
    vocabulary = Vocabulary(vocab_size, mask_id=0, excluded=(1,))
    sequences = [rng.integers(2, vocab_size, n) for n in lengths]
    target, sizes = pad(sequences, vocabulary.dtype)
    prompts = np.array([rng.integers(0, n + 1) for n in lengths], np.int32)
    at = np.arange(target.shape[1])
    return Examples(
        example_ids=[f"é-{i}" for i in range(len(lengths))],
        target=target,
        editable=(at >= prompts[:, None]) & (at < sizes[:, None]),
        lengths=sizes,
        prompt_lengths=prompts,
        vocabulary=vocabulary,
        num_skipped=3,
    )


PAPER = {"wrong": 0.7, "mask": 0.3}
RELAPSES = {"wrong": 0.4, "mask": 0.2, "relapse": 0.2, "relapse2": 0.2}


def draw_rows(lengths=(5, 9, 1), vocab_size=300, horizon=6, seed=0, rules=PAPER):
    examples = draw_examples(lengths, vocab_size, seed)
    law = TrajectoryConfig(horizon=horizon, noisy_rate=(0.2, 1.0), rules=rules, doubt_share=0.3)
    proposal = Uniform(examples.vocabulary.allowed)
    rng = np.random.default_rng(seed)
    moves = sample_moves(examples.target, examples.editable, proposal, law, rng, mask_id=0)
    return TrajectoryRows(examples, moves, horizon)


def record_rows(lengths=(5, 9, 1), vocab_size=300, horizon=6, seed=0):
    """Rows of recorded states, which follow no rule: any tokens in any order."""
    examples = draw_examples(lengths, vocab_size, seed)
    rng = np.random.default_rng(seed)
    recorded = rng.integers(0, vocab_size, (horizon, *examples.target.shape))
    recorded = np.where(rng.random(recorded.shape) < 0.4, examples.target, recorded)
    recorded = np.where(examples.editable, recorded, examples.target).astype(examples.target.dtype)
    segments, _ = Segments.from_states(recorded, target=examples.target)
    ends = segments.ends.astype(np.min_scalar_type(horizon))
    moves = Moves.of(dataclasses.replace(segments, ends=ends))
    return TrajectoryRows(examples, moves, horizon)


def to_schema_3(data):
    """The same rows as files had them before segments were counted: three, by other names."""
    table = pq.read_table(pa.BufferReader(data))
    meta = json.loads(table.schema.metadata[b"remask"])
    assert meta.pop("segments") == 3
    meta |= {"schema": 3, "boundary_bits": meta.pop("end_bits")}
    names = {"end_1": "revealed_at", "end_2": "masked_at", "token_2": "wrong"}
    table = table.rename_columns([names.get(x, x) for x in table.column_names])
    moves = ("noisy", "wrong", "masked_at", "revealed_at", "step")
    table = table.select(["example_id", "target", *moves, "editable", "prompt_length"])
    out = io.BytesIO()
    pq.write_table(table.replace_schema_metadata({b"remask": json.dumps(meta)}), out)
    return out.getvalue()


def assert_same(decoded, expected):
    for name, value in vars(expected).items():
        other = getattr(decoded, name)
        if isinstance(value, np.ndarray):
            assert other.dtype == value.dtype or name in ("step", "lengths"), name
            assert np.array_equal(other, value), name
        else:
            assert other == value, name


lengths = st.lists(st.integers(1, 40), max_size=8)
vocab_sizes = st.sampled_from([5, 256, 257, 65536, 65537])


@given(lengths, vocab_sizes, st.integers(0, 2**32))
def test_examples_survive_the_round_trip(lengths, vocab_size, seed):
    examples = draw_examples(lengths, vocab_size, seed)
    assert_same(ExampleFile(encode_examples(examples), "here").decode(), examples)


@given(lengths, vocab_sizes, st.sampled_from([2, 6, 300]), st.integers(0, 2**32))
def test_trajectories_survive_the_round_trip(lengths, vocab_size, horizon, seed):
    for rules in (PAPER, RELAPSES) if horizon > 2 else (PAPER,):
        rows = draw_rows(lengths, vocab_size, horizon, seed, rules)
        data = encode_trajectories(rows)
        decoded = decode_trajectories(data, "here")
        assert decoded.horizon == horizon
        assert_same(decoded.moves, rows.moves)
        assert encode_trajectories(rows) == data, "the same rows must give the same bytes"


@given(lengths, vocab_sizes, st.sampled_from([2, 6, 30]), st.integers(0, 2**32))
def test_recorded_trajectories_survive_the_round_trip(lengths, vocab_size, horizon, seed):
    rows = record_rows(lengths, vocab_size, horizon, seed)
    assert_same(decode_trajectories(encode_trajectories(rows), "here").moves, rows.moves)


@given(lengths, vocab_sizes, st.sampled_from([2, 6, 300]), st.integers(0, 2**32))
def test_files_of_schema_3_are_read_as_three_segments(lengths, vocab_size, horizon, seed):
    rows = draw_rows(lengths, vocab_size, horizon, seed)
    data = encode_trajectories(rows)
    if "token_2" not in pq.read_schema(pa.BufferReader(data)).names:  # no token was wrong
        return
    assert_same(decode_trajectories(to_schema_3(data), "here").moves, rows.moves)


def test_a_file_is_no_larger_than_by_schema_3():
    """Three columns of trajectories before, three now: MASK is not stored."""
    for vocab_size in (10, 300):
        rows = draw_rows((81,) * 2000, vocab_size)
        before = pq.ParquetFile(pa.BufferReader(to_schema_3(encode_trajectories(rows))))
        after = pq.ParquetFile(pa.BufferReader(encode_trajectories(rows)))
        sizes = [
            sum(
                file.metadata.row_group(0).column(i).total_uncompressed_size
                for i in range(file.metadata.num_columns)
            )
            for file in (before, after)
        ]
        assert sizes[1] <= sizes[0]


def test_rows_read_one_by_one_expand_to_their_states(tmp_path):
    rows = draw_rows()
    (tmp_path / "shard.parquet").write_bytes(encode_trajectories(rows))
    rows_read = list(read_rows(f"{tmp_path}/shard.parquet"))
    assert [row.example_id for row in rows_read] == ["é-0", "é-1", "é-2"]
    assert [len(row.target) for row in rows_read] == [5, 9, 1]
    for i, row in enumerate(rows_read):
        expanded = states(row)
        assert expanded.shape == (7, len(row.target))
        for k in range(7):
            expected = rows.segments.state_at(k)[i, : len(row.target)]
            assert np.array_equal(expanded[k], expected)


def test_columns_have_the_public_names(tmp_path):
    (tmp_path / "shard.parquet").write_bytes(encode_trajectories(draw_rows()))
    names = pq.read_schema(tmp_path / "shard.parquet").names
    assert names[:2] == ["example_id", "target"]
    assert names[2:6] == ["noisy", "end_1", "end_2", "token_2"]
    assert names[6:] == ["step", "editable", "prompt_length"]
    longer = encode_trajectories(draw_rows((9,) * 50, rules=RELAPSES))
    names = pq.read_schema(pa.BufferReader(longer)).names
    assert names[2:-3] == ["noisy", "end_1", "end_2", "token_2", "end_3", "end_4", "token_4"]


def numbers_by_hand(value, bits):
    """A binary value's numbers, as the documents say them."""
    if bits == 4:
        halves = [half for byte in value for half in (byte % 16, byte // 16)]
        return halves[:-1] if halves and halves[-1] == 15 else halves
    size = bits // 8
    return [int.from_bytes(value[i : i + size], "little") for i in range(0, len(value), size)]


@pytest.mark.parametrize("lengths", [(5, 9, 1), (8, 8, 8)])
@pytest.mark.parametrize(("vocab_size", "horizon"), [(15, 14), (16, 15), (300, 300), (70_000, 6)])
def test_a_plain_read_is_what_the_columns_say(lengths, vocab_size, horizon):
    rows = draw_rows(lengths, vocab_size, horizon)
    segments = rows.segments
    (wrong, _, target), (masked_at, revealed_at) = segments.tokens, segments.ends
    table = pq.read_table(pa.BufferReader(encode_trajectories(rows)))
    meta = json.loads(table.schema.metadata[b"remask"])
    for i, row in enumerate(table.to_pylist()):
        length = lengths[i]
        ids = {n: numbers_by_hand(row[n], meta["id_bits"]) for n in ("target", "token_2")}
        ends = {n: numbers_by_hand(row[n], meta["end_bits"]) for n in ("end_1", "end_2")}
        moves = [row["noisy"][n // 8] >> n % 8 & 1 for n in range(length)]
        assert ids["target"] == target[i, :length].tolist()
        assert moves == (revealed_at[i, :length] > 0).tolist()
        noisy = [n for n in range(length) if moves[n]]
        assert ends["end_2"] == masked_at[i, noisy].tolist()
        assert ends["end_1"] == revealed_at[i, noisy].tolist()
        visible = [n for n in noisy if masked_at[i, n] > 0]
        assert ids["token_2"] == wrong[i, visible].tolist()
        assert row["step"] == segments.step[i]
        assert row["editable"] is None  # all from prompt_length on


def test_editable_positions_of_any_kind_survive():
    examples = draw_examples((5, 9, 1, 9), 300, 0)
    editable = examples.editable.copy()
    editable[1] = [True, False, True] * 3
    editable[2] = False
    editable[3] = ~editable[3]
    changed = dataclasses.replace(examples, editable=editable)
    data = encode_examples(changed)
    assert_same(ExampleFile(data, "here").decode(), changed)
    column = pq.read_table(pa.BufferReader(data))["editable"].to_pylist()
    assert column[0] is None
    assert column[1] == bytes([0b01101101, 0b1])


@pytest.mark.parametrize(("vocab_size", "token"), [(15, 15), (15, 14), (16, 255), (16, 256)])
def test_ids_that_do_not_fit_are_not_cut(vocab_size, token):
    examples = draw_examples((3, 2), vocab_size, 0)
    target = examples.target.astype(np.int64)
    target[0, 1] = token
    wide = dataclasses.replace(examples, target=target)
    if token == 14:
        assert ExampleFile(encode_examples(wide), "here").decode().target[0, 1] == token
    elif token == 255:
        with pytest.raises(StorageError, match="target has the id 255, of a vocabulary of 16"):
            ExampleFile(encode_examples(wide), "here").decode()
    else:
        with pytest.raises(ValueError, match=f"{token} does not fit in . bits"):
            encode_examples(wide)


@pytest.mark.parametrize("cut", [0, 10, 500, -4])
def test_truncated_files_are_named(cut):
    data = encode_trajectories(draw_rows())
    with pytest.raises(StorageError, match="00017.parquet is damaged: .*; remove it and run"):
        decode_trajectories(data[:cut], "00017.parquet")


def test_foreign_and_newer_files_are_named(monkeypatch):
    rows = draw_rows()
    with pytest.raises(StorageError, match="here does not hold trajectories"):
        decode_trajectories(encode_examples(rows.examples), "here")
    monkeypatch.setattr("remask.pipeline.format.parquet.SCHEMA_VERSION", 9)
    newer = encode_trajectories(rows)
    monkeypatch.undo()
    with pytest.raises(StorageError, match="schema version 9, this reader takes 3 and 4; rebuild"):
        decode_trajectories(newer, "here")


@given(st.sets(st.integers(0, 400)), st.integers(0, 3))
def test_excluded_ids_come_back_from_their_runs(excluded, gap):
    excluded |= set(range(100, 300, gap)) if gap else set()
    vocabulary = Vocabulary(500, mask_id=450, excluded=tuple(sorted(excluded)))
    assert Vocabulary.from_meta(vocabulary.meta) == vocabulary


def test_a_run_of_excluded_ids_is_two_numbers():
    lumina = Vocabulary(134548, 126336, tuple(x for x in range(126356) if x != 126336))
    assert lumina.meta["excluded"] == [[0, 126335], [126337, 126355]]


# Files that are not what they say -----------------------------------------------------------------


def mutate(table, rng):
    """A table with one thing changed that Parquet has no objection to."""
    at = int(rng.integers(len(table.schema)))
    name, column = table.schema.names[at], table.column(at)
    kind = rng.choice(["bytes", "longer", "shorter", "shuffled", "null", "type", "meta", "rows"])
    values = column.to_pylist()
    if kind == "meta":
        meta = json.loads(table.schema.metadata[b"remask"])
        key = rng.choice(sorted(meta))
        strange = [-1, 0, 1, 14, 15, 2**31, 2**70, 1.5, None, "8", [], [[5, 2]], [[0, 10**15]], {}]
        meta[str(key)] = strange[int(rng.integers(len(strange)))]
        return table.replace_schema_metadata({b"remask": json.dumps(meta)})
    if kind == "rows":
        return table.slice(0, int(rng.integers(len(table))))
    if kind == "type":
        return table.set_column(at, name, pa.array(rng.integers(0, 9, len(table))))
    if kind == "null":
        values[int(rng.integers(len(values)))] = None
    elif kind == "shuffled":
        values = [values[i] for i in rng.permutation(len(values))]
    elif isinstance(values[0], int):
        values[0] = int(rng.choice([0, 1, 7, 40, 65535]))
    elif isinstance(values[0], bytes):
        value = bytearray(values[0])
        if kind == "bytes" and value:
            value[int(rng.integers(len(value)))] = int(rng.integers(256))
        values[0] = bytes(
            value + b"\1\2\3"[: int(rng.integers(1, 4))] if kind == "longer" else value
        )
        values[0] = values[0][:-1] if kind == "shorter" else values[0]
    sized = pa.types.is_fixed_size_binary(column.type) and kind in ("longer", "shorter", "shuffled")
    changed = pa.array(values, pa.binary() if sized else column.type)
    return table.set_column(at, name, changed)


@given(st.integers(0, 2**32), st.sampled_from([5, 15, 16, 300, 70000]))
@settings(max_examples=400)
def test_what_is_decoded_is_lawful_whatever_the_file_holds(seed, vocab_size):
    """A file is refused, or gives rows that the law on whole grids allows; nothing else happens."""
    rng = np.random.default_rng(seed)
    rules = PAPER if seed % 2 else RELAPSES
    rows = draw_rows(tuple(rng.integers(1, 12, 4)), vocab_size, seed=seed, rules=rules)
    table = pq.read_table(pa.BufferReader(encode_trajectories(rows)))
    for _ in range(int(rng.integers(1, 3))):
        table = mutate(table, rng) if len(table) else table
    out = io.BytesIO()
    pq.write_table(table, out)
    with contextlib.suppress(StorageError):
        check_lawful(decode_trajectories(out.getvalue(), "00017.parquet"))


def check_lawful(decoded):
    """Every position, one by one, on whole grids."""
    examples, segments = decoded.examples, decoded.segments
    vocabulary = examples.vocabulary
    segments.check(vocab_size=vocabulary.size, horizon=decoded.horizon)
    assert not segments.moves[~examples.editable].any()
    assert (examples.target[examples.is_token] != vocabulary.mask_id).all()
    for older, newer in pairwise(segments.ends):
        assert ((older < newer) | (older == 0)).all()
    for tokens, ends in zip(segments.tokens, segments.ends, strict=False):
        assert (tokens == segments.target)[ends == 0].all()
    assert (examples.prompt_lengths <= examples.lengths).all()
