"""Fast selections of the scripts that prove the promises of the log; in full: `python scripts/log_….py`."""

import pytest
from scripts import landing_power, log_flips, log_kills, log_power, log_readers


@pytest.mark.parametrize("seed", range(3))
def test_processes_that_are_killed_lose_nothing_acknowledged_and_double_nothing(tmp_path, seed):
    log_kills.storm(tmp_path, seed, kills=3, private=seed == 2)


@pytest.mark.parametrize(("seed", "private"), [(20240131, False), (20240201, True)])
def test_a_power_loss_at_any_sync_loses_nothing_acknowledged(tmp_path, seed, private):
    life = log_power.Life(tmp_path, seed, cuts=40, private=private)
    life.live()
    assert life.cuts_made == 40
    assert life.last_append > 3  # how many of the cuts are of appends is not the seed's alone: names are random


@pytest.mark.parametrize("seed", [1, 2])
def test_a_power_loss_at_any_sync_of_a_landing_file_keeps_the_last_one(tmp_path, seed):
    life = landing_power.Life(tmp_path, seed, cuts=40)
    life.live()
    assert life.cuts_made == 40
    assert life.in_place > 10


def test_a_disk_that_lies_about_syncs_is_found_out(tmp_path, monkeypatch):
    """The simulation can fail: without syncs acknowledged records are lost."""
    learn = log_power.Disk.learn
    monkeypatch.setattr(log_power.Disk, "learn", lambda disk, path: path.suffix == ".segment" or learn(disk, path))
    with pytest.raises(AssertionError, match="seed 3, cut"):
        log_power.Life(tmp_path, 3, cuts=40).live()


def test_a_disk_that_lies_about_landing_files_is_found_out(tmp_path, monkeypatch):
    learn = log_power.Disk.learn
    monkeypatch.setattr(log_power.Disk, "learn", lambda disk, path: path.is_file() or learn(disk, path))
    with pytest.raises(AssertionError, match="seed 3, cut"):
        landing_power.Life(tmp_path, 3, cuts=40).live()


def test_a_flipped_bit_anywhere_is_never_served(tmp_path):
    done = log_flips.flips(tmp_path, seed=20240131, count=100)
    assert min(done[".segment"], done[".index"]) > 15


def test_readers_beside_an_appender_see_no_gap_and_no_repeat(tmp_path):
    total, looks = log_readers.stress(tmp_path, seconds=0.7)
    assert total > 0
    assert min(looks.values()) > 1
