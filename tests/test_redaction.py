"""Secrets and control characters: what must go, what must stay, and the laws."""

from __future__ import annotations

import re
from functools import partial
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logtriage import redaction, secret_names
from logtriage.redaction import clean, redact, redact_arguments, redact_mapping
from logtriage.secret_names import secret_kind
from tests.steps import executed_lines, search_steps

CANARY = "Zq7xCanaryP4ss"

# One line for each way in which people let a secret into a log; CANARY is the secret.
CARRIERS = {
    "repr": "ServerArgs(model_path='m', api_key='{}', tp_size=8)",
    "dict": "server_args={{'admin_api_key': '{}', 'tp_size': 8}}",
    "double-quoted-repr": 'ssl_keyfile_password="{}", tp_size=8',
    "json": '{{"api_key": "{}", "n": 1}}',
    "compact-json": '{{"hf_token":"{}"}}',
    "escaped-json": r'"{{\"client_secret\": \"{}\"}}"',
    "bytes": "headers: [(b'x-api-key', b'{}')]",
    "tuple": "('authorization', '{}')",
    "flag": "python -m sglang.launch_server --api-key {} --tp 8",
    "flag-with-sign": "serve --admin-api-key={}",
    "quoted-flag": "serve --api-key '{}' --port 1",
    "flag-in-quotes": 'Environment="ARGS=--api-key {} --port 1"',
    "whole-flag-quoted": "'--api-key={} x' --port 1",
    "argv-repr": "argv: ['--api-key', '{}', '--port', '1']",
    "argv-json": '"--hf-token", "{}", "--port"',
    "bash-array": 'ARGS=( "--api-key" "{}" )',
    "continued-flag": "    --api-key \\\n    {} \\\n    --port 1",
    "yaml-list": "  - --api-key\n  - {}\n  - --port\n",
    "diff-of-yaml-list": '   - "--api-key"\n+  - "{}"\n',
    "environment": "HF_TOKEN={}",
    "environment-line": 'Environment="HF_TOKEN={}" "A=b"',
    "exported": "export OPENAI_API_KEY='{}'",
    "aws": "AWS_SECRET_ACCESS_KEY={}",
    "numbered": "OPENAI_API_KEY_2={}",
    "mapping-in-compose": "      HF_TOKEN: {}",
    "kubernetes-env": "- name: WANDB_API_KEY\n  value: {}\n",
    "kubernetes-env-json": '{{"name": "HF_TOKEN", "value": "{}"}}',
    "yaml-password": "password: {}",
    "camel-case": '"apiKey": "{}"',
    "unknown-company": "acme_token='{}'",
    "authorization": "Authorization: Bearer {}",
    "basic": "curl -H 'Authorization: Basic {}' http://x",
    "bearer": "sent header Bearer {} and got 401",
    "query": "GET /v1/models?api_key={}&page=2",
    "url": "http://user:{}@proxy.example:3128/",
    "url-without-password": "https://{}@huggingface.co/org/model",
    "go-map": "api_key => {}",
}


@pytest.mark.parametrize("line", CARRIERS.values(), ids=CARRIERS)
def test_a_secret_leaves_no_trace(line: str) -> None:
    shown, counts = redact(line.format(CANARY))
    assert CANARY not in shown
    assert sum(counts.values()) == 1
    [kind] = counts
    assert f"[redacted:{kind}]" in shown


@pytest.mark.parametrize("name", sorted(CARRIERS.keys() - {"url", "whole-flag-quoted"}))
def test_what_stands_beside_a_secret_stays(name: str) -> None:
    shown, counts = redact(CARRIERS[name].format(CANARY))
    [kind] = counts
    assert shown == CARRIERS[name].format(f"[redacted:{kind}]")


def test_a_user_name_in_a_url_goes_with_its_password() -> None:
    shown, _ = redact("http://user:pa55@proxy.example:3128/")
    assert shown == "http://[redacted:url-userinfo]@proxy.example:3128/"


def test_a_quoted_word_is_one_value() -> None:
    assert redact("'--api-key=pa55 w0rd' --port 1")[0] == "'--api-key=[redacted:api-key]' --port 1"


def test_two_tokens_in_a_row_both_go() -> None:
    shown, counts = redact("AKIAQX7ZT4LMW2RSV9KDhf_aB3dE6gH9jK2mN5pQ8sT")
    assert (shown, counts) == ("[redacted:api-key]", {"api-key": 1})


TOKENS = {
    "huggingface": ("hf_" + "aB3dE6gH9jK2mN5pQ8sT1vW4yZ7bC0dF3g", "token"),
    "openai": ("sk-proj-" + "aB3dE6gH9jK2mN5pQ8sT1vW4", "api-key"),
    "github": ("ghp_" + "aB3dE6gH9jK2mN5pQ8sT1vW4yZ7bC0dF3gH6", "token"),
    "aws": ("AKIA" + "QX7ZT4LMW2RSV9KD", "api-key"),
    "jwt": ("eyJhbGciOiJIUzI1NiJ9" + ".eyJzdWIiOiJ0ZXN0In0" + ".c2lnbmF0dXJl", "token"),
}


