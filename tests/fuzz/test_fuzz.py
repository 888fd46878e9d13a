"""The short form of `python -m tests.fuzz`: the same inputs every time, a minute of a core."""

from tests.fuzz.__main__ import divide
from tests.fuzz.pool import Pool

INPUTS = 4400


def test_every_input_is_taken_or_refused_in_a_clear_line(tmp_path):
    pool = Pool(jobs=1)
    tallies = pool.run(divide(INPUTS, pool.targets()), tmp_path)
    failures = [
        f"{name} × {bucket.count}: {words} ({bucket.detail[-300:]}), input {bucket.index} of seed 0"
        for name, tally in tallies.items()
        for words, bucket in tally.buckets.items()
    ]
    assert not failures, "\n".join(failures)
    assert [name for name, tally in tallies.items() if tally.skipped] == []
    # Inputs of which none is sound would meet the first check alone.
    assert [name for name, tally in tallies.items() if not tally.accepted] == []
