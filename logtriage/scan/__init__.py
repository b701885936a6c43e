"""Raw bytes in, the few lines worth reading out: a prefilter that may say yes too often, never no."""

from logtriage.scan.anchors import AFTER, ANCHORS, BEFORE, MARKS
from logtriage.scan.pure import RawLine, Scanner

__all__ = ["AFTER", "ANCHORS", "BEFORE", "MARKS", "RawLine", "Scanner"]
