"""Start the gateway: `python -m examples.gateway --specification examples/gateway/profiles.json`."""

from __future__ import annotations

import asyncio
import logging
import sys

from structable.spi import StructableError

from .options import parse_options
from .server import serve


def main() -> None:
    """Serve until a signal comes; exit with 1 and a message if the table cannot be opened."""
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    # aiohttp logs the traceback of each request that is not HTTP. Other errors of handlers are in the gateway's log.
    logging.getLogger("aiohttp.server").setLevel(logging.CRITICAL)
    options = parse_options()
    try:
        asyncio.run(serve(options))
    except (StructableError, OSError, ValueError) as error:
        print(f"gateway: {type(error).__name__}: {error}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
