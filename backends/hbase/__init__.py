"""Backend "hbase": tables in HBase through its Thrift gateway, with transactions made of write intents."""

from .backend import HBaseBackend

__all__ = ["HBaseBackend"]
