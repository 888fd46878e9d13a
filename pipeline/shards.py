"""Inspect a data set: its manifest, one row step by step, its integrity, its Layer-3 bound.

    remask shards runs/sudoku/data              # --all shows every column of the manifest
    remask shards runs/sudoku/data --where "split = 'train' and rows > 1000"
    remask shards runs/sudoku/data --sql "select split, sum(rows) from manifest group by split"
    remask shards runs/sudoku/data show train-00000-00 7    # --tokenizer T: as text
    remask shards runs/sudoku/data verify       # --repair removes what is bad
    remask shards runs/sudoku/data tv-bound

In Python: remask.open_manifest("runs/sudoku/data").filter(pl.col("split") == "train").collect()
"""

import argparse
import hashlib
import math
from collections.abc import Iterator
from itertools import islice
from typing import Any

import polars as pl
from rich.text import Text

from remask.models.text.prompts import load_tokenizer
from remask.pipeline.format.manifest import ROWS, SHARDS, open_manifest, read_files
from remask.pipeline.format.rows import Row, TrajectoryRows, decode_trajectories, read_rows, states
from remask.pipeline.proposal import PROBABILITY_FLOOR
from remask.pipeline.runtime.progress import Meter
from remask.pipeline.runtime.provenance import PROVENANCE, RECIPE, read_json
from remask.pipeline.runtime.storage import Storage, StorageError
from remask.pipeline.runtime.terminal import fail, make_console, say, visible
from remask.pipeline.shard_text import LEGEND, find_tokenizer, text_lines

LISTED = ("shard", "split", "origin", "rows", "tokens", "longest", "skipped", "bytes")
"""Columns of the manifest that `list` shows."""


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="remask shards", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("uri", help="folder of a data set")
    actions = ("list", "show", "verify", "tv-bound")
    parser.add_argument("action", nargs="?", default="list", choices=actions)
    parser.add_argument("place", nargs="*", default=[], help="for show: a shard and a row's number")
    parser.add_argument("--all", action="store_true", help="list: every column of the manifest")
    parser.add_argument(
        "--where", help="keep the manifest rows for which this SQL expression holds"
    )
    parser.add_argument("--repair", action="store_true", help="verify: remove what is bad")
    parser.add_argument("--sql", help="a query over the table `manifest`")
    parser.add_argument(
        "--tokenizer", help="show: folder or hub name (default: the one that the data set keeps)"
    )
    arguments = parser.parse_intermixed_args(argv)
    try:
        if arguments.action == "verify":  # which must not stop at a damaged manifest
            raise SystemExit(report_problems(arguments.uri, arguments.where, arguments.repair))
        table = select(open_manifest(arguments.uri), arguments.where)
        match arguments.action:
            case "list":
                if arguments.sql:
                    print_table(query(table, arguments.sql))
                elif arguments.all:
                    print_table(table)
                else:
                    print_table(table.select(LISTED))
                    left = len(table.collect_schema()) - len(LISTED)
                    say(f"{left} more columns with --all", to_stderr=True)
            case "show":
                show(arguments.uri, table, arguments.place, arguments.tokenizer)
            case "tv-bound":
                print_table(tv_bound(table).lazy())
    except (ValueError, pl.exceptions.PolarsError) as error:
        fail("remask shards", 2, str(error).partition("\n")[0])
    except StorageError as error:
        fail("remask shards", 1, error)


def select(table: pl.LazyFrame, where: str | None) -> pl.LazyFrame:
    """The manifest rows for which a SQL expression holds."""
    return table if where is None else table.filter(pl.sql_expr(where))


def query(table: pl.LazyFrame, sql: str) -> pl.LazyFrame:
    """The answer to a SQL query over `manifest`."""
    return pl.SQLContext(manifest=table).execute(sql)


def print_table(table: pl.LazyFrame) -> None:
    """Print all rows and columns, text in them escaped."""
    text = pl.col(pl.String)
    frame = table.collect().with_columns(text.map_elements(visible, return_dtype=pl.String))
    with pl.Config(tbl_rows=-1, tbl_cols=-1, tbl_width_chars=10_000, fmt_str_lengths=64):
        for line in str(frame).split("\n"):  # names of columns and nested text are left
            say(line)


def show(uri: str, table: pl.LazyFrame, place: list[str], tokenizer: str | None) -> None:
    """Print one row's states, a line per step; as text if there is a tokenizer."""
    if len(place) != 2 or not place[1].isdigit():
        raise ValueError("show takes a shard and a row's number, like: show train-00000-00 7")
    shard = table.filter(pl.col("shard") == place[0]).collect()
    if shard.is_empty():
        raise ValueError(f"there is no shard {place[0]}; `remask shards {uri}` lists them")
    path = Storage(uri).path(shard["path"][0])
    row = next(islice(read_rows(path), int(place[1]), None), None)
    if row is None:
        raise ValueError(f"{place[0]} has {shard['rows'][0]} rows, got {place[1]}")
    codec = load_tokenizer(tokenizer) if tokenizer else find_tokenizer(uri)
    lines = state_lines(row) if codec is None else text_lines(row, codec)
    console = make_console()
    say(f"{row.example_id}: {len(row.target)} tokens, prompt {row.prompt_length}")
    if codec is not None:
        say(LEGEND)
    for line in lines:
        console.print(line, soft_wrap=True)


