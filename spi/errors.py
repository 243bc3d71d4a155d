"""All errors of structable; `structable.spi` exports them, too."""

from ._errors import *  # noqa: F403 - each name stands in the list below
from ._errors import __all__ as __all__  # noqa: PLC0414 - exported, too
