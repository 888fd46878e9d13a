"""Join and unpack ImgEdit's archives of single edits, where its tables look for their pictures.

A call after one that was stopped unpacks the remaining archives.

    python -m remask.infra.unpack_imgedit data/ImgEdit
"""

import argparse
import io
import re
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path

from remask.models.checkpoints.folder import check_inside
from remask.pipeline.runtime.terminal import fail, say

PART = re.compile(r"(?P<archive>.+)\.tar(\.split\.(?P<number>.*))?")
REPLACED = "results_replace_part0"
WITHOUT_FOLDER = "results_adjust_canny_laion_part2"


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m remask.infra.unpack_imgedit",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument("folder", nargs="?", type=Path, default=Path("data/ImgEdit"))
    folder = parser.parse_args(argv).folder / "Singleturn"
    archives = find_archives(folder)
    if not archives:
        fail(
            "unpack_imgedit",
            2,
            f"{folder} has no archives; name the folder that ImgEdit was downloaded to",
        )
    for name, parts in archives.items():
        done = folder / f".{name}.unpacked"
        if done.exists():
            continue
        say(name)
        try:
            unpack(name, parts, folder)
        except (ValueError, OSError, tarfile.TarError) as error:
            fail("unpack_imgedit", 1, f"{name}: {error}; download it again")
        done.touch()


def find_archives(folder: Path) -> dict[str, list[Path]]:
    """The parts of each archive in a folder, in order."""
    archives: dict[str, list[Path]] = {}
    for path in sorted(folder.glob("*.tar*"), key=_place):
        if match := PART.fullmatch(path.name):
            archives.setdefault(match["archive"], []).append(path)
    return archives


def _place(path: Path) -> tuple[str, int, str]:
    """A sort key by which the tenth part follows the ninth."""
    end = path.name.rpartition(".")[2]
    return path.name.partition(".tar")[0], int(end) if end.isdigit() else -1, end


def unpack(name: str, parts: list[Path], folder: Path) -> None:
    """Write an archive's files; ValueError for an entry that is not a file below the folder."""
    is_flat = name.startswith("action_part") or name == REPLACED  # its table omits the first folder
    into = {WITHOUT_FOLDER: folder / name, REPLACED: folder / "replace"}.get(name, folder)
    with tarfile.open(fileobj=_Joined(parts), mode="r|") as archive:
        for entry in archive:
            inside = entry.name.removeprefix("./").rstrip("/")
            if entry.isdir():
                continue
            if not entry.isfile():
                raise ValueError(f"{entry.name!r} is a link or a device, and ImgEdit has none")
            place = check_inside(inside.partition("/")[2] if is_flat else inside)
            (into / place).parent.mkdir(parents=True, exist_ok=True)
            with archive.extractfile(entry) as data, (into / place).open("wb") as file:  # pyright: ignore[reportOptionalContextManager]
                shutil.copyfileobj(data, file)


class _Joined(io.RawIOBase):
    """Several files read as one stream."""

    def __init__(self, parts: list[Path]) -> None:
        self._blocks = self._read(parts)
        self._rest = b""

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        while len(self._rest) < size and (block := next(self._blocks, b"")):
            self._rest += block
        data, self._rest = self._rest[:size], self._rest[size:]
        return data

    @staticmethod
    def _read(parts: list[Path]) -> Iterator[bytes]:
        for part in parts:
            with part.open("rb") as file:
                while block := file.read(1 << 20):
                    yield block


if __name__ == "__main__":
    main()
