"""Completion: what shells ask and get, the names of the store among it, and how little it loads."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys

import pytest

from rmqtool.cli import command_tree
from rmqtool.commands import completion
from rmqtool.commands.completion_table import COMMANDS
from tests.cli.test_start_up import HEAVY, modules_after, processor_seconds
from tests.docs.completion import TABLE, completion_table
from tests.support.stores import left_alone

RUN = "from rmqtool.__main__ import main; main()"


def offered(monkeypatch, line: str, **variables: str) -> list[str]:
    """Return the values offered in place of the last word of ``line``; a space at its end begins a new one."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    *words, text = line.split(" ")
    found = completion.candidates(words, text)
    return ["FILES"] if found is None else [value for value, _ in found]


@pytest.fixture(autouse=True)
def no_default_store(monkeypatch, tmp_path):
    monkeypatch.delenv("RMQTOOL_STORE", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


def test_the_table_is_what_the_commands_say_today():
    assert TABLE.read_text(encoding="utf-8") == completion_table(command_tree()), "run `make docs`"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("inf", ["info"]),
        ("che", ["check"]),
        ("query --j", ["--jobs", "--json", "--jsonl"]),
        ("stat S --by topic,ta", ["topic,tag"]),
        ("stat S --by topic,t", ["topic,tag"]),
        ("stat S --by topic,topic", []),
        ("produce S --delay ", []),
        ("produce S --tag ", []),
        ("cat S --template ", []),
        ("cat S --tag ", []),
        ("export S --columns keys,stor", ["keys,store_size", "keys,store_timestamp", "keys,store_host"]),
        ("repair S --undo ", ["last"]),
        ("repair S --undo ../s", ["FILES"]),
        ("check S --explain CL-MI", ["CL-MID"]),
        ("check S --only CL-MI", ["CL-MID"]),
        ("cat --as 5", ["5.3", "5.4"]),
        ("cat --as=5", ["--as=5.3", "--as=5.4"]),
        ("cat --as = 5", ["5.3", "5.4"]),
        ("cat -b yes", ["yesterday"]),
        ("cat -b -1", ["-1h", "-1d"]),
        ("man rec", ["recover", "recipes"]),
        ("man rem", ["remoting"]),
        ("man CL-MI", ["CL-MID"]),
        ("--debug inf", ["info"]),
        ("--vers", ["--version"]),
        ("nonsense ", []),
        ("stat re", ["FILES"]),
        ("export S --to ", ["FILES"]),
        ("cat S extra ", []),
    ],
)
def test_words_of_the_commands(line, expected, monkeypatch):
    assert offered(monkeypatch, line) == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("cat {} -t Orde", ["OrderTopic"]),
        ("cat {} --topic=Orde", ["--topic=OrderTopic"]),
        ("topic {} alter Orde", ["OrderTopic"]),
        ("topic {} a", ["alter"]),
        ("stat {} re", ["retry", "retention"]),
        ("cat {}/consumequeue -t Orde", ["OrderTopic"]),
        ("cat {} -t OrderTopic -q ", ["0", "2", "10"]),
        ("cat {} -t Ord* -q ", ["0", "2", "10"]),
        ("cat {} -q ", ["0", "1", "2", "10"]),
        ("info {} groups -g ", ["%LMQ%g", "G_half", "G_named"]),
        ("info {} groups -g G_h", ["G_half"]),
    ],
)
def test_names_of_the_store(line, expected, monkeypatch, tmp_path):
    for queue in ("OrderTopic/0", "OrderTopic/2", "OrderTopic/10", "Other/1"):
        (tmp_path / "s/consumequeue" / queue).mkdir(parents=True)
    config = tmp_path / "s/config"
    config.mkdir()
    # Only a half of each file is there, and fastjson's numbers as keys: no parser takes either.
    (config / "topics.json").write_text('{"topicConfigTable":{"NoQueues":{"topicName":"NoQueues","perm":6')
    (config / "subscriptionGroup.json.bak").write_text('{"subscriptionGroupTable":{"G_named":{"groupName":"G_named"')
    (config / "consumerOffset.json").write_text('{"offsetTable":{"OrderTopic@G_half":{0:5,1:6},"Other@%LMQ%g":{0')
    assert offered(monkeypatch, line.format(tmp_path / "s")) == expected
    assert offered(monkeypatch, "cat -t NoQ", RMQTOOL_STORE=str(tmp_path / "s")) == ["NoQueues"]


