"""Rows as Arrow record batches: `ArrowDecoder` reads them, `ArrowEncoder` writes them. Imports pyarrow and NumPy."""

from .arrow_decoder import BATCH_ROWS, ArrowDecoder
from .arrow_encoder import ArrowEncoder

__all__ = ["BATCH_ROWS", "ArrowDecoder", "ArrowEncoder"]
