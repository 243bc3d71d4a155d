"""Other platforms that are tethered to this one."""

from __future__ import annotations

import datetime as dt

from structable.datasets.errors import IllegalTransitionError
from structable.datasets.identifiers import check_name
from structable.datasets.records import Page
from structable.datasets.tables.platform import PEERS, Peer, PeerState

from .context import Dataset


class Peers(Dataset):
    """The dataset `peers`."""

    def add(self, peer: str, *, uri: str, metadata: object = None, at: dt.datetime | None = None) -> Peer:
        """Record the request of a peer, PENDING.

        Raises
        ------
        AlreadyExistsError
            If the peer is known.
        """
        made = Peer(
            peer=check_name(peer, "peer"),
            uri=uri,
            state=PeerState.PENDING,
            requested=self._context.now(at),
            metadata=metadata,
        )
        self._context.records(PEERS).insert(made)
        return made

    def get(self, peer: str) -> Peer | None:
        """Return the peer, or None."""
        return self._context.records(PEERS).get(peer)

    def require(self, peer: str) -> Peer:
        """Return the peer, or raise `NotFoundError`."""
        return self._context.records(PEERS).require(peer)

    def decide(self, peer: str, state: PeerState) -> Peer:
        """Accept or reject a pending peer, and return it.

        Raises
        ------
        NotFoundError
            If there is no such peer.
        IllegalTransitionError
            If it is not pending, or `state` is.
        """
        state = PeerState(state)
        before = self.require(peer)
        if before.state is not PeerState.PENDING or state is PeerState.PENDING:
            raise IllegalTransitionError(before.state, state)
        self._context.records(PEERS).change((peer,), state=state)
        return self.require(peer)

    def seen(self, peer: str, at: dt.datetime | None = None) -> None:
        """Record that a peer was seen; the latest time counts.

        Raises
        ------
        NotFoundError
            If there is no such peer.
        """
        now = self._context.now(at)
        last = self.require(peer).last_seen
        if last is None or last < now:
            self._context.records(PEERS).change((peer,), last_seen=now)

    def page(self, *, cursor: str | None = None, limit: int = 100) -> Page[Peer]:
        """Return a page of the peers, by name."""
        return self._context.records(PEERS).page(cursor=cursor, limit=limit)

    def delete(self, peer: str) -> None:
        """Forget a peer; nothing is written if it is unknown."""
        self._context.records(PEERS).delete(peer)
