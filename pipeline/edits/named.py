"""Pictures that a table names: read from below its folder, or by a scheme that the recipe allows.

A table may come from anywhere, so what it names decides nothing: without the recipe's word no row
makes this process open a file elsewhere on the machine, or talk to a server.
"""

from remask.models.checkpoints.folder import check_inside
from remask.pipeline.edits.images import ImageError, ImageFile
from remask.pipeline.runtime.retries import retried
from remask.pipeline.runtime.storage import StorageError, open_file_system

ROOTS = ("", "Singleturn/", "Multiturn/")
"""Where in the folder of pictures a path may begin."""
ABSENT = (FileNotFoundError, IsADirectoryError, NotADirectoryError)


def read_named(path: str, folder: str, schemes: tuple[str, ...], row: str) -> ImageFile:
    """The picture that a row names.

    Args:
        path: As the table has it: a path below the folder, or a URL.
        folder: The folder of pictures, by the recipe.
        schemes: Those of URLs outside the folder that the recipe allows.
        row: The row's name, for errors.

    Raises:
        ImageError: The row names nothing that it may, or nothing that is there.
        StorageError: The storage failed, which is no reason to drop the row.
    """
    scheme, separator, _ = path.partition("://")
    try:
        if separator and not path.startswith(f"{folder}/"):
            if scheme not in schemes or "::" in path:
                raise ImageError(
                    f"{row} names {path!r}, which is outside {folder}; name its scheme in "
                    "`schemes` to read it all the same"
                )
            places = [open_file_system(path)]
        else:
            fs, root = open_file_system(folder)
            inside = check_inside(path.removeprefix(f"{folder}/").lstrip("/"))
            places = [(fs, f"{root.rstrip('/')}/{start}{inside}") for start in ROOTS]
    except (ValueError, StorageError) as error:
        raise ImageError(f"{row}: {error}") from error
    for fs, place in places:
        try:
            data = retried(lambda fs=fs, place=place: fs.cat_file(place))
        except ABSENT:
            continue
        except Exception as error:  # whatever the file system's package raises
            is_denied = isinstance(error, PermissionError)
            advice = "see to it that it can be read, and" if is_denied else "then"
            raise StorageError(f"cannot read {place}: {error}; {advice} run it again") from error
        return ImageFile.read(data, place)
    raise ImageError(f"{row}: there is no {path} in {folder}")
