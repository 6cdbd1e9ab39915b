"""Connectors whose client is not installed: the error names the extra."""

from __future__ import annotations

import importlib
import sys

import pytest

from headrace.base.errors import InvalidPlan

CONNECTORS = {
    "opensearch": ("opensearchpy", "opensearch", "search"),
    "postgres": ("psycopg", "table"),
    "mysql": ("pymysql", "table"),
    "redis": ("redis", "hashes"),
    "search": ("tantivy", "tantivy"),
    "rabbitmq": ("pika", "queue"),
    "stomp": ("stomp", "queue"),
    "amqp": ("proton", "queue"),
    "pulsar": ("pulsar", "reader"),
    "delta": ("deltalake", "table"),
    "s3": ("botocore", "objects"),
}


@pytest.mark.parametrize("name", CONNECTORS)
def test_a_connector_without_its_client_names_the_extra(name, monkeypatch):
    client, word, *room = CONNECTORS[name]
    folder = f"headrace.connect.{room[0] if room else name}"
    package = importlib.import_module(folder)
    for module in list(sys.modules):
        if module.partition(".")[0] == client or module.startswith(f"{folder}."):
            monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, client, None)
    with pytest.raises(InvalidPlan, match=client) as missing:
        getattr(package, word)
    assert f"headrace[{name}]" in missing.value.hint
    with pytest.raises(AttributeError):
        package.nothing  # noqa: B018 - looking is the test
