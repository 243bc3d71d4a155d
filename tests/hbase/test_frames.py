"""A row that does not fit a frame of the gateway is refused with the setting, and is not tried again."""

from __future__ import annotations

import pytest

from structable.spi import Field, StorageUnavailableError, TableSpecification, Transaction, connect
from tests.hbase.support.fake_gateway import FakeGateway


def test_row_over_the_frame_limit_is_refused_once() -> None:
    """The error names the limit and its settings; nothing is written, and smaller rows still are."""
    bodies: list[int] = []

    def body(transaction: Transaction) -> None:
        bodies.append(1)
        transaction.table("t").upsert({"k": "large", "b": bytes(200_000)})

    options = "transport=framed&frame_limit=131072"
    with FakeGateway(framed=True) as framed, connect(f"hbase://127.0.0.1:{framed.port}/p?{options}") as storage:
        storage.admin.create(TableSpecification("t", [Field.string("k"), Field.bytes("b")], ["k"]))
        with pytest.raises(StorageUnavailableError, match=r"200,[0-9]{3} bytes .*\(frame_limit\).*framed") as refusal:
            storage.run(body)
        assert refusal.value.lasting
        assert bodies == [1]
        storage.table("t").upsert({"k": "small", "b": bytes(50_000)})
        assert [row["k"] for row in storage.table("t").scan(columns=["k"])] == ["small"]
