"""Databases in memory that caches are opened beside: one is used again by the next app of the process."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pytest

import headrace as hr
from headrace.kernels import duck as ducks
from headrace.kernels.duck import IN_MEMORY, Duck, give_back, open_host
from headrace.testing import Driver


@pytest.fixture(autouse=True)
def none_idle(monkeypatch):
    """Let each test begin and end without a host that others gave back."""
    monkeypatch.setattr(ducks, "_idle", {})


def used(tasks=1):
    """Use a host as an app does, and give it back."""
    host = open_host(tasks)
    cache = Duck(IN_MEMORY, host=host)
    cache.run("CREATE TABLE kept AS SELECT 1 AS a; CREATE TEMP TABLE passing AS SELECT 2 AS a; SET VARIABLE x = 3")
    cache.register(pa.table({"a": [4]}))
    cache.set_epoch_time(5)
    cache.close()
    give_back(host)
    return host


def test_a_host_is_used_again_and_nothing_is_left_in_it():
    first = used()
    host = open_host(1)
    assert host is first
    cache = Duck(IN_MEMORY, host=host)
    assert cache.rows("SELECT table_name FROM duckdb_tables()") == []
    assert cache.rows("SELECT view_name FROM duckdb_views() WHERE NOT internal") == []
    assert cache.rows("SELECT getvariable('x'), getvariable('headrace_epoch_time')") == [(None, None)]
    assert cache.rows("SELECT count(*) FROM duckdb_databases() WHERE NOT internal") == [(2,)]  # its own, and this cache


def test_two_at_a_time_are_two():
    one, other = open_host(1), open_host(1)
    assert one is not other
    give_back(one)
    give_back(other)
    assert open_host(1) is other
    with pytest.raises(ducks.duckdb.ConnectionException):
        one.run("SELECT 1")  # one is kept, not each


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads its memory in /proc")
def test_a_host_has_the_memory_of_its_user_and_none_while_it_is_idle():
    host = open_host(2)
    (size,) = host.rows("SELECT current_setting('memory_limit')")[0]
    cache = Duck(IN_MEMORY, host=host)
    before = resident()
    cache.run("CREATE TABLE kept AS SELECT range AS a, random() AS b FROM range(5_000_000)")
    assert resident() > before + 60
    cache.close()
    give_back(host)
    assert resident() < before + 30
    assert open_host(2) is host
    assert host.rows("SELECT current_setting('memory_limit')") == [(size,)]
    give_back(host)
    assert open_host(1).rows("SELECT current_setting('memory_limit')") != [(size,)]


def test_a_host_that_spills_elsewhere_is_not_used(monkeypatch, tmp_path):
    first = used()
    monkeypatch.setenv("HEADRACE_CACHE", str(tmp_path))
    assert open_host(1) is not first


def resident():
    """Return the memory of this process, in MB."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") >> 20


def test_functions_of_a_user_are_met_by_no_other():
    host = open_host(1)
    Duck(IN_MEMORY, host=host).define("mine", lambda values: values, ["int"], "int")
    give_back(host)
    with pytest.raises(ducks.duckdb.CatalogException, match="mine"):
        open_host(1).rows("SELECT mine(1)")


def test_a_host_that_has_ended_is_not_used():
    first = used()
    first.connection.close()
    host = open_host(1)
    assert host is not first
    assert host.rows("SELECT 1") == [(1,)]


def test_a_child_does_not_use_its_parents(monkeypatch):
    first = used()
    monkeypatch.setattr(os, "getpid", lambda: -1)
    assert open_host(1) is not first


def test_apps_of_a_process_one_after_the_other_share_one(monkeypatch):
    opened = []
    monkeypatch.setattr(ducks, "_database", lambda tasks, new=ducks._database: opened.append(tasks) or new(tasks))
    for rows in ([{"k": "a"}], [{"k": "a"}, {"k": "b"}]):
        app = hr.App("counting")
        app.stream("t", "k string").group_by("k").agg(n="count(*)").named("n").to_view("n")
        with Driver(app) as driver:
            driver.send("t", *rows)
            driver.run()
            assert driver.view("n") == [{**row, "n": 1} for row in rows]
    assert len(opened) == 1
