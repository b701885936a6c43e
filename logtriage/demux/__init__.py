"""Records in, lines with the process that wrote each out."""

from logtriage.demux.assign import Demux
from logtriage.demux.prefix import Prefix, split_prefix

__all__ = ["Demux", "Prefix", "split_prefix"]
