"""Files on local disk, in memory and on S3, written whole or not at all."""

import os
import resource
import socket
import subprocess
import sys

import pytest

from pipeline.storage import Storage, StorageError


@pytest.fixture(params=["local", "memory", "s3"])
def storage(request, tmp_path):
    if request.param == "local":
        return Storage(str(tmp_path / "data"))
    if request.param == "memory":
        return Storage(f"memory://{tmp_path}")
    return Storage(request.getfixturevalue("bucket") + "/data")


def test_what_is_written_is_there(storage):
    assert storage.names("shards") == set()
    storage.write("shards/a.bin", b"one")
    storage.write("shards/b.bin", b"two")
    storage.write("shards/a.bin", b"again")
    assert storage.names("shards") == {"a.bin", "b.bin"}
    assert storage.read("shards/a.bin") == b"again"
    assert storage.exists("shards/b.bin")
    storage.remove(["shards/b.bin"])
    assert not storage.exists("shards/b.bin")
    with pytest.raises(StorageError, match="b.bin is missing; run the build again"):
        storage.read("shards/b.bin")


def test_half_written_files_are_not_seen_and_swept(tmp_path):
    storage = Storage(str(tmp_path))
    storage.write("rows/a.bin", b"one")
    ended = subprocess.Popen(["true"])
    ended.wait()
    here, rows = socket.gethostname(), tmp_path / "rows"
    (rows / f"b.bin.{here}.{ended.pid}.12345678.partial").write_bytes(b"tw")
    (rows / f"c.bin.{here}.{os.getpid()}.12345678.partial").write_bytes(
        b"th"
    )  # still being written
    (rows / "d.bin.elsewhere.1.12345678.partial").write_bytes(b"fo")
    (rows / "e.bin.elsewhere.1.12345678.partial").write_bytes(b"fi")
    os.utime(rows / "e.bin.elsewhere.1.12345678.partial", (0, 0))  # long ago
    assert storage.names("rows") == {"a.bin"}
    storage.sweep("rows")
    assert sorted(p.name[:5] for p in rows.iterdir()) == ["a.bin", "c.bin", "d.bin"]


def test_relative_paths_mean_the_same_everywhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    storage = Storage("data")
    assert storage.uri == str(tmp_path / "data")


def test_a_full_disk_is_named_and_leaves_nothing(tmp_path):
    """The kernel refuses to write past a limit, as it does on a full disk."""
    script = (
        "import signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "from pipeline.storage import Storage, StorageError\n"
        "try: Storage(sys.argv[1]).write('big.bin', bytes(100_000))\n"
        "except StorageError as error: print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)],
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000)),
    )
    assert "cannot write" in done.stdout, done.stderr
    assert "big.bin: File too large; make room or choose another output" in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_a_target_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot write .*file/a.bin: "):
        Storage(str(tmp_path / "file")).write("a.bin", b"one")


def test_a_bucket_that_is_not_there_is_named(bucket):
    with pytest.raises(StorageError, match="cannot write s3://mispelt/data/a.bin: .*bucket"):
        Storage("s3://mispelt/data").write("a.bin", b"one")


def test_a_file_in_place_of_a_folder_is_no_data_set(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot list .*file/rows: Not a directory"):
        Storage(str(tmp_path / "file")).names("rows")


def test_unknown_protocols_are_named():
    with pytest.raises(StorageError, match="cannot use nosuch://x: Protocol not known: nosuch"):
        Storage("nosuch://x")
