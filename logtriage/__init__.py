r"""Reads what a dying LLM inference server left behind; answers with the root cause and the patch that fixes it.

The flow, one arrow an interface (``feed`` and ``close``)::

     bytes ─► scan ─► formats ─► demux ─► events ─► incidents ─► rootcause ─► matching ─► diagnosis ─► renderers
             lines    Record     Line     Event     Incident     Verdict      Match       Report       text json
             worth    time unit  process  traceback one          root, part   signature                markdown
             reading  pid text   rank     exit Xid  invocation   and reason   captures        │
                                                                                              ▼
                                                remediation: Remediation × file text ─► Patch (unified diff)

>>> report = triage([b"ValueError: nothing known\n"])
>>> report.diagnoses[0].verdict.root.message
'ValueError: nothing known'
"""

from logtriage._version import VERSION
from logtriage.database import Database, load_database
from logtriage.errors import DatabaseError, LogtriageError, PatchError, SignatureError, SourceError
from logtriage.model import Diagnosis, Patch, Record, Remediation, Report
from logtriage.remediation import propose_patch
from logtriage.renderers import render
from logtriage.triage import Limits, Triage, triage

__version__ = VERSION

__all__ = [
    "Database",
    "DatabaseError",
    "Diagnosis",
    "Limits",
    "LogtriageError",
    "Patch",
    "PatchError",
    "Record",
    "Remediation",
    "Report",
    "SignatureError",
    "SourceError",
    "Triage",
    "__version__",
    "load_database",
    "propose_patch",
    "render",
    "triage",
]
