"""What git says of a repository's history, twice: as arrivals for the demo, and as totals to check it against."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.base.errors import OutsideError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LATEST = 253_402_300_799  # the last second that a timestamp can be; git takes any
_CHUNK = 1 << 16
_PLAIN = ("-c", "log.showSignature=false", "-c", "log.diffMerges=first-parent", "-c", "log.showRoot=true")
_MAINLINE = ("--first-parent", "-m", "--root", "--no-renames", "--no-ext-diff", "--no-color", "-z", "--no-abbrev")
Rows = list[dict[str, Any]]


class NoHistory(OutsideError):
    """There is no git, no repository, or no commit in it."""

    condition = "NO_HISTORY"


@dataclass(frozen=True, kw_only=True)
class History:
    """The main line of a repository, as of one commit."""

    root: Path
    head: str
    shallow: bool

    @staticmethod
    def of(path: Path) -> History:
        """Return the history of the repository that a folder is in.

        Raises:
            NoHistory: why there is none.

        """
        top = _asked(path, "rev-parse", "--show-toplevel") or str(path)
        head = _asked(path, "rev-parse", "--verify", "--quiet", "HEAD^{commit}", none="it has no commits yet")
        shallow = _asked(path, "rev-parse", "--is-shallow-repository") == "true"
        return History(root=type(path)(top), head=head, shallow=shallow)

    def commits(self) -> Iterator[dict[str, Any]]:
        """Yield the commits of the main line in the order in which they entered it, with the paths each changed.

        Of `files` each path has the blob that the commit left there, or None where it deleted the file.
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
        return int(_asked(self.root, "rev-list", "--count", "--first-parent", self.head))

    def tree(self) -> dict[str, str]:
        """Return which blob is at each path after the last commit."""
        entries = (entry.split(b"\t", 1) for entry in self._printed("ls-tree", "-r", "-z", "--full-tree", self.head))
        return {_text(path): about.split(b" ")[2].decode() for about, path in entries}

    def changes(self) -> Iterator[tuple[int, str, str]]:
        """Yield (author's time, author, path) of every change, the newest commit first.

        From another output of git than `commits` reads.
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
        """Yield what git prints, cut at NUL, without the newline that may stand before a list of changes.

        A path is taken by position, right after what announces it: whatever letters it has, it is no announcement.
        """
        announced = False
        for token in self._printed(*arguments):
            made = token if announced else token.removeprefix(b"\n")
            announced = not announced and made[:1] != b">" and (made[:1] == b":" or len(made) == 1)
            yield made

    def _printed(self, *arguments: str) -> Iterator[bytes]:
        """Yield what git prints, cut at NUL."""
        command = ["git", "-C", str(self.root), *_PLAIN, *arguments]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as git:  # noqa: S603 -- git
            assert git.stdout is not None  # noqa: S101 -- it is a pipe
            rest = b""
            while chunk := git.stdout.read(_CHUNK):
                *whole, rest = (rest + chunk).split(b"\0")
                yield from whole
        if git.returncode:
            raise NoHistory(f"git failed in {self.root} with code {git.returncode}: git {' '.join(arguments[:2])} …")


def by_topic(commits: Rows) -> dict[str, Rows]:
    """Return what the demo's topics get of commits: themselves, and the files as upserts and tombstones."""
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
    """Return a name as text; bytes that are none stay apart from each other."""
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
    """Return git's seconds; a time that no calendar has becomes 1970 or 9999."""
    try:
        return min(max(int(text), 0), LATEST)
    except ValueError:
        return 0


def _asked(path: Path, *arguments: str, none: str = "it is no git repository") -> str:
    try:
        ran = subprocess.run(  # noqa: S603 -- git, with arguments of ours
            ["git", "-C", str(path), *arguments],  # noqa: S607 -- the git that the user has
            capture_output=True, check=False, text=True, errors="replace",
        )  # fmt: skip
    except FileNotFoundError:
        raise NoHistory("git is not installed") from None
    if ran.returncode:
        said = ran.stderr.strip().splitlines()
        bare = arguments[-1] == "--show-toplevel" and said and "work tree" in said[-1]
        if bare:
            return ""
        raise NoHistory(f"{path}: {none}", detail=said[0] if said else "")
    return ran.stdout.strip()
