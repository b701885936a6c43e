"""The name and the value of a field go in; whether it is a secret, and of which kind, comes out.

Names are an allow-list: an inference server talks about tokens all day, and ``max_total_tokens=4096``
is no secret.  For tokens the default is the other way round, because every company has a name of its
own for them: ``*_token`` is a secret unless the words before it speak of text or of counting.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

__all__ = ["MARK", "PROSE", "is_harmless", "marker", "secret_kind", "split_words"]

# --- which names introduce a secret ---------------------------------------------------------------

_KEY_NAMES: Final = (
    "apikey", "apikeys", "accesskey", "accesskeyid", "accountkey", "adminkey", "authkey", "encryptionkey",
    "licensekey", "masterkey", "privatekey", "secretkey", "signingkey", "subscriptionkey",
)  # fmt: skip
_PASSWORD_NAMES: Final = ("password", "passwords", "passwd", "passphrase")
_SECRET_WORDS: Final = frozenset({"secret", "secrets", "credential", "credentials", "authorization"})

# Words before "token" that say whose token it is: always a secret, in the plural and as one word too.
_TOKEN_OWNERS: Final = frozenset({
    "access", "admin", "api", "auth", "aws", "azure", "bearer", "bot", "csrf", "deploy", "discord", "gcp",
    "gh", "git", "github", "gitlab", "google", "hf", "hub", "huggingface", "id", "jwt", "login",
    "modelscope", "ngc", "npm", "oauth", "openai", "private", "pypi", "refresh", "registry", "sas",
    "secret", "security", "service", "session", "slack", "telegram", "user", "vault", "wandb",
})  # fmt: skip
# Words before "token" that say what kind of text it is, or what is counted.
_TOKEN_TEXT: Final = frozenset({
    "added", "audio", "begin", "bos", "cached", "call", "cls", "code", "context", "decode", "decoder",
    "draft", "each", "end", "eos", "every", "extra", "fim", "first", "forced", "generated", "image",
    "input", "invalid", "kv", "last", "mask", "max", "min", "multimodal", "new", "next", "no", "num", "of",
    "one", "out", "output", "pad", "pending", "per", "prefill", "prefix", "prev", "previous", "prompt",
    "reasoning", "reserved", "same", "sample", "sampled", "sentinel", "sep", "single", "special", "spec",
    "start", "stop", "sub", "system", "text", "the", "think", "thinking", "time", "tool", "total", "turn",
    "unexpected", "unk", "unused", "video", "vision", "word",
})  # fmt: skip
_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_WORD_BREAK: Final = re.compile(r"[-_.\s]+")


def split_words(name: str) -> list[str]:
    """The words of a name in any spelling, in lower case, without a number at the end."""
    words = [word for word in _WORD_BREAK.split(_CAMEL.sub("_", name).lower()) if word]
    while len(words) > 1 and words[-1].isdigit():  # OPENAI_API_KEY_2
        words.pop()
    return words


@lru_cache(maxsize=2048)  # a server repeats the same few names on every line
def secret_kind(name: str) -> str | None:
    """Say what kind of secret a field, flag, variable or header of this name holds.

    Args:
        name: The name in any spelling: ``--api-key``, ``HF_TOKEN``, ``sslKeyfilePassword``.

    Returns:
        ``api-key``, ``token`` or ``password``; ``None`` if the name is harmless.

    >>> secret_kind("AWS_SECRET_ACCESS_KEY"), secret_kind("max_total_tokens")
    ('api-key', None)
    """
    words = split_words(name)
    if not words:
        return None
    last, flat = words[-1], "".join(words)
    if flat.endswith(_KEY_NAMES):
        return "api-key"
    if last.endswith(_PASSWORD_NAMES) or (last == "pwd" and len(words) > 1 and words[0] != "old"):
        return "password"
    if last in _SECRET_WORDS:
        return "token"
    if last.endswith(("token", "tokens")):
        owner = last.removesuffix("s").removesuffix("token") or (words[-2] if len(words) > 1 else "")
        if owner in _TOKEN_OWNERS:
            return "token"
        if last == "token" and owner not in _TOKEN_TEXT:
            return "token"
    return None


def marker(kind: str) -> str:
    """The text that stands where a secret of *kind* stood."""
    return f"[redacted:{kind}]"


# --- which values are no secret -------------------------------------------------------------------

MARK: Final = re.compile(r"\[redacted:[a-z-]{1,20}\]")
_EMPTY: Final = frozenset({
    "", "none", "null", "nil", "true", "false", "unset", "undefined", "n/a", "redacted", "hidden", "str",
    "bytes",
})  # fmt: skip
# ${NAME}, $NAME, {{ template }}, %(name)s: where the secret is taken from, which a reader needs.
_REFERENCE: Final = re.compile(r"\$\{?[A-Z_][A-Z0-9_]*\}?|\{\{[^{}]*\}\}|%\([A-Za-z_]+\)s")
# Source lines in a traceback: self.api_key, os.environ.get(...), Optional[str].
_EXPRESSION: Final = re.compile(
    r"(?:self|cls|args|server_args|kwargs|config|os|request|settings|Optional|Union|SecretStr)\b[\w.\[\](]*"
)
PROSE: Final = frozenset({
    "a", "an", "and", "are", "as", "auth", "authentication", "authorization", "can", "cannot", "does",
    "error", "flag", "for", "from", "given", "has", "header", "if", "in", "is", "may", "missing", "must",
    "needs", "not", "of", "on", "option", "or", "required", "requires", "should", "that", "the", "to",
    "token", "tokens", "value", "via", "was", "when", "which", "will", "with",
})  # fmt: skip


def is_harmless(value: str, name: str, *, quoted: bool) -> bool:
    """Say whether the value of a name that introduces secrets is none.

    Args:
        value: The value, without its quotes.
        name: The name, as :func:`secret_kind` took it.
        quoted: It stood in quotes, so it is no expression of source code.

    Returns:
        Whether it is empty, a reference to where the secret is kept, a mark of ours, or source code.
    """
    folded = value.lower()
    if folded in _EMPTY or not value.strip("*.-") or MARK.fullmatch(value) or _REFERENCE.fullmatch(value):
        return True
    words = split_words(name)
    about_text = words[-1] in ("token", "tokens") and name.islower() and not _TOKEN_OWNERS.intersection(words)
    if about_text and (value[0] == "<" or value.replace(".", "", 1).isdigit()):
        return True  # #pending-token: 20, stop_token='<|end|>'
    if quoted:
        return False
    if value.isupper() and split_words(value) == words:  # usage text: --api-key API_KEY
        return True
    path = value.rstrip(",)")
    return bool(_EXPRESSION.match(value)) or (path.isidentifier() and split_words(path)[-2:] == words[-2:])
