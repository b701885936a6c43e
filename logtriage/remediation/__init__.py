"""Wanted changes and a file that starts the server go in; a patch of that file comes out."""

from logtriage.remediation.propose import drop_in, propose_patch

__all__ = ["drop_in", "propose_patch"]
