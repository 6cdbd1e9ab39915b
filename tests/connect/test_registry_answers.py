"""What a registry may answer besides a schema."""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from headrace.connect.formats import registry
from headrace.connect.formats.registry import RegistryRefused

SCHEMA = json.dumps({"schema": '"int"'}).encode()


@pytest.fixture
def server():
    """A server with answers, each a body and the length that it says to have."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            body, length = server.answers.pop(0)
            self.send_response(200)
            self.send_header("Content-Length", str(length))
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self):
            self.rfile.read(int(self.headers["Content-Length"]))
            self.do_GET()

        def log_message(self, *_args):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.answers = []
    Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def test_an_answer_that_is_cut_off_is_asked_for_again(server):
    server.answers += [(SCHEMA[:10], len(SCHEMA)), (SCHEMA, len(SCHEMA))]
    assert registry(f"http://127.0.0.1:{server.server_port}").schema(7).text == '"int"'
    assert server.answers == []


@pytest.mark.parametrize(
    "body", [b'{"status": "up"}', b"[]", b'"hello"', b'{"schema": "x", "id": "y", "references": [1]}']
)
def test_json_that_is_no_answer_of_a_registry_is_refused_with_the_address(server, body):
    place = registry(f"http://127.0.0.1:{server.server_port}")
    asked = [
        lambda: place.schema(8),
        lambda: place.version("rows-value", 1),
        lambda: place.register("rows-value", '"int"', "AVRO"),
    ]
    for ask in asked:
        server.answers.append((body, len(body)))
        with pytest.raises(RegistryRefused, match=f"what answers at {place.place} is no schema registry"):
            ask()
