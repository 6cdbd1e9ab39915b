"""A bucket that is not there, or that may not be used, is named: the table is not tried again and again."""

from __future__ import annotations

import pytest
from crashing_sinks import for_rows

from headrace.base.broker_errors import LoginRefused
from headrace.base.outside import AccessRefused
from headrace.base.time import ManualClock
from headrace.connect.buckets import refusal
from headrace.connect.store import StoreRefused

KEYS = {"key": "test", "secret": "test-s3cret", "region": "us-east-1"}


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory):
    """S3 as another process plays it: the client of Delta Lake lets no other thread run while it asks."""
    pytest.importorskip("moto.server")
    from scripts.broker.servers import Servers
    from scripts.servers.kinesis import Moto

    moto = Moto(Servers(tmp_path_factory.mktemp("moto"), shared=False))
    moto.start()
    yield f"http://127.0.0.1:{moto.port}"
    moto.kill()


def in_delta(endpoint, path):
    del path
    pytest.importorskip("deltalake")
    from headrace.connect import delta

    names = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "region"}
    options = {name: KEYS[of] for name, of in names.items()} | {"AWS_ENDPOINT_URL": endpoint, "AWS_ALLOW_HTTP": "true"}
    return delta.table("s3://nowhere/orders", storage_options=options)


def in_iceberg(endpoint, path):
    pytest.importorskip("pyiceberg")
    from headrace.connect import iceberg

    names = {"s3.access-key-id": "key", "s3.secret-access-key": "secret", "s3.region": "region"}
    options = {name: KEYS[of] for name, of in names.items()} | {"s3.endpoint": endpoint, "type": "sql"}
    return iceberg.table(
        "shop.orders", catalog={**options, "uri": f"sqlite:///{path}/catalog.db", "warehouse": "s3://nowhere"}
    )


@pytest.mark.parametrize("make", [in_delta, in_iceberg])
def test_a_bucket_that_is_not_there_is_named(endpoint, tmp_path, make):
    sink = for_rows(make(endpoint, tmp_path), table=True)
    with pytest.raises(StoreRefused, match="there is no such bucket"):
        sink.prepare(clock=ManualClock())


@pytest.mark.parametrize(
    ("said", "error"),
    [
        ("AWS Error ACCESS_DENIED during PutObject operation", AccessRefused),
        ("403 Forbidden <Error><Code>AccessDenied</Code></Error>", AccessRefused),
        ("<Code>SignatureDoesNotMatch</Code>", LoginRefused),
        ("AWS Error INVALID_ACCESS_KEY_ID", LoginRefused),
    ],
)
def test_what_will_be_refused_again_is_told_from_what_passes(said, error):
    assert isinstance(refusal("the table", said, epoch=3), error)
    assert refusal("the table", "503 SlowDown", epoch=3) is None