@pytest.mark.parametrize(("token", "kind"), TOKENS.values(), ids=TOKENS)
def test_a_token_is_known_by_its_shape(token: str, kind: str) -> None:
    assert redact(f"401 for {token}, giving up") == (f"401 for [redacted:{kind}], giving up", {kind: 1})


HARMLESS = (
    "[2026-03-09 12:00:01 TP0] Decode batch. #token: 5123, token usage: 0.07, gen throughput (token/s): 91.3",
    "[2026-03-09 12:00:01] Prefill batch, #new-seq: 1, #new-token: 8, #cached-token: 0, #pending-token: 20",
    "ServerArgs(tokenizer_path='/m/qwen', api_key=None, max_total_tokens=None, chunked_prefill_size=8192)",
    "{'api_key': None, 'admin_api_key': '', 'ssl_keyfile_password': None, 'max_total_tokens': 4096}",
    "bos_token='<s>', eos_token=\"<|im_end|>\", pad_token: <pad>, special_tokens={'a': 1}",
    "num_tokens=17 token_to_kv_pool=MHATokenToKVPool self.token_to_kv_pool_allocator = None",
    "    self.req_to_token_pool = ReqToTokenPool(size=max_num_reqs + 1)",
    "    api_key=server_args.api_key, hf_token=hf_token)",
    "    def __init__(self, api_key: Optional[str] = None, token: str = None):",
    "usage: launch_server.py [--api-key API_KEY] [--admin-api-key ADMIN_API_KEY] [--tokenizer-path PATH]",
    "the server needs --api-key to be set, see --ssl-keyfile",
    "serve --api-key ${API_KEY} --hf-token $HF_TOKEN",
    "ssl_keyfile='/etc/key.pem', cache_key=17, KeyError: 'bias'",
    "json.decoder.JSONDecodeError: Unexpected token: foo",
    "https://example.com/a@b, mail@example.com, nccl://10.0.0.1:5000",
    "Failed to determine user credentials: No such process",
    "PWD=/srv/app OLDPWD=/root",
)


@pytest.mark.parametrize("line", HARMLESS)
def test_harmless_names_are_left_alone(line: str) -> None:
    assert redact(line) == (line, {})


def test_secrets_are_counted_by_kind() -> None:
    line = "api_key='a1b2', admin_api_key='c3d4', ssl_keyfile_password='e5f6', proxy=http://u:p@h/"
    assert redact(line)[1] == {"api-key": 2, "password": 1, "url-userinfo": 1}


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("--api-key", "api-key"),
        ("HF_TOKEN", "token"),
        ("sslKeyfilePassword", "password"),
        ("hftoken", "token"),
        ("auth_tokens", "token"),
        ("DB_PWD", "password"),
        ("tokenizer_path", None),
        ("max_total_tokens", None),
        ("next_token", None),
        ("subtoken_id", None),
        ("", None),
        ("--", None),
    ],
)
def test_names_say_what_they_hold(name: str, kind: str | None) -> None:
    assert secret_kind(name) == kind


def test_a_command_line_keeps_its_words() -> None:
    words, counts = redact_arguments(["serve", "--api-key", "a b", "--hf-token=x9", "--api-key", "--tp", "8"])
    assert words == (
        "serve",
        "--api-key",
        "[redacted:api-key]",
        "--hf-token=[redacted:token]",
        "--api-key",
        "--tp",
        "8",
    )
    assert counts == {"api-key": 1, "token": 1}


def test_named_values_are_redacted_at_any_depth() -> None:
    values, counts = redact_mapping(
        {
            "api_key": "abc",
            "tp_size": 8,
            "extra": {"hf_token": "x", "urls": ["http://u:p@h/"]},
            "password": None,
        }
    )
    assert values == {
        "api_key": "[redacted:api-key]",
        "tp_size": 8,
        "extra": {"hf_token": "[redacted:token]", "urls": ["http://[redacted:url-userinfo]@h/"]},
        "password": None,
    }
    assert counts == {"api-key": 1, "token": 1, "url-userinfo": 1}


# --- laws -----------------------------------------------------------------------------------------

FRAGMENTS = st.sampled_from(
    [
        *"'\"\\=:,;()[]{}<>@#$%&?/ -\n\t`.",
        "api_key", "--api-key", "token", "HF_TOKEN", "password", "Authorization", "Bearer ", "://", "value",
        "hf_aB3dE6gH9jK2mN5pQ8sT", "sk-aB3dE6gH9jK2mN5p", "eyJhbGciOi.eyJzdWIi", "AKIAQX7ZT4LMW2RSV9KD",
        "[redacted:token]", "[redacted:api-key]", "None", "x", "9", "name: ", "- ", " = ", "='", "': '",
    ]
)  # fmt: skip
HOSTILE = st.lists(st.one_of(FRAGMENTS, st.text(max_size=3)), max_size=14).map("".join)


