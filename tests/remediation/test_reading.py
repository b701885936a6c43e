"""Scripts and units, read."""

from logtriage.remediation.shell import Script, read_script
from logtriage.remediation.source import View
from logtriage.remediation.unit import Setting, read_commands, read_settings


def script(text: str) -> Script:
    return read_script(View.of_file(text))


def commands(text: str) -> list[list[str]]:
    return [[word.text for word in command.words] for command in script(text).commands]


def settings(text: str) -> list[tuple[str, str, str]]:
    return [(s.section, s.key, s.value.text) for s in read_settings(View.of_file(text))]


def setting(text: str) -> Setting:
    return read_settings(View.of_file(text))[0]


def test_commands_end_at_operators_and_lines() -> None:
    assert commands("a b; c && d || e | f & g\nh") == [["a", "b"], ["c"], ["d"], ["e"], ["f"], ["g"], ["h"]]


def test_words_of_the_grammar_are_no_commands() -> None:
    text = "if a; then b; elif ! c; then { d; }; else e; fi\nwhile f; do time g; done\nh() { i; }\n(j)"
    found = [words[0] for words in commands(text) if words[0] not in {"fi", "done", "}", "h"}]
    assert found == ["a", "b", "c", "d", "e", "f", "g", "i", "j"]


def test_here_documents_and_arithmetic_are_passed_over() -> None:
    text = "a <<E 'x'\n b 'c\nE\nd <<-'F' <<G\n\te\n\tF\ng\nG\n((h << 2))\ni <<<'j k' l"
    assert commands(text) == [["a", "x"], ["d"], ["i", "l"]]


def test_arrays_are_read_with_their_comments() -> None:
    read = script("A=(b 'c d' # e's )\n f)\nA+=( \\\n g )\nh")
    assert [(array.name, [word.text for word in array.words]) for array in read.arrays] == [
        ("A", ["b", "c d", "f"]),
        ("A", ["g"]),
    ]
    assert [command.words[0].text for command in read.commands] == ["h"]


def test_expansions_are_known_by_name_and_default() -> None:
    (command,) = script('a $b ${c} "${d[@]}" ${e:-f} ${g-h} $1 $(i) ${j%k} "x${l}"').commands
    found = [
        (e.name, word.text[slice(*e.default)] if e.default else None, e.array)
        for word in command.words
        for e in word.expansions
    ]
    assert found == [
        ("b", None, False),
        ("c", None, False),
        ("d", None, True),
        ("e", "f", False),
        ("g", "h", False),
        ("", None, False),
        ("", None, False),
        ("", None, False),
        ("l", None, False),
    ]


def test_only_a_command_that_begins_a_line_can_have_a_line_put_before_it() -> None:
    read = script("a; b\n  c\nd &&\n  e\nf \\\n g\nif h; then\n  i\nfi")
    leading = [command.words[0].text for command in read.commands if command.leads_line]
    assert leading == ["a", "c", "d", "f", "i", "fi"]


def test_a_view_of_a_windows_file_keeps_its_places() -> None:
    text = "a\r\nb\rc\r\n"
    view = View.of_file(text)
    assert view.text == "a\nb\rc\n"
    assert [text[view.starts[at] : view.ends[at]] for at in range(len(view.text))] == [
        "a",
        "\r\n",
        "b",
        "\r",
        "c",
        "\r\n",
    ]
    assert view.encode("x\ny", 0) == "x\r\ny"


def test_settings_are_joined_over_lines_and_comments() -> None:
    lines = [
        *("; note", "[Unit]", "A = b ", "", "[Service]", "C=d \\", "# e \\", "  ; f", "  g\\", "", "H="),
        *("no setting", "I=j\\\\", "K=l \\\r", " m\r", "N=o\\"),
    ]
    text = "\n".join(lines)
    assert settings(text) == [
        ("Unit", "A", "b"),
        ("Service", "C", "d    g"),
        ("Service", "H", ""),
        ("Service", "I", "j\\\\"),
        ("Service", "K", "l   m"),
        ("Service", "N", "o"),
    ]


def test_a_blank_behind_the_backslash_is_seen() -> None:
    assert setting("[S]\nA=b \\ \n c").cut == 8
    assert setting("[S]\nA=b \\\n c").cut is None
    assert setting("[S]\nA=b \\\\ \n").cut is None


def test_command_lines_may_be_several_and_have_prefixes() -> None:
    value = setting("[Service]\nExecStart=-@/bin/a a x ; :!/bin/b $$c \\; ; /bin/d").value
    assert [[word.text for word in words] for words in read_commands(value)] == [
        ["/bin/a", "a", "x"],
        ["/bin/b", "$$c", ";"],
        ["/bin/d"],
    ]
