"""A repository's history as git prints it: as input for the demo, and again as totals for its checks."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.base.errors import OutsideError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LATEST = 253_402_300_799  # the last second that a timestamp can hold; git accepts any
_CHUNK = 1 << 16
_PLAIN = ("-c", "log.showSignature=false", "-c", "log.diffMerges=first-parent", "-c", "log.showRoot=true")
_MAINLINE = ("--first-parent", "-m", "--root", "--no-renames", "--no-ext-diff", "--no-color", "-z", "--no-abbrev")
Rows = list[dict[str, Any]]


class NoHistory(OutsideError):
    """There is no git, no repository, or no commit in it."""

    condition = "NO_HISTORY"


@dataclass(frozen=True, kw_only=True)
class History:
    """The main line of a repository up to the commit `head`."""

    root: Path
    head: str
    shallow: bool

    @staticmethod
    def of(path: Path) -> History:
        """Return the history of the repository that a folder is in.

        Raises:
            NoHistory: there is no git, no repository or no commit; the error says which.

        """
        top = _run_git(path, "rev-parse", "--show-toplevel") or str(path)
        head = _run_git(path, "rev-parse", "--verify", "--quiet", "HEAD^{commit}", none="it has no commits yet")
        shallow = _run_git(path, "rev-parse", "--is-shallow-repository") == "true"
        return History(root=type(path)(top), head=head, shallow=shallow)

    def commits(self) -> Iterator[dict[str, Any]]:
        """Yield the commits of the main line in the order in which they entered it, with the paths each changed.

        `files` has (path, blob) for each changed path; the blob is None where the commit deleted the file.
        """
        form = "--format=%H %at %ct %ae"
        tokens = self._tokens("log", *_MAINLINE, "--reverse", "--raw", form, self.head)
        commit: dict[str, Any] | None = None
        for token in tokens:
            if token.startswith(b":"):
                assert commit is not None  # noqa: S101 -- git names the commit first
                path = _text(next(tokens, b""))
                _, _, _, blob, status = token.decode().split(" ")
                commit["paths"].append(path)
                commit["files"].append((path, None if status == "D" else blob))
            elif token:
                if commit is not None:
                    yield commit
                commit = _commit(_text(token))
        if commit is not None:
            yield commit

    def count(self) -> int:
        """Return how many commits the main line has."""
        return int(_run_git(self.root, "rev-list", "--count", "--first-parent", self.head))

    def tree(self) -> dict[str, str]:
        """Return which blob is at each path after the last commit."""
        entries = (entry.split(b"\t", 1) for entry in self._printed("ls-tree", "-r", "-z", "--full-tree", self.head))
        return {_text(path): about.split(b" ")[2].decode() for about, path in entries}

    def changes(self) -> Iterator[tuple[int, str, str]]:
        """Yield (author's time, author, path) of every change, the newest commit first.

        It reads another output of git than `commits` does, so that one checks the other.
        """
        tokens = self._tokens("log", *_MAINLINE, "--name-status", "--format=> %at %ae", self.head)
        at, author = 0, ""
        for token in tokens:
            if token.startswith(b"> "):
                seconds, author = _text(token[2:]).split(" ", 1)
                at = _seconds(seconds)
            elif token:
                yield at, author, _text(next(tokens, b""))

    def _tokens(self, *arguments: str) -> Iterator[bytes]:
        """Yield the output of git, split at NUL, without the newline that may precede a list of changes.

        A path is recognized by its position after a status token, never by its text: it may look like any token.
        """
        is_path = False
        for printed in self._printed(*arguments):
            token = printed if is_path else printed.removeprefix(b"\n")
            is_path = not is_path and token[:1] != b">" and (token[:1] == b":" or len(token) == 1)
            yield token

    def _printed(self, *arguments: str) -> Iterator[bytes]:
        """Yield the output of git, split at NUL."""
        command = ["git", "-C", str(self.root), *_PLAIN, *arguments]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as git:  # noqa: S603 -- git
            assert git.stdout is not None  # noqa: S101 -- it is a pipe
            rest = b""
            while chunk := git.stdout.read(_CHUNK):
                *tokens, rest = (rest + chunk).split(b"\0")
                yield from tokens
        if git.returncode:
            raise NoHistory(f"git failed in {self.root} with code {git.returncode}: git {' '.join(arguments[:2])} …")


def by_topic(commits: Rows) -> dict[str, Rows]:
    """Return the records for each topic of the demo: the commits, and their files as upserts and tombstones."""
    files = [
        {"path": path, "_deleted": True}
        if blob is None
        else {"path": path, "blob": blob, "owner": commit["author"], "changed": commit["written"]}
        for commit in commits
        for path, blob in commit["files"]
    ]
    plain = [{name: value for name, value in commit.items() if name != "files"} for commit in commits]
    return {"commits": plain, "files": files}


def _text(name: bytes) -> str:
    """Return a name as text; bytes that are not UTF-8 are escaped, so that names stay distinct."""
    return name.decode(errors="backslashreplace")


def _commit(header: str) -> dict[str, Any]:
    commit, written, committed, mail = header.split(" ", 3)
    return {
        "commit": commit,
        "author": mail,
        "paths": [],
        "files": [],
        "written": _seconds(written) * 1_000,
        "committed": _seconds(committed) * 1_000,
    }


def _seconds(text: str) -> int:
    """Return git's seconds; a time outside 1970 to 9999 becomes the nearest limit."""
    try:
        return min(max(int(text), 0), LATEST)
    except ValueError:
        return 0


def _run_git(path: Path, *arguments: str, none: str = "it is no git repository") -> str:
    try:
        ran = subprocess.run(  # noqa: S603 -- git, with arguments of ours
            ["git", "-C", str(path), *arguments],  # noqa: S607 -- the git that the user has
            capture_output=True, check=False, text=True, errors="replace",
        )  # fmt: skip
    except FileNotFoundError:
        raise NoHistory("git is not installed") from None
    if ran.returncode:
        messages = ran.stderr.strip().splitlines()
        bare = arguments[-1] == "--show-toplevel" and messages and "work tree" in messages[-1]
        if bare:
            return ""
        raise NoHistory(f"{path}: {none}", detail=messages[0] if messages else "")
    return ran.stdout.strip()
