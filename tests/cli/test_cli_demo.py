"""The demos hold what they promise, on small histories and odd ones."""

import json
from pathlib import Path

import pytest

from headrace.demo.checks import same
from headrace.demo.git import program
from headrace.demo.git.history import History

ODD = ['a "quoted" ä name', "tab\tand\nnewline", "-dash", ":colon/A", "ünï/cödé", "deep/er/still"]


@pytest.fixture
def late(git):
    """Return a history in which one commit enters months after it was written."""
    git("README", "src/a.py", written="2026-01-05T10:00:00")
    git(*ODD, written="2026-02-02T10:00:00")
    git("src/a.py", written="2026-03-02T10:00:00")
    git("src/a.py", "src/b.py", written="2026-04-06T10:00:00")
    git(written="2026-04-07T10:00:00")
    git("src/late.py", "docs/late.md", written="2026-01-06T10:00:00", committed="2026-04-08T10:00:00")
    git("src/a.py", written="2026-04-09T10:00:00")
    return git


def test_the_demos_are_listed_and_the_nearest_is_named(headrace):
    assert [row["demo"] for row in json.loads(headrace("demo", "--json").out)] == ["git", "auctions"]
    assert headrace("demo").out.splitlines()[1].startswith("git ")
    result = headrace("demo", "got")
    assert result.code == 1
    assert 'Did you mean "git"?' in result.err


def test_the_demo_is_one_program_of_less_than_a_hundred_lines():
    assert len(Path(program.__file__).read_text().splitlines()) < 100


def test_the_history_of_a_repository_comes_out_as_git_counts_it(headrace, late):
    result = headrace("demo", "git", "--carrier", "in-process", "--repo", late.repo)
    assert result.code == 0, result.out + result.err
    assert "✔ commits: 7, as git rev-list --count says" in result.out
    assert "✔ file changes: 14 in" in result.out
    assert "✔ files: 11, each as git ls-tree says" in result.out
    assert "✘" not in result.out
    assert "2 file changes of 1 commit:" in result.out
    assert "Look further:" in result.out
    for line in result.out.splitlines():
        if line.startswith("  headrace "):
            assert headrace(*line.split()[1:]).code == 0, line


def test_the_table_of_files_is_what_git_has_at_the_head(headrace, git):
    """Files that change, are deleted, come again, change kind, and a folder that becomes empty."""
    git("a", "src/b", "old/c", "-dash", written="2026-01-05T10:00:00")
    git.run("rm", "-q", "old/c", "src/b")
    ann = {"GIT_AUTHOR_EMAIL": "ann@example.org"}
    git.run("commit", "-q", "-m", "gone", GIT_AUTHOR_DATE="2026-01-06T10:00:00Z", **ann)
    git("src/b", written="2026-01-07T10:00:00")
    (git.repo / "a").chmod(0o755)
    (git.repo / "-dash").unlink()
    (git.repo / "-dash").symlink_to("a")
    git.run("add", "-A")
    git.run("commit", "-q", "-m", "kinds", GIT_AUTHOR_DATE="2026-01-04T10:00:00Z", **ann)
    result = headrace("demo", "git", "--carrier", "in-process", "--repo", git.repo)
    assert result.code == 0, result.out + result.err
    assert "✔ files: 3, each as git ls-tree says" in result.out
    assert "✔ folders: 2, each with as many files as git ls-tree has" in result.out
    assert "✔ owners: the first 2 of 2" in result.out
    lines = [line.split() for line in result.out.splitlines()]
    assert [".", "2", "1", "2026-01-04"] in lines
    assert ["1", "ann@example.org", "2", "2026-01-04"] in lines
    assert ["2", "zoë@example.org", "1", "2026-01-07"] in lines


def test_a_file_that_git_does_not_have_fails_the_check(headrace, late, monkeypatch):
    tree = History.tree
    monkeypatch.setattr(History, "tree", lambda self: {**tree(self), "src/a.py": "0" * 40})
    result = headrace("demo", "git", "--carrier", "in-process", "--repo", late.repo)
    assert result.code == 1
    assert "✘ files: 11, each as git ls-tree says\n  src/a.py: " in result.out


