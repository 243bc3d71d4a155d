"""All errors of structable; `structable.spi` exports them, too."""

from ._errors import *  # noqa: F403 - each name stands in the list below
from ._errors import __all__  # noqa: F401 - re-exported