def test_a_broker_conf_leads_to_its_store(monkeypatch, tmp_path):
    (tmp_path / "s/consumequeue/T/0").mkdir(parents=True)
    (tmp_path / "broker.conf").write_text(f"# x\nbrokerName=a\nstorePathRootDir = {tmp_path}/s\n")
    assert offered(monkeypatch, f"cat {tmp_path}/broker.conf -t ") == ["T"]


def test_without_a_store_the_words_of_the_command_are_for_the_default_one(monkeypatch, tmp_path):
    assert offered(monkeypatch, "info ") == ["FILES"]
    (tmp_path / "store/consumequeue/T/0").mkdir(parents=True)
    assert offered(monkeypatch, "info g") == ["groups"]
    assert offered(monkeypatch, "cat -t ") == ["T"]


def ask(shell: str, line: str, **more: str) -> tuple[set[str], str]:
    words = line.split(" ")
    variables = (
        {"COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)} if shell == "bash" else {"_TYPER_COMPLETE_ARGS": line}
    )
    return modules_after(RUN, _RMQTOOL_COMPLETE=f"complete_{shell}", **variables, **more)


@pytest.mark.parametrize(
    ("shell", "expected"),
    [
        ("bash", "T_pop\nT_popfifo\n"),
        ("zsh", '_arguments \'*: :(("T_pop":"2 queues"\n"T_popfifo":"1 queue"))\'\n'),
        ("fish", "T_pop\t2 queues\nT_popfifo\t1 queue\n"),
    ],
)
def test_every_shell_gets_topics_in_its_own_words_and_little_is_loaded(shell, expected, store):
    with left_alone(store("54-broker")):
        modules, out = ask(shell, f"rmqtool cat {store('54-broker')} -t T_pop", _TYPER_COMPLETE_FISH_ACTION="get-args")
    assert out == expected
    assert {name.partition(".")[0] for name in modules} & (HEAVY | {"typer", "json", "dataclasses"}) == set()
    assert {name for name in modules if name.startswith("rmqtool")} <= {
        "rmqtool",
        "rmqtool.__main__",
        "rmqtool.commands",
        "rmqtool.commands.completion",
        "rmqtool.commands.completion_table",
        "rmqtool.commands.store_names",
    }


@pytest.fixture
def bash_script() -> str:
    """Return what --show-completion prints in bash."""
    # Not as the last command, which bash would become: its parent is what the tool looks at.
    asked = ["bash", "--norc", "-c", '"$0" -m rmqtool --show-completion; true', sys.executable]
    return subprocess.run(asked, capture_output=True, text=True, check=True).stdout


@pytest.fixture
def in_path(tmp_path) -> dict[str, str]:
    """Return an environment in which ``rmqtool`` completes, and otherwise prints the words it was given."""
    run = f'exec "{sys.executable}" -m rmqtool "$@"'
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/rmqtool").write_text(f'#!/bin/sh\n[ -z "$_RMQTOOL_COMPLETE" ] || {run}\necho "TYPED($*)"\n')
    (tmp_path / "bin/rmqtool").chmod(0o755)
    return {**os.environ, "PATH": f"{tmp_path}/bin:{os.environ['PATH']}", "PYTHONPATH": os.getcwd()}


def test_bash_runs_what_show_completion_prints(store, bash_script, in_path):
    words = f"COMP_WORDS=(rmqtool cat {store('54-broker')} -t %RETRY%G_o); COMP_CWORD=4"
    asked = f'{bash_script}\n{words}\n_rmqtool_completion rmqtool\nprintf "%s\\n" "${{COMPREPLY[@]}}"'
    done = subprocess.run(["bash", "--norc", "-c", asked], capture_output=True, text=True, env=in_path, check=True)
    assert done.stdout.split() == ["%RETRY%G_ok", "%RETRY%G_order"]


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("rmqtool inf", "info"),
        ("rmqtool query S --jsonl --kin", "query S --jsonl --kind"),
        ("rmqtool export S --to on", "export S --to only.here"),
        ("rmqtool info on", "info only.here"),
        ("rmqtool cat S --template on", "cat S --template on"),
        ("rmqtool nonsense on", "nonsense on"),
    ],
)
def test_bash_offers_files_only_where_a_path_belongs(typed, expected, bash_script, in_path, tmp_path):
    """A real bash at a terminal: a tab, then return; what it runs is what the line had become."""
    place = tmp_path / "place"
    place.mkdir()
    (place / "only.here").touch()
    (tmp_path / "script").write_text(bash_script)
    shell, terminal = os.openpty()
    command = ["bash", "--norc", "--noprofile", "-i"]
    environment = in_path | {"TERM": "dumb", "HOME": str(tmp_path), "INPUTRC": "/dev/null"}
    with subprocess.Popen(
        command, stdin=terminal, stdout=terminal, stderr=terminal, cwd=place, env=environment, start_new_session=True
    ) as bash:
        os.close(terminal)
        os.write(shell, f"source {tmp_path}/script\n{typed}\t\nexit\n".encode())
        said = b""
        with contextlib.suppress(OSError):  # Linux says EIO where the other side of a terminal is gone
            while more := os.read(shell, 4096):
                said += more
        bash.wait(60)
    os.close(shell)
    assert re.findall(r"TYPED\((.*?) ?\)", said.decode()) == [expected], said.decode()