def test_a_second_run_forgets_the_first(headrace, late):
    call = ["demo", "git", "--carrier", "in-process", "--repo", late.repo, "--storage", "here", "--json"]
    first = json.loads(headrace(*call).out)
    late("more", written="2026-05-01T10:00:00")
    second = headrace(*call)
    assert "Forgot an earlier run in here." in second.err
    assert (first["commits"], json.loads(second.out)["commits"]) == (7, 8)
    assert json.loads(second.out)["holds"] is True
    assert json.loads(second.out)["late"] == first["late"] == 2


def test_a_storage_that_is_no_demos_is_left_alone(headrace, late, folder):
    (folder / "mine").mkdir()
    (folder / "mine" / "thesis.txt").write_text("years of work")
    result = headrace("demo", "git", "--carrier", "in-process", "--repo", late.repo, "--storage", "mine")
    assert result.code == 1
    assert result.err.splitlines()[-2].startswith("[NOT_A_DEMO] the folder mine is not empty")
    assert (folder / "mine" / "thesis.txt").exists()


def test_a_history_of_one_empty_commit_is_shown_too(headrace, git):
    git(written="2026-01-05T10:00:00")
    result = headrace("demo", "git", "--carrier", "in-process", "--repo", git.repo)
    assert result.code == 0, result.out + result.err
    assert "✔ commits: 1," in result.out
    assert "Nothing arrived after its week had closed" in result.out


def test_without_a_history_there_are_bids(headrace, folder, git, monkeypatch):
    result = headrace("demo", "git", "--carrier", "in-process", "--storage", "bids")
    assert result.code == 0
    assert "it is no git repository. Here are generated auction bids instead." in result.err
    assert result.out.count("✔") == 3
    empty = headrace("demo", "git", "--carrier", "in-process", "--storage", "bids", "--repo", git.repo, "--json")
    assert "it has no commits yet" in empty.err
    assert json.loads(empty.out)["late"] > 0
    monkeypatch.setenv("PATH", str(folder))
    assert "git is not installed" in headrace("demo", "git", "--carrier", "in-process", "--storage", "bids").err


def test_a_check_that_fails_ends_in_one(headrace, late, monkeypatch):
    monkeypatch.setattr(History, "count", lambda _: 6)
    result = headrace("demo", "git", "--carrier", "in-process", "--repo", late.repo)
    assert result.code == 1
    assert "✘ commits: 7, as git rev-list --count says\n  commits: 7 here, 6 there" in result.out


def test_the_main_line_is_read_whatever_its_names(late):
    commits = list(History.of(late.repo).commits())
    assert [commit["paths"] for commit in commits][1] == sorted(ODD, key=str.encode)
    assert [len(commit["paths"]) for commit in commits] == [2, 6, 1, 2, 0, 2, 1]
    assert commits[5]["written"] < commits[0]["written"] + 2 * 86_400_000
    assert commits[0]["author"] == "zoë@example.org"


def test_merges_count_against_their_first_parent(git):
    git("a", written="2026-01-05T10:00:00")
    git.run("checkout", "-q", "-b", "side")
    git("b", written="2026-01-06T10:00:00")
    git("c", written="2026-01-07T10:00:00")
    git.run("checkout", "-q", "main")
    git("d", written="2026-01-08T10:00:00")
    git.run("merge", "-q", "--no-ff", "-m", "merge", "side")
    history = History.of(git.repo)
    assert [commit["paths"] for commit in history.commits()] == [["a"], ["d"], ["b", "c"]]
    assert history.count() == 3
    assert sorted(path for _, _, path in history.changes()) == ["a", "b", "c", "d"]
    assert sorted(history.tree()) == ["a", "b", "c", "d"]


def test_a_shallow_clone_is_said_to_be_one(headrace, late, folder):
    late.run("clone", "-q", "--depth", "2", f"file://{late.repo}", str(folder / "shallow"))
    result = headrace("demo", "git", "--carrier", "in-process", "--repo", folder / "shallow", "--json")
    assert result.code == 0, result.err
    assert "This clone is shallow" in result.err
    assert json.loads(result.out)["commits"] == 2


def test_two_countings_differ_at_the_first_key_that_does():
    assert same("x", {1: 2}, {1: 2}).holds
    assert same("x", {1: 2, 2: 1}, {1: 2}) == ("x", False, "2: 1 here, None there")
