"""Schemas in a registry: a real one, and servers that fail."""

from __future__ import annotations

import json
import pickle
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from uuid import uuid4

import pyarrow as pa
import pytest

from headrace.base.errors import InvalidPlan
from headrace.base.outside import Unavailable
from headrace.base.schema import as_schema
from headrace.connect.formats import avro
from headrace.connect.formats import registry as make_registry
from headrace.connect.formats.registry import RegistryRefused

ROWS = pa.RecordBatch.from_pylist([{"id": 1, "s": "a"}, {"id": 2, "s": None}], schema=as_schema("id int, s string"))


def test_rows_are_written_with_a_registered_schema_and_read_by_its_id(registry):
    form = avro(registry=registry).bound(f"orders-{uuid4().hex}")
    records = form.encode(ROWS)
    assert records[0].as_py()[0] == 0
    assert form.decode(records, ROWS.schema).rows.equals(ROWS)


def test_records_of_two_schemas_are_read_in_their_order(registry):
    """The newer one has a field more; the older records have a null there."""
    topic = f"orders-{uuid4().hex}"
    form = avro(registry=registry).bound(topic)
    newer = ROWS.append_column("n", pa.array([7, 8]))
    old, new = form.encode(ROWS).to_pylist(), form.encode(newer).to_pylist()
    mixed = pa.array([new[0], old[0], b"\0\0\0\0\x01", old[1], b"junk", new[1], None], pa.binary())
    read = avro(registry=registry).decode(mixed, as_schema("id int, n bigint"))
    assert read.rows.to_pylist() == [
        {"id": 1, "n": 7},
        {"id": 1, "n": None},
        {"id": 2, "n": None},
        {"id": 2, "n": 8},
    ]
    assert read.good.to_pylist() == [True, True, False, True, False, True, False]
    assert read.reasons[4].as_py() == "it does not begin with a zero and the id of a schema"


def test_a_schema_that_does_not_fit_its_subject_is_refused(registry):
    """The subject's rule is that newer readers read older records."""
    subject = f"orders-{uuid4().hex}"
    plain = {"type": "record", "name": "Row", "fields": [{"name": "id", "type": "int"}]}
    avro(registry=registry, subject=subject, schema=plain).encode(ROWS.select(["id"]))
    set_rule(registry, subject)
    other = {
        "type": "record",
        "name": "Row",
        "fields": [{"name": "id", "type": "int"}, {"name": "s", "type": "string"}],
    }
    with pytest.raises(RegistryRefused, match="409"):
        avro(registry=registry, subject=subject, schema=other).encode(ROWS.slice(0, 1))


def set_rule(url, subject):
    from urllib.request import Request, urlopen

    body = json.dumps({"compatibility": "BACKWARD"}).encode()
    request = Request(f"{url}/config/{subject}", body, {"Content-Type": "application/json"}, method="PUT")  # noqa: S310
    urlopen(request).read()  # noqa: S310 -- our own registry


@pytest.fixture
def server():
    """A registry that answers what it is told to, and remembers what it was asked."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            server.asked.append((self.path, self.headers.get("Authorization")))
            code, body = server.answers.pop(0)
            self.send_response(code)
            self.end_headers()
            self.wfile.write(json.dumps(body).encode())

        def log_message(self, *_args):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.asked, server.answers = [], []
    Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


SCHEMA = {"schema": json.dumps({"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]})}


def test_a_registry_that_stumbles_is_asked_again_and_a_schema_only_once(server, monkeypatch):
    monkeypatch.setenv("REGISTRY_PASSWORD", "secret")
    server.answers += [(503, {}), (200, SCHEMA)]
    place = make_registry(f"http://127.0.0.1:{server.server_port}", username="u", password="env:REGISTRY_PASSWORD")  # noqa: S106 -- a variable's name
    form = avro(registry=place)
    for _ in range(2):
        read = form.decode(pa.array([b"\0\0\0\0\x05\x02"], pa.binary()), as_schema("a int"))
        assert read.rows.to_pylist() == [{"a": 1}]
    assert server.asked == [("/schemas/ids/5", "Basic dTpzZWNyZXQ=")] * 2
    assert b"secret" not in pickle.dumps(form)
    assert "secret" not in repr(form)


def test_a_registry_that_is_away_may_come_back(server):
    server.answers += [(500, {})] * 4
    place = f"http://127.0.0.1:{server.server_port}"
    with pytest.raises(Unavailable, match=f"{place} does not answer: it answers 500"):
        avro(registry=place).decode(pa.array([b"\0\0\0\0\x06\x02"], pa.binary()), as_schema("a int"))


@pytest.mark.parametrize("body", [{"error_code": 404, "message": "HTTP 404 Not Found"}, {"status": 404}, "gone"])
def test_an_address_without_a_registry_is_refused_and_no_record_is_bad(server, body):
    server.answers += [(404, body)]
    with pytest.raises(RegistryRefused, match="is no schema registry: 404"):
        avro(registry=f"http://127.0.0.1:{server.server_port}").decode(
            pa.array([b"\0\0\0\0\x09\x02"], pa.binary()), as_schema("a int")
        )


def test_a_record_whose_schema_a_registry_does_not_have_is_bad(server):
    server.answers += [(404, {"error_code": 40403, "message": "Schema 9 not found"})]
    form = avro(registry=f"http://127.0.0.1:{server.server_port}")
    read = form.decode(pa.array([b"\0\0\0\0\x09\x02"], pa.binary()), as_schema("a int"))
    assert read.reasons.to_pylist() == ["the registry has no schema 9"]


def test_a_registry_that_wants_a_password_says_so(server):
    server.answers += [(401, {"message": "who are you"})]
    with pytest.raises(RegistryRefused, match="refuses") as caught:
        avro(registry=f"http://127.0.0.1:{server.server_port}").decode(
            pa.array([b"\0\0\0\0\x07\x02"], pa.binary()), as_schema("a int")
        )
    assert "username" in str(caught.value)


@pytest.mark.parametrize("url", ["localhost:8081", "ftp://a", "http://u:p@a", "", None, 7])
def test_an_address_is_one_of_http_without_credentials(url):
    with pytest.raises(InvalidPlan):
        make_registry(url)
