import pytest

from headrace.views.sqlite import SqliteViews


@pytest.fixture
def views(tmp_path):
    with SqliteViews(tmp_path / "storage" / "views.db", durable=False) as store:
        yield store
