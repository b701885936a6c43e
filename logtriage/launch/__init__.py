"""What was started: argument records and command-line flags in, their meaning out."""

from logtriage.launch.flags import (
    did_you_mean,
    flag_arity,
    knows_flag,
    knows_value,
    replacement_of,
    resolve_flag,
    same_flag,
)
from logtriage.launch.server_args import parse_server_args

__all__ = [
    "did_you_mean",
    "flag_arity",
    "knows_flag",
    "knows_value",
    "parse_server_args",
    "replacement_of",
    "resolve_flag",
    "same_flag",
]
