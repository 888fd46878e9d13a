"""Pictures that a table names: read from its folder, or by a URL scheme that the recipe allows.

A table is untrusted. Unless the recipe allows it, no row can make this process open a file outside
the folder or contact a server.
"""

from remask.models.checkpoints.folder import check_inside
from remask.pipeline.edits.images import ImageError, ImageFile
from remask.pipeline.runtime.retries import retried
from remask.pipeline.runtime.storage import StorageError, open_file_system

ROOTS = ("", "Singleturn/", "Multiturn/")
"""Folders, below the folder of pictures, that a path may be relative to."""
ABSENT = (FileNotFoundError, IsADirectoryError, NotADirectoryError)


def read_named(path: str, folder: str, schemes: tuple[str, ...], row: str) -> ImageFile:
    """Read the picture that a row names.

    Args:
        path: A path below the folder, or a URL.
        folder: The recipe's folder of pictures.
        schemes: Schemes of URLs outside the folder that the recipe allows.
        row: Name of the row, for errors.

    Raises:
        ImageError: The row names a picture that is missing, or that it may not name.
        StorageError: The storage failed, which is no reason to drop the row.
    """
    scheme, separator, _ = path.partition("://")
    try:
        if separator and not path.startswith(f"{folder}/"):
            if scheme not in schemes or "::" in path:
                raise ImageError(
                    f"{row} names {path!r}, which is outside {folder}; to allow it, name its "
                    "scheme in `schemes`"
                )
            candidates = [open_file_system(path)]
        else:
            fs, root = open_file_system(folder)
            inside = check_inside(path.removeprefix(f"{folder}/").lstrip("/"))
            candidates = [(fs, f"{root.rstrip('/')}/{start}{inside}") for start in ROOTS]
    except (ValueError, StorageError) as error:
        raise ImageError(f"{row}: {error}") from error
    for fs, file in candidates:
        try:
            data = retried(lambda fs=fs, file=file: fs.cat_file(file))
        except ABSENT:
            continue
        except Exception as error:  # whatever the file system's package raises
            is_denied = isinstance(error, PermissionError)
            advice = "make it readable and run it again" if is_denied else "run it again"
            raise StorageError(f"cannot read {file}: {error}; {advice}") from error
        return ImageFile.read(data, file)
    raise ImageError(f"{row}: there is no {path} in {folder}")
