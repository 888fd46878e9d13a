"""What MkDocs calls: the pages of the site and their navigation."""

from typing import Any

from mkdocs.structure.files import File, Files

from remask import CLONE
from remask.infra.site.pages import documents, generated, navigation, page_text, pictures


def on_config(config: Any) -> Any:
    config["nav"] = navigation()
    return config


def on_files(files: Files, config: Any) -> Files:
    texts = {path: page_text(path) for path in documents()} | generated()
    for path, text in texts.items():
        files.append(File.generated(config, path, content=text))
    for path in pictures():
        files.append(File.generated(config, path, abs_src_path=str(CLONE / path)))
    return files
