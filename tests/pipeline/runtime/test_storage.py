"""Files on local disk, in memory and on S3, written whole or not at all."""

import errno
import os
import re
import resource
import socket
import subprocess
import sys

import pytest

from remask.pipeline.runtime.retries import ATTEMPTS, Retries
from remask.pipeline.runtime.storage import Storage, StorageError, file_hash
from remask.pipeline.sources.sudoku import read_boards
from tests.pipeline.faults import FaultyFileSystem


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
        "from remask.pipeline.runtime.storage import Storage, StorageError\n"
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


def test_of_several_writers_one_creates(storage):
    assert storage.create("a.json", b"one")
    assert not storage.create("a.json", b"two")
    assert storage.create("a.json", b"one"), "the same again is no other writer"
    assert storage.read("a.json") == b"one"


@pytest.mark.parametrize(
    "name",
    ["../a", "a/../../b", "/etc/passwd", "", "a//b", "./a", "a\\..\\b", "shards/*", "a\n", "c:://"],
)
def test_no_name_leaves_the_folder(storage, name):
    with pytest.raises(StorageError, match="does not name a file below|has wildcards"):
        storage.read(name)
    with pytest.raises(StorageError, match="does not name a file below|has wildcards"):
        storage.remove([name])
    with pytest.raises(StorageError, match="does not name a file below|has wildcards"):
        storage.write(name, b"")


def test_a_sealed_file_is_checked(storage):
    storage.write_sealed("cache/a.bin", b"one")
    assert storage.read_sealed("cache/a.bin") == b"one"
    assert storage.sealed_names("cache") == {"a.bin"}
    storage.write("cache/a.bin", b"onf")
    with pytest.raises(StorageError, match="a.bin was altered: .*; remove both and run it again"):
        storage.read_sealed("cache/a.bin")
    storage.write("cache/a.bin.sha256", b"")
    with pytest.raises(StorageError, match="a.bin was altered"):
        storage.read_sealed("cache/a.bin")


def test_sealed_files_are_checked_by_the_usual_tool_too(tmp_path):
    Storage(str(tmp_path)).write_sealed("a.bin", b"one")
    done = subprocess.run(["sha256sum", "-c", "a.bin.sha256"], cwd=tmp_path, capture_output=True)
    assert done.returncode == 0


# Faults -------------------------------------------------------------------------------------------


@pytest.fixture
def failing(faulty, monkeypatch):
    """A storage, and the list of the faults that its next operations meet."""
    faults: list[Exception] = []
    next_fault = staticmethod(lambda: faults.pop(0) if faults else None)
    monkeypatch.setattr(FaultyFileSystem, "fault", next_fault)
    storage = Storage(faulty)
    storage.write("a/one.bin", b"one")
    storage.write("a/two.bin", b"two")
    return storage, faults


OPERATIONS = {
    "write": lambda s: s.write("a/new.bin", b"new"),
    "create": lambda s: s.create("a/new.bin", b"new"),
    "read": lambda s: s.read("a/one.bin") == b"one",
    "read_all": lambda s: s.read_all(["a/one.bin", "a/two.bin"]) == [b"one", b"two"],
    "names": lambda s: s.names("a") == {"one.bin", "two.bin"},
    "exists": lambda s: s.exists("a/one.bin"),
    "remove": lambda s: s.remove(["a/one.bin"]),
    "remove several": lambda s: s.remove(["a/one.bin", "a/two.bin"]),
}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_faults_that_pass_are_overcome_and_counted(failing, operation):
    storage, faults = failing
    kinds = (OSError(errno.EIO, "broken"), TimeoutError("slow"), ConnectionResetError("gone"))
    faults += [kinds[i % 3] for i in range(ATTEMPTS - 1)]
    assert OPERATIONS[operation](storage) in (True, None)
    assert not faults
    assert Retries.count > 0
    if operation.startswith("remove"):
        assert "one.bin" not in storage.names("a")


@pytest.mark.parametrize("operation", OPERATIONS)
def test_faults_that_stay_are_named(failing, operation):
    storage, faults = failing
    faults += [OSError(errno.EIO, "broken")] * 50
    with pytest.raises(StorageError, match="cannot .* faulty:///data/a.*: broken; "):
        OPERATIONS[operation](storage)


@pytest.mark.parametrize(
    "fault", [PermissionError(errno.EACCES, "denied"), OSError(errno.ENOSPC, "full")]
)
def test_what_another_attempt_would_meet_again_is_not_repeated(failing, fault):
    storage, faults = failing
    faults.append(fault)
    with pytest.raises(StorageError, match="cannot write .*: (denied|full); make room"):
        storage.write("a.bin", b"")
    assert Retries.count == 0


def test_a_creation_that_seemed_to_fail_is_no_other_writer(failing, monkeypatch):
    """The answer is lost after the store has done it: the next attempt finds its own file."""
    storage, _ = failing
    real = FaultyFileSystem.pipe_file

    def lose_answer(self, path, value, mode="overwrite", **kwargs):
        monkeypatch.setattr(FaultyFileSystem, "pipe_file", real)
        real(self, path, value, mode=mode, **kwargs)
        raise TimeoutError("no answer")

    monkeypatch.setattr(FaultyFileSystem, "pipe_file", lose_answer)
    assert storage.create("a.json", b"mine")


@pytest.mark.parametrize(
    "uri",
    [
        "zip://a::b", "tar://a::b", "zip://::", "zip://a::s3://b/c", "nosuch://x",
        "simplecache::nosuch://x", "dask://x", "sftp://h/x", "ftp://127.0.0.1:1/x",
        "reference://x", "jupyter://x", "dbfs://x", "dir://x", "generic://x",
    ],
)  # fmt: skip
def test_addresses_that_no_file_system_takes_are_named(uri, monkeypatch):
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with pytest.raises(StorageError, match=f"^cannot use {re.escape(uri)}: .*; check the address"):
        Storage(uri)
    with pytest.raises(ValueError, match=f"^cannot use {re.escape(uri)}: "):
        file_hash(uri)
    with pytest.raises(ValueError, match=f"^cannot use {re.escape(uri)}: "):
        read_boards(uri, 4)


def test_storage_that_cannot_be_written_is_named():
    with pytest.raises(StorageError, match="cannot write http:.*; make room or choose another"):
        Storage("http://127.0.0.1:1/x").write("name", b"")


def test_a_disk_without_links_lets_one_writer_create_too(tmp_path, monkeypatch):
    def refuse(source, target):
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", refuse)
    storage = Storage(str(tmp_path))
    assert storage.create("a.json", b"one")
    assert not storage.create("a.json", b"two")
    assert storage.read("a.json") == b"one"
    assert storage.names("") == {"a.json"}


def test_a_store_without_conditions_creates_where_there_is_nothing(failing, monkeypatch):
    storage, _ = failing
    real = FaultyFileSystem.pipe_file

    def plain_only(self, path, value, mode="overwrite", **kwargs):
        if mode == "create":
            raise OSError("NotImplemented: a header you provided implies functionality")
        real(self, path, value, mode=mode, **kwargs)

    monkeypatch.setattr(FaultyFileSystem, "pipe_file", plain_only)
    assert storage.create("a.json", b"one")
    assert not storage.create("a.json", b"two")
    assert storage.read("a.json") == b"one"
