"""The table of flags, and the questions asked of it."""

import json
from importlib import resources

import pytest

from logtriage.launch import (
    did_you_mean,
    flag_arity,
    knows_flag,
    knows_value,
    replacement_of,
    resolve_flag,
    same_flag,
)


@pytest.mark.parametrize(
    ("name", "release", "canonical"),
    [
        ("--tp-size", None, "--tp-size"),
        ("--tensor-parallel-size", None, "--tp-size"),
        ("--tp", None, "--tp-size"),
        ("--tp", "0.4.9", "--tp-size"),
        ("--dp", "0.5.9", "--dp-size"),
        ("--mem-fraction", "0.5.9", "--mem-fraction-static"),
        ("--context-len", None, "--context-length"),
        ("--model", "0.5.9", "--model-path"),
        ("--ep", "0.5.9", "--ep-size"),
        ("--expert-parallel-size", "0.5.9", "--ep-size"),
        ("--nccl-init-addr", None, "--dist-init-addr"),
        ("--attention-backend", "0.5.9", "--attention-backend"),
        # From 0.5.9 on --attention-context-parallel-size begins like it.
        ("--attention", "0.5.8", "--attention-backend"),
        ("--attention", "0.5.9", None),
        ("--cuda-graph-max-bs", "0.5.13", "--cuda-graph-max-bs"),
        ("--cuda-graph-max-bs", None, "--cuda-graph-max-bs"),
        ("--enable-flashinfer-mla", "0.5.9", None),
        ("--enable-flashinfer-mla", "0.4.5", "--enable-flashinfer-mla"),
        ("--prefill-attention-backend", "0.4.9", None),
        ("--no-lora-strict-loading", "0.5.12", "--no-lora-strict-loading"),
        ("--attention_backend", None, None),
        ("--enable", None, None),
        ("--not-a-flag", None, None),
        ("--", None, None),
        ("tp", None, None),
        ("", None, None),
    ],
)
def test_a_flag_resolves_as_argparse_would(name: str, release: str | None, canonical: str | None) -> None:
    assert resolve_flag(name, release) == canonical
    assert knows_flag(name, release) is (canonical is not None)


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ("--tp", "--tensor-parallel-size", True),
        ("--tp", "--tp-size", True),
        ("--model", "--model-path", True),
        ("--attention_backend", "--attention-backend", True),
        ("--attention-backend", "--prefill-attention-backend", False),
        ("--tp-size", "--dp-size", False),
        ("--max-model-len", "--max_model_len", True),
        ("--max-model-len", "--max-num-seqs", False),
        ("-tp", "-tp", True),
        ("--no-dllm-fdfo", "--dllm-fdfo", False),
    ],
)
def test_spellings_of_one_flag_are_the_same(first: str, second: str, same: bool) -> None:
    assert same_flag(first, second) is same
    assert same_flag(second, first) is same


@pytest.mark.parametrize(
    ("name", "value", "release", "known"),
    [
        ("--attention-backend", "triton", "0.3.6.post3", True),
        ("--attention-backend", "fa3", "0.4.4", False),
        ("--attention-backend", "fa3", "0.4.5", True),
        ("--attention-backend", "fa4", "0.5.2", False),
        ("--attention-backend", "fa4", "0.5.3", True),
        ("--attention-backend", "hybrid_linear_attn", "0.5.2", True),
        ("--attention-backend", "hybrid_linear_attn", "0.5.3", False),
        ("--attention-backend", "cutlass_mla", "0.5.19", True),
        ("--attention-backend", "cutlass_mla", "0.5.20", False),
        ("--attention-backend", "intel_xpu", "0.5.6.post2", True),
        ("--attention-backend", "trtllm_mha", "0.5.9", True),
        ("--attention-backend", "dsa", "0.5.13rc1", True),
        ("--kv-cache-dtype", "bf16", "0.5.3", False),
        ("--kv-cache-dtype", "bf16", "0.5.4", True),
        ("--quantization", "qoq", "0.5.16", False),
        ("--quantization", "marlin", "0.5.20", False),
        ("--quantization", "compressed-tensors", "0.5.4", True),
        ("--moe-runner-backend", "deep_gemm", "0.5.4", True),
        ("--moe-a2a-backend", "mori", "0.5.8", False),
        ("--sampling-backend", "pytorch", "0.5.6", True),
        ("--sampling-backend", "anything", "0.5.19", None),
        ("--grammar-backend", "none", "0.4.4", False),
        ("--load-format", "presharded", "0.5.17", True),
        ("--tp-size", "8", "0.5.9", None),
        ("--not-a-flag", "x", "0.5.9", None),
        ("--attention-backend", "fa3", "not a release", None),
        ("--attention-backend", "llada2_cfg_flashinfer", None, True),
    ],
)
def test_values_are_judged_by_release(name: str, value: str, release: str | None, known: bool | None) -> None:
    assert knows_value(name, value, release) is known


