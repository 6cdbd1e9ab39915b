"""The report of `headrace demo git` on the files that exist at the end, and its check against `git ls-tree`."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from headrace.demo.checks import Check, same
from headrace.demo.git.weeks import folder_of
from headrace.demo.reports import Report, ReportTable

if TYPE_CHECKING:
    from headrace.app import App
    from headrace.demo.git.history import History

FOLDERS, OWNERS = 5, 10

Row = dict[str, Any]


def report(app: App) -> Report:
    """Yield the folders with most files, and who changed most files last."""
    folders: list[Row] = app.view("tree").to_pylist()
    rows = [
        {"folder": row["folder"], "files": row["files"], "owners": row["owners"], "last change": row["last"].date()}
        for row in sorted(folders, key=lambda row: (-row["files"], row["folder"]))[:FOLDERS]
    ]
    yield ""
    yield ReportTable(
        title="The files that exist now, by folder",
        columns=("folder", "files", "owners", "last change"),
        rows=rows,
    )
    yield f"{sum(row['files'] for row in folders):,} files in {len(folders):,} folders."
    yield ""
    owners = sorted(app.view("top_owners").to_pylist(), key=lambda row: int(row["place"]))
    rows = [
        {"place": row["place"], "owner": row["owner"], "files": row["files"], "last change": row["last"].date()}
        for row in owners
    ]
    yield ReportTable(
        title="Who changed most of them last", columns=("place", "owner", "files", "last change"), rows=rows
    )


def check(app: App, history: History) -> list[Check]:
    """Compare the table of files, and the tables over it, with what git lists."""
    files: list[Row] = app.view("files").to_pylist()
    tree: list[Row] = app.view("tree").to_pylist()
    top: list[Row] = app.view("top_owners").to_pylist()
    tree_of_git = history.tree()
    last: dict[str, str] = {}
    for _, author, path in history.changes():
        last.setdefault(path, author)  # the newest change comes first
    folders = Counter(map(folder_of, tree_of_git))
    owned = Counter(last.get(path, "") for path in tree_of_git)
    most = sorted(owned.items(), key=lambda owner: (-owner[1], owner[0].encode()))[:OWNERS]
    return [
        same(
            f"files: {len(files):,}, each as git ls-tree says", {row["path"]: row["blob"] for row in files}, tree_of_git
        ),
        same(
            f"folders: {len(tree):,}, each with as many files as git ls-tree has",
            {row["folder"]: row["files"] for row in tree},
            folders,
        ),
        same(
            f"owners: the first {len(top):,} of {len(owned):,}, as the last authors in git log --name-status say",
            {row["place"]: (row["owner"], row["files"]) for row in top},
            dict(enumerate(most, 1)),
        ),
    ]