@settings(max_examples=1500, deadline=None)
@given(HOSTILE)
def test_redacting_twice_changes_nothing_more(text: str) -> None:
    once, _ = redact(text)
    assert redact(once) == (once, {})


@settings(deadline=None)
@given(HOSTILE)
def test_redacting_never_changes_the_number_of_lines(text: str) -> None:
    assert redact(text)[0].count("\n") == text.count("\n")


@settings(max_examples=500, deadline=None)
@given(st.text(st.characters(codec=None)))
def test_cleaning_twice_changes_nothing_more(text: str) -> None:
    assert clean(clean(text)) == clean(text)


FORBIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]"
)


@settings(max_examples=500, deadline=None)
@given(
    st.lists(
        st.one_of(st.text(max_size=4), st.sampled_from(["\x1b[", "\x1b]", "\x9b", "31m", "\x07", "\x1b\\"]))
    )
)
def test_a_terminal_finds_nothing_to_obey(pieces: list[str]) -> None:
    assert not FORBIDDEN.search(clean("".join(pieces)))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[1;31mERROR\x1b[0m: x", "ERROR: x"),
        ("\x1b[?25l\x1b[2Kdone", "done"),
        ("\x1b]0;title\x07text", "text"),
        ("\x1b]8;;http://evil\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1bPq#1\x1b\\after", "after"),
        ("\x9b31mred", "red"),
        ("\x1b]0;never ends\nnext line", "0;never ends\nnext line"),
        ("\x1bMup", "up"),
        ("50%\r100%\r\n", "50%100%\n"),
        ("a\tb\nc", "a\tb\nc"),
        ("\u202egnp.exe\u2066x", "gnp.exex"),
        ("api\u200b_key", "api_key"),
        ("caf\u00e9 \u6a21\u578b \U0001f600", "caf\u00e9 \u6a21\u578b \U0001f600"),
        ("bad \udcff byte", "bad \ufffd byte"),
        ("plain", "plain"),
    ],
)
def test_control_characters_are_removed_and_text_stays(text: str, shown: str) -> None:
    assert clean(text) == shown


WORST = (
    "token",
    "api_key=",
    "api_key='",
    '"api_key": "',
    "--api-key ",
    "://a",
    "x://",
    "eyJ-",
    "eyJaaaa.",
    "sk-",
    "hf_",
    "Bearer ",
    "\\",
    "'",
    "api_key='\\",
    "--api-key\n- ",
    "Authorization: ",
)


PATTERNS: Final = {
    f"{module.__name__.rpartition('.')[2]}.{name}{key}": pattern
    for module in (redaction, secret_names)
    for name, value in vars(module).items()
    for key, pattern in (value.items() if isinstance(value, dict) else [("", value)])
    if isinstance(pattern, re.Pattern)
}
ESCAPES: Final = ("\x1b", "\x1b[", "\x1b]", "\x1b[0", "\x1bP", "\x9d", "\x1b]\x1b")
LENGTH: Final = 1_200
MOST_STEPS: Final = 150  # for a character; if the steps grew with the square there would be 600


def repeated(unit: str, length: int = LENGTH) -> str:
    return (unit * (length // len(unit) + 1))[:length] + " token= a://b@c"  # so that no shortcut is taken


def test_every_pattern_of_the_room_is_counted() -> None:
    assert len(PATTERNS) > 20
    assert {"redaction._CONTROL", "redaction._SHAPE", "redaction._QUOTED'", "secret_names.MARK"} <= set(PATTERNS)


def test_the_count_of_steps_tells_linear_patterns_from_others() -> None:
    text = "a" * LENGTH
    assert search_steps(re.compile("a*b"), text) > MOST_STEPS * LENGTH
    assert search_steps(re.compile("(?<!a)a*b"), text) < 10 * LENGTH
    assert search_steps(re.compile("(?:a+a)+b"), "a" * 12) > MOST_STEPS * 12


@pytest.mark.parametrize("pattern", PATTERNS.values(), ids=PATTERNS)
def test_the_steps_of_a_pattern_are_bounded_for_each_character(pattern: re.Pattern[str]) -> None:
    for unit in (*WORST, *ESCAPES):
        text = repeated(unit)
        assert search_steps(pattern, text) < MOST_STEPS * len(text), unit


@pytest.mark.parametrize("unit", WORST)
def test_each_character_of_a_hostile_text_is_looked_at_a_few_times(unit: str) -> None:
    few, many = (executed_lines(partial(redact, repeated(unit, size))) for size in (2_000, 8_000))
    assert many < 5 * few + 1_000  # linear is 4, the square would be 16


@pytest.mark.parametrize("unit", ESCAPES)
def test_hostile_escapes_leave_nothing_to_obey(unit: str) -> None:
    cleaned = clean(unit * (100_000 // len(unit)))
    assert len(cleaned) <= 100_000
    assert not set(cleaned) & set("\x1b\x9d\x90")