def state_lines(row: Row) -> Iterator[Text]:
    """A line per state: wrong tokens red, MASK as a yellow dot, the current step marked."""
    width = len(str(int(row.target.max(initial=0))))
    for k, state in enumerate(states(row)):
        line = Text(f"{'→' if k == row.step else ' '} {k:3} ")
        for token, right in zip(state.tolist(), row.target.tolist(), strict=True):
            if token == row.mask_id:
                line.append("·".rjust(width), "yellow")
            else:
                line.append(str(token).rjust(width), "" if token == right else "bold red")
            line.append(" " if width > 1 else "")
        yield line


def report_problems(uri: str, where: str | None, repair: bool) -> int:
    """Verify a data set and print what is wrong; the exit status. What is bad can be removed, so
    that the next build makes it again."""
    storage = Storage(uri)
    files, bad = read_files(storage), verify_metadata(storage)
    table = files.whole
    if table.is_empty() and not files.problems and not bad:
        raise StorageError(f"there is no data set at {storage.uri}; build one with `remask build`")
    problems = {**bad, **files.problems}
    rows = select(table.lazy(), where).collect()
    with Meter("verify", len(rows)) as meter:
        for row in rows.iter_rows(named=True):
            if faults := verify_shard(uri, row):
                problems[row["path"]] = "; ".join(faults)
            meter.add(row["rows"], row["tokens"])
    if repair:
        storage.remove(problems)
    lines = [*problems.values(), *verify_whole(storage, table)]
    for line in lines:
        say(line)
    if problems and repair:
        print("removed what is damaged; run the build again to rebuild it")
    if not lines:
        print(f"{len(rows)} shards, {rows['rows'].sum():,} rows: all sound")
    return 1 if lines else 0


def verify_metadata(storage: Storage) -> dict[str, str]:
    """Files of a data set besides its manifest that are damaged, and what is wrong with each."""
    problems = {}
    for name in (RECIPE, PROVENANCE):
        try:
            if storage.exists(name):
                read_json(storage, name)
        except StorageError as error:
            problems[name] = str(error)
    return problems


def verify_shard(uri: str, row: dict[str, Any]) -> list[str]:
    """What is wrong with a shard: its bytes, its checksum, its rows, its counts."""
    storage = Storage(uri)
    path = storage.path(row["path"])
    try:
        data = storage.read(row["path"])
        if hashlib.sha256(data).hexdigest() != row["sha256"]:
            return [f"{path} was altered: its checksum is not the manifest's"]
        shard = decode_trajectories(data, path)
    except StorageError as error:
        return [str(error)]
    return [
        f"{path} has {count} {name}, the manifest says {row[name]}"
        for name, count in count_shard(shard).items()
        if count != row[name]
    ]


def count_shard(shard: TrajectoryRows) -> dict[str, int]:
    """The counts that a shard's manifest row holds."""
    examples, mask_id = shard.examples, shard.examples.vocabulary.mask_id
    return {
        **shard.moves.rule_counts(examples.target, examples.editable, mask_id),
        "wrong_segments": shard.moves.num_wrong(examples.target, mask_id),
        "segments": len(shard.moves.ends) + 1,
        "rows": len(examples.lengths),
        "tokens": int(examples.lengths.sum()),
    }


def verify_whole(storage: Storage, table: pl.DataFrame) -> list[str]:
    """What is wrong with the set: shards that are missing, files that no row names."""
    problems = []
    planned = max(table["num_shards"], default=0)
    if len(table) != planned:
        problems.append(f"{len(table)} of {planned} shards exist; run the build again to continue")
    known = {path.rsplit("/", 1)[-1] for path in table["path"]}
    for name in sorted(storage.names(SHARDS) - known):
        problems.append(f"{storage.path(f'{SHARDS}/{name}')} is in no manifest; remove it")
    for folder in (SHARDS, ROWS):
        for name in storage.strays(folder):
            problems.append(f"{storage.path(f'{folder}/{name}')} is half-written; remove it")
    return problems


def tv_bound(table: pl.LazyFrame) -> pl.DataFrame:
    """Per split: mean distance to uniform, wrong segments per position, and the Layer-3 bound.

    The bound compares proposals under one law of trajectories, so decodes have none.
    """
    rate = pl.col("wrong_segments").sum() / pl.col("editable").sum()
    shift = (pl.col("shift") * pl.col("rows")).sum() / pl.col("rows").sum()
    return (
        table.filter(pl.col("origin") == "rules")
        .group_by("split", maintain_order=True)
        .agg(
            ((pl.col("mean_tv") * pl.col("editable")).sum() / pl.col("editable").sum()).alias(
                "mean_tv"
            ),
            rate.alias("wrong_rate"),
            (2 * -math.log(PROBABILITY_FLOOR) * rate * shift).alias("objective_shift_at_most"),
        )
        .collect()
    )


if __name__ == "__main__":
    main()