@pytest.mark.parametrize(
    ("name", "arity"),
    [
        ("--trust-remote-code", "none"),
        ("--disable-cuda-graph", "none"),
        ("--enable-dp-attention", "none"),
        ("--attention-backend", "one"),
        ("--tp", "one"),
        ("--mem-fraction-static", "one"),
        ("--cuda-graph-bs", "many"),
        ("--lora-paths", "many"),
        ("--model-checksum", "maybe"),
        ("--enable_mixed_chunk", "none"),
        ("--gpu-memory-utilization", None),
    ],
)
def test_it_is_known_which_flags_take_a_value(name: str, arity: str | None) -> None:
    assert flag_arity(name) == arity


def test_a_flag_that_went_names_the_one_that_came() -> None:
    assert replacement_of("--nsa-decode-backend") == "--dsa-decode-backend"
    assert replacement_of("--cuda-graph-max-bs") == "--cuda-graph-max-bs-decode"
    assert replacement_of("--tp-size") is None
    assert replacement_of("--not-a-flag") is None


@pytest.mark.parametrize(
    ("word", "candidates", "meant"),
    [
        ("--attention_backend", None, "--attention-backend"),
        ("--reasoning_parser", None, "--reasoning-parser"),
        ("--mem-fraction-statik", None, "--mem-fraction-static"),
        ("flash_infer", ["flashinfer", "triton"], "flashinfer"),
        ("Triton", ["flashinfer", "triton"], "triton"),
        ("torch-native", ["torch_native", "triton"], "torch_native"),
        ("zzz", ["flashinfer", "triton"], None),
        ("--zzz", None, None),
        ("x", [], None),
        ("y" * 100_000, None, None),
    ],
)
def test_a_near_miss_finds_what_was_meant(word: str, candidates: list[str] | None, meant: str | None) -> None:
    assert did_you_mean(word, candidates) == meant


def test_every_row_of_the_table_is_well_formed() -> None:
    text = resources.files("logtriage.launch").joinpath("flags-sglang.json").read_text(encoding="utf-8")
    data = json.loads(text)
    assert (data["engine"], data["first"], data["last"]) == ("sglang", "0.3.6.post3", "0.5.23")
    assert len(data["flags"]) > 600
    allowed = {"since", "until", "takes", "aliases", "choices", "instead", "negatable"}
    for name, row in data["flags"].items():
        assert name.startswith("--"), name
        assert set(row) <= allowed, name
        assert row.get("takes") in {None, "none", "one", "many", "maybe"}, name
        assert row.get("instead", name) in data["flags"], name
        for removed in row.get("choices", {}).values():
            assert removed is None or removed == " ".join(removed.split()), name


def test_no_name_means_two_flags() -> None:
    text = resources.files("logtriage.launch").joinpath("flags-sglang.json").read_text(encoding="utf-8")
    flags = json.loads(text)["flags"]
    names = [*flags, *(alias for row in flags.values() for alias in row.get("aliases", {}))]
    assert len(names) == len(set(names))
