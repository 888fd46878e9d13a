"""A hub on this machine: as much of the Hugging Face hub's protocol as remask uses.

It holds repositories in memory and serves them on the loopback interface: information about a
repository, its file tree, downloads with ranges, new repositories, and commits with small and large
(LFS) files. Names, headers and error codes are those of the hub. Tests can make it break off a
download, fail, or be asked for a token, and read what it was asked.
"""

import base64
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from huggingface_hub import constants

READER, WRITER = "hf_" + "r" * 34, "hf_" + "w" * 34
"""Tokens: both read everything, one may write."""
_REPO = r"(?P<id>[\w.-]+/[\w.-]+)"
_INFO = re.compile(rf"/api/(?P<type>model|dataset)s/{_REPO}(?:/revision/(?P<rev>[^/]+))?")
_TREE = re.compile(rf"/api/(?P<type>model|dataset)s/{_REPO}/tree/(?P<rev>[^/]+)")
_PREUPLOAD = re.compile(rf"/api/(?P<type>model)s/{_REPO}/preupload/(?P<rev>[^/]+)")
_COMMIT = re.compile(rf"/api/(?P<type>model)s/{_REPO}/commit/(?P<rev>[^/]+)")
_BATCH = re.compile(rf"/{_REPO}\.git/info/lfs/objects/batch")
_FILE = re.compile(rf"/(?P<datasets>datasets/)?{_REPO}/resolve/(?P<rev>[^/]+)/(?P<path>.+)")
_LARGE = re.compile(r"/lfs/(?P<oid>[0-9a-f]{64})")


@dataclass
class Repo:
    """A repository: its commits, oldest first, and who may read it."""

    is_private: bool = False
    is_gated: bool = False
    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    refs: dict[str, str] = field(default_factory=dict)

    def commit(self, files: dict[str, bytes], branch: str = "main") -> str:
        parts = [str(len(self.commits)), *map(str, sorted(files.items()))]
        commit = hashlib.sha1("\0".join(parts).encode()).hexdigest()
        self.commits[commit] = files
        self.refs[branch] = commit
        return commit

    def at(self, revision: str) -> str | None:
        commit = self.refs.get(revision, revision)
        return commit if commit in self.commits else None


class HubServer:
    """The hub's contents, and how it behaves."""

    def __init__(self) -> None:
        self.repos: dict[tuple[str, str], Repo] = {}
        self.large: dict[str, bytes] = {}
        self.requests: list[str] = []
        """Method and path of every request."""
        self.tokens: set[str] = set()
        """Tokens that were sent."""
        self.break_off: dict[str, int] = {}
        """Bytes of a file after which its next download ends."""
        self.fails_then = True
        """Does the hub fail from then on?"""
        self.is_failing = False
        self.ranges: list[str] = []
        """The ranges of files that were asked for."""
        self.url = ""

    def add(self, repo_id: str, files: dict[str, bytes], kind: str = "model", **facts: Any) -> str:
        """Make a repository of files, or a commit in an existing one; return the commit."""
        repo = self.repos.setdefault((kind, repo_id), Repo(**facts))
        return repo.commit(dict(files))

    def files(self, repo_id: str) -> dict[str, bytes]:
        """The files on a model's main branch."""
        repo = self.repos["model", repo_id]
        return repo.commits[repo.refs["main"]]

    def asked(self, part: str) -> list[str]:
        return [request for request in self.requests if part in request]

    @contextmanager
    def running(self) -> Iterator["HubServer"]:
        handler = type("Handler", (_Handler,), {"hub": self})
        with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
            server.daemon_threads = True
            self.url = f"http://127.0.0.1:{server.server_address[1]}"
            thread = threading.Thread(target=server.serve_forever, args=(0.02,))
            thread.start()
            try:
                yield self
            finally:
                server.shutdown()
                thread.join()

    def environment(self, home: object, **more: str) -> dict[str, str]:
        """Variables with which a process uses this hub."""
        return {
            "HF_ENDPOINT": self.url,
            "HF_HOME": str(home),
            "HF_HUB_OFFLINE": "0",
            "HF_HUB_DISABLE_XET": "1",  # large files go by LFS, which this server speaks
            "HF_TOKEN": "",
        } | more

    def use(self, monkeypatch: Any, home: Any, *, offline: bool = False, token: str = "") -> None:
        """Let this process use this hub: huggingface_hub has read its variables on import."""
        template = self.url + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "ENDPOINT", self.url)
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(home / "hub"))
        monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(home / "token"))
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", offline)
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        monkeypatch.setenv("HF_TOKEN", token)


