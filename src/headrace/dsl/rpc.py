"""A service that an app answers: requests come in as a stream, and a stream goes out as their replies."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from headrace.base.errors import InvalidPlan
from headrace.base.schema import as_schema
from headrace.dsl.stream_table import Stream

ID, DEADLINE, REPLIES = "request_id", "deadline", ".replies"


@dataclass(frozen=True)
class Rpc:
    """A service; `App.rpc` creates it.

    Attributes:
        topic: where the requests are.
        requests: each once, by its `request_id`: that, `deadline`, and the columns of a request.

    """

    topic: str
    requests: Stream

    def reply(self, replies: Stream) -> None:
        """Answer requests with rows of a stream, each by its `request_id`; the deadline stays out of the reply.

        A column `error`, where it is not null, is what the client raises instead of a reply.

        Raises:
            InvalidPlan: they are no stream of this app, do not say which request they answer, or have nothing else.

        """
        if not isinstance(replies, Stream) or replies.registry is not self.requests.registry:
            raise InvalidPlan(
                f'the replies of "{self.topic}" are {replies!r}, and no stream of this app',
                hint="Join the requests with a table, or keep the .changes() of one whose _change_type is insert.",
            )
        if ID not in replies.columns or set(replies.columns) <= {ID, DEADLINE}:
            raise InvalidPlan(
                f'the replies of "{self.topic}" have the columns {", ".join(replies.columns)}',
                hint=f"Keep the column {ID} of the requests, and add those of the reply.",
            )
        kept = replies.drop(DEADLINE) if DEADLINE in replies.columns else replies
        kept.to_topic(f"{self.topic}{REPLIES}", key=ID)


def columns_of_requests(schema: str | pa.Schema) -> pa.Schema:
    """Return the columns of the topic of a service.

    Raises:
        InvalidPlan: a request has a column that is the client's.

    """
    columns = as_schema(schema)
    ours = as_schema(f"{ID} string, {DEADLINE} timestamp")
    if taken := set(ours.names) & set(columns.names):
        raise InvalidPlan(f"a request cannot have a column {min(taken)!r}: the client fills it")
    return pa.schema([*ours, *columns])
