"""How errors show what they were given."""

from __future__ import annotations

__all__ = ["shown"]


def shown(value: object) -> str:
    """Return what an error says of a value: its `repr`, of any object, cut where it is long."""
    try:
        text = repr(value)
    except ValueError:  # Python does not write out integers of over 4,300 digits
        text = f"an {type(value).__name__} of very many digits"
    except RecursionError:
        text = f"a {type(value).__name__} of very many levels"
    return text if len(text) <= 80 else f"{text[:77]}..."
