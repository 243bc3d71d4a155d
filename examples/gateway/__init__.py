"""An HTTP service over one table: JSON rows, batched and cached calls, health, metrics, graceful shutdown."""
