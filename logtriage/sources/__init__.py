"""A path or standard input goes in; blocks of bytes, or the records of a binary journal, come out."""

from logtriage.sources.files import BLOCK, STDIN, open_source

__all__ = ["BLOCK", "STDIN", "open_source"]
