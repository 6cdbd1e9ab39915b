"""The schema registry that tests use is a real one."""

import json
from urllib.request import Request, urlopen


def answer(url, body=None):
    data = None if body is None else json.dumps(body).encode()
    asked = Request(url, data, {"Content-Type": "application/vnd.schemaregistry.v1+json"})  # noqa: S310
    with urlopen(asked, timeout=30) as said:  # noqa: S310
        return json.load(said)


def test_a_schema_is_registered_and_found_by_its_id(registry):
    schema = json.dumps({"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]})
    made = answer(f"{registry}/subjects/test-registry-value/versions", {"schema": schema})
    assert json.loads(answer(f"{registry}/schemas/ids/{made['id']}")["schema"]) == json.loads(schema)