# zsh evaluates the line, its function _arguments evaluates what is in the double brackets, and what shows the
# descriptions takes a backslash for an escape.
_AS_ZSH = r"""
_arguments() {
    local action=${1#'*: :(('}; action=${action%'))'}; action=${action//'\:'/:}
    eval "ws=( $action )"; printf '%s\n' "${ws[@]}" | sed 's/\\\(.\)/\1/g'
}
_files() { echo FILES; }
eval "$(cat)"
"""


def seen_by_zsh(line: str) -> list[str]:
    _, out = ask("zsh", line)
    done = subprocess.run(["bash", "--norc", "-c", _AS_ZSH], input=out, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout.splitlines()


def test_zsh_shows_descriptions_as_they_are():
    for command in (command for command in COMMANDS if command[0] in ("cat", "recover", "export", "produce")):
        name, _, _, options = command
        wanted = [f"{names[-1]}:{says}" for names, says, _ in options]
        assert seen_by_zsh(f"rmqtool {name} S -") == wanted
    assert "recover:Show what a broker would do at its next start." in seen_by_zsh("rmqtool rec")


@pytest.mark.parametrize(
    "says", ['it\'s `id` $(id) $HOME \\n \\\\ "q"', "a: b | c {d} *? + -x !", "(a) [b] ((c)) <d> ~ # é"]
)
def test_nothing_in_a_description_is_obeyed(says, capsys):
    completion._to_zsh([("value:1", says)])
    out = capsys.readouterr().out
    done = subprocess.run(["bash", "--norc", "-c", _AS_ZSH], input=out, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == (f"value:1:{says}\n", "")


@pytest.mark.parametrize(("line", "shown"), [("cat S --template ", ""), ("export S --to ", "_files\n")])
def test_zsh_offers_files_only_where_a_path_belongs(line, shown):
    assert ask("zsh", f"rmqtool {line}")[1] == shown


def test_names_that_a_shell_might_obey_are_not_offered(tmp_path):
    for name in ("$(touch x)", "`id`", "a;b", 'q"q', "T_fine", "T|pipe"):
        (tmp_path / "s/consumequeue" / name / "0").mkdir(parents=True)
    _, zsh = ask("zsh", f"rmqtool cat {tmp_path}/s -t ")
    assert zsh == '_arguments \'*: :(("T_fine":"1 queue"\n"T|pipe":"1 queue"))\'\n'
    _, bash = ask("bash", f"rmqtool cat {tmp_path}/s -t T")
    assert bash == "T_fine\nT\\|pipe\n"


@pytest.mark.parametrize("instruction", ["complete_bash", "complete_tcsh", "complete_"])
def test_completion_that_fails_prints_nothing(instruction):
    """``complete_bash`` without its variables, a shell that is not known, none at all."""
    modules, out = modules_after(RUN, _RMQTOOL_COMPLETE=instruction)
    assert out == ""
    assert not any("Traceback" in line for line in modules)


def test_an_open_quote_ends_at_the_end_of_the_line(store):
    _, out = ask("zsh", f"rmqtool cat {store('54-broker')} -t '%RETRY%G_ok")
    assert "%RETRY%G_ok" in out


def test_completion_takes_at_most_eight_bare_interpreters(store, monkeypatch):
    """The names of a store among it. The best of several runs counts, as for --help."""
    monkeypatch.setenv("_RMQTOOL_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", f"rmqtool cat {store('54-broker')} -t ")
    monkeypatch.setenv("COMP_CWORD", "4")
    bare = ours = 60.0
    for run in range(20):
        bare = min(bare, processor_seconds("-c", "pass"))
        ours = min(ours, processor_seconds("-m", "rmqtool"))
        if run >= 5 and ours <= 8 * bare:
            return
    pytest.fail(f"completion takes {ours / bare:.1f} times a bare interpreter")