class _Handler(BaseHTTPRequestHandler):
    hub: HubServer
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        self._route({_INFO: self._info, _TREE: self._tree, _FILE: self._file})

    def do_HEAD(self) -> None:
        self._route({_FILE: self._file})

    def do_POST(self) -> None:
        self._route({_PREUPLOAD: self._preupload, _COMMIT: self._commit, _BATCH: self._batch})

    def do_PUT(self) -> None:
        self._route({_LARGE: self._put_large})

    def _route(self, routes: dict[re.Pattern[str], Any]) -> None:
        path = unquote(urlsplit(self.path).path)
        raw = urlsplit(self.path).path
        self.hub.requests.append(f"{self.command} {path}")
        self.body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.token = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
        self.hub.tokens |= {self.token} - {""}
        if self.hub.is_failing:
            return self._error(503, "", "out of order")
        if self.token not in ("", READER, WRITER):
            return self._error(401, "", "Invalid credentials in Authorization header")
        if path == "/api/repos/create":
            return self._create()
        if path == "/api/validate-yaml":
            return self._json({"errors": [], "warnings": []})
        for pattern, answer in routes.items():
            if match := pattern.fullmatch(raw):
                return answer({k: unquote(v) for k, v in match.groupdict().items() if v})
        self._error(404, "", "no such page")

    def _repo(self, kind: str, repo_id: str) -> Repo | None:
        """A repository that the sender may see; otherwise the error is sent."""
        repo = self.hub.repos.get((kind, repo_id))
        if repo is None or (repo.is_private and not self.token):
            self._error(404 if self.token else 401, "RepoNotFound", "Repository not found")
            return None
        return repo

    def _at(self, kind: str, repo_id: str, revision: str) -> tuple[Repo, str] | None:
        repo = self._repo(kind, repo_id)
        if repo is None:
            return None
        commit = repo.at(revision)
        if commit is None and not (revision == "main" and not repo.commits):
            self._error(404, "RevisionNotFound", f"Invalid rev id: {revision}")
            return None
        return repo, commit or ""

    def _info(self, name: dict[str, str]) -> None:
        if at := self._at(name["type"], name["id"], name.get("rev", "main")):
            repo, commit = at
            siblings = [{"rfilename": path} for path in repo.commits.get(commit, {})]
            facts = {"private": repo.is_private, "gated": "auto" if repo.is_gated else False}
            self._json({"id": name["id"], "sha": commit or "0" * 40, "siblings": siblings} | facts)

    def _tree(self, name: dict[str, str]) -> None:
        if at := self._at(name["type"], name["id"], name["rev"]):
            repo, commit = at
            files = repo.commits.get(commit, {})
            self._json([_entry(path, data) for path, data in files.items()])

    def _file(self, name: dict[str, str]) -> None:
        at = self._at("dataset" if "datasets" in name else "model", name["id"], name["rev"])
        if at is None:
            return None
        repo, commit = at
        if repo.is_gated and not self.token:
            return self._error(401, "GatedRepo", "Access to this resource is restricted")
        data = repo.commits[commit].get(name["path"])
        if data is None:
            return self._error(404, "EntryNotFound", "Entry not found")
        start = 0
        if asked := re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range") or ""):
            start = int(asked[1])
            self.hub.ranges.append(asked[0])
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        self.send_header("Content-Length", str(len(data) - start))
        self.send_header("ETag", f'"{_etag(name["path"], data)}"')
        self.send_header("X-Repo-Commit", commit)
        self.end_headers()
        if self.command == "HEAD":
            return None
        if name["path"] in self.hub.break_off:
            self.wfile.write(data[start : self.hub.break_off.pop(name["path"])])
            self.hub.is_failing, self.close_connection = self.hub.fails_then, True
            return None
        self.wfile.write(data[start:])

    def _create(self) -> None:
        asked = json.loads(self.body)
        repo_id = f"{asked['organization']}/{asked['name']}"
        if self.token != WRITER:
            return self._error(403 if self.token else 401, "", "You don't have the rights")
        if ("model", repo_id) in self.hub.repos:
            return self._error(409, "", "You already created this model repo")
        self.hub.repos["model", repo_id] = Repo(is_private=asked.get("visibility") == "private")
        self._json({"url": f"{self.hub.url}/{repo_id}"})

    def _preupload(self, name: dict[str, str]) -> None:
        if self._repo("model", name["id"]):
            files = [
                {"path": x["path"], "uploadMode": _mode(x["path"]), "shouldIgnore": False}
                for x in json.loads(self.body)["files"]
            ]
            self._json({"files": files})

    def _batch(self, name: dict[str, str]) -> None:
        objects = [
            {**x, "actions": {"upload": {"href": f"{self.hub.url}/lfs/{x['oid']}"}}}
            for x in json.loads(self.body)["objects"]
        ]
        self._json({"transfer": "basic", "objects": objects})

    def _put_large(self, name: dict[str, str]) -> None:
        if hashlib.sha256(self.body).hexdigest() != name["oid"]:
            return self._error(400, "", "the bytes do not have that hash")
        self.hub.large[name["oid"]] = self.body
        self._json({})

    def _commit(self, name: dict[str, str]) -> None:
        repo = self._repo("model", name["id"])
        if repo is None:
            return None
        if self.token != WRITER:
            return self._error(403, "", "You don't have the rights")
        files = dict(repo.commits.get(repo.refs.get("main", ""), {}))
        for line in self.body.splitlines():
            key, value = (item := json.loads(line))["key"], item["value"]
            if key == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif key == "lfsFile":
                files[value["path"]] = self.hub.large[value["oid"]]
            elif key == "deletedFile":
                del files[value["path"]]
        commit = repo.commit(files)
        url = f"{self.hub.url}/{name['id']}/commit/{commit}"
        self._json({"commitUrl": url, "commitOid": commit})

    def _json(self, values: Any) -> None:
        self._send(200, json.dumps(values).encode(), {"Content-Type": "application/json"})

    def _error(self, status: int, code: str, message: str) -> None:
        headers = {"X-Error-Message": message} | ({"X-Error-Code": code} if code else {})
        self._send(status, json.dumps({"error": message}).encode(), headers)

    def _send(self, status: int, data: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for key, value in (headers | {"Content-Length": str(len(data))}).items():
            self.send_header(key, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)


def files_of(folder: Path) -> dict[str, bytes]:
    """All files below a folder, as a repository has them."""
    paths = (x for x in folder.rglob("*") if x.is_file())
    return {str(x.relative_to(folder)): x.read_bytes() for x in paths}


def _mode(path: str) -> str:
    return "lfs" if path.endswith(".safetensors") else "regular"


def _etag(path: str, data: bytes) -> str:
    """The hash by which git, or LFS, names a file's bytes."""
    if _mode(path) == "lfs":
        return hashlib.sha256(data).hexdigest()
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def _entry(path: str, data: bytes) -> dict[str, Any]:
    entry = {"type": "file", "path": path, "size": len(data), "oid": _etag(path, data)[:40]}
    if _mode(path) == "lfs":
        entry["lfs"] = {"oid": _etag(path, data), "size": len(data), "pointerSize": 134}
    return entry
