"""Messaging: topics in the same store, and the same transactions, as the data.

`s.publish` of a session publishes, `system.topics` makes topics and looks after their groups, `system.consumer(topic,
group=...)` reads, and `system.forward` makes jobs of messages. `SystemData` makes the tables.
"""

from __future__ import annotations

from structable.datasets.errors import MessagesLostError
from structable.datasets.system.messages import Feed, Message, Topic

from .consumer import Batch, Consumer
from .status import GroupStatus, TopicStatus
from .topics import DeadLetter, Topics

__all__ = [
    "Batch",
    "Consumer",
    "DeadLetter",
    "Feed",
    "GroupStatus",
    "Message",
    "MessagesLostError",
    "Topic",
    "TopicStatus",
    "Topics",
]
