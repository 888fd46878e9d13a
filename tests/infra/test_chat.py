"""`remask chat`: a conversation by the chat template, shown as it is decoded."""

import fcntl
import io
import os
import pty
import select
import subprocess
import sys
import termios

import pytest
from rich.console import Console

from remask.infra import chat
from remask.infra.chat import Conversation, talk
from remask.infra.cli import main
from remask.infra.reviser import Options, open_reviser
from tests.revisers import PROMPT, write_boards, write_sums
from tests.text_folders import write_llada


@pytest.fixture(scope="module")
def sums(tmp_path_factory):
    return write_sums(tmp_path_factory.mktemp("sums") / "model")


@pytest.fixture(scope="module")
def llada(tmp_path_factory):
    return open_reviser(write_llada(tmp_path_factory.mktemp("llada") / "llada"))


def console():
    return Console(file=io.StringIO(), width=100, color_system=None, force_terminal=False)


def test_earlier_messages_are_part_of_the_prompt(llada):
    conversation = Conversation(llada, Options(max_steps=4), length=6)
    assert conversation.remembers
    first = conversation.answer("hello")
    second = conversation.answer("and now?")
    said = [
        {"role": "user", "content": "hello"},
        {"role": "assistant", "content": first.result},
        {"role": "user", "content": "and now?"},
    ]
    assert conversation.messages == [*said, {"role": "assistant", "content": second.result}]
    start = llada.reader.start_chat(said, 6)
    assert llada.revise(start, Options(max_steps=4)).result == second.result
    conversation.reset()
    assert conversation.messages == []
    assert conversation.answer("hello").result == first.result


def test_without_a_template_each_message_is_a_prompt(sums):
    reviser = open_reviser(sums)
    conversation = Conversation(reviser, Options(max_steps=4))
    assert not conversation.remembers
    first = conversation.answer(PROMPT)
    conversation.answer("1+1-1:")
    assert conversation.answer(PROMPT).result == first.result
    assert (
        first.result
        == reviser.revise(reviser.start({"prompt": PROMPT}), Options(max_steps=4)).result
    )


def test_a_message_that_cannot_be_answered_is_not_remembered(llada, capsys):
    conversation = Conversation(llada, Options(max_steps=2), length=6)
    talk(conversation, iter(["hello", "x" * 600, "<|mdm_mask|>"]), console())
    assert conversation.messages[0]["content"] == "hello"
    assert len(conversation.messages) == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("remask chat: the prompt has 6")
    assert "leaves room for 0 in rows of 512" in lines[0]
    assert "contains the mask token" in lines[1]


def test_commands_reset_quit_and_are_named_if_unknown(llada, capsys):
    conversation = Conversation(llada, Options(max_steps=2), length=4)
    lines = iter(["hello", "", "/help", "/reset", "/quit", "never read"])
    talk(conversation, lines, console())
    assert conversation.messages == []
    assert list(lines) == ["never read"]
    printed = capsys.readouterr()
    assert "there is no /help; /reset forgets" in printed.err
    assert "the conversation is forgotten" in printed.err
    assert printed.out.count("\n") == 1


def test_an_answer_can_be_interrupted_and_the_conversation_goes_on(llada, capsys, monkeypatch):
    conversation = Conversation(llada, Options(max_steps=4), length=6)
    real, calls = llada.revise, []

    def interrupted(start, options, watch):
        def stop(step):
            watch(step)
            calls.append(step)
            if len(calls) == 3:
                raise KeyboardInterrupt

        return real(start, options, stop)

    monkeypatch.setattr(llada, "revise", interrupted)
    shown = console()
    talk(conversation, iter(["hello", "again"]), shown)
    assert conversation.messages[0]["content"] == "again"
    assert "interrupted; the message is not part of the conversation" in capsys.readouterr().err
    assert shown.file.getvalue().count("start: ▒▒▒▒▒▒") == 2


def test_steps_change_in_place_on_a_terminal(sums, capsys):
    terminal = Console(file=io.StringIO(), width=100, force_terminal=True, color_system=None)
    conversation = Conversation(open_reviser(sums), Options(max_steps=4))
    talk(conversation, iter([PROMPT]), terminal)
    drawn = terminal.file.getvalue()
    assert "▒" * 12 in drawn
    assert "\x1b[2K" in drawn  # lines are erased and drawn again
    assert "step 1:" not in drawn


def test_lines_come_from_a_pipe(sums, capsys, monkeypatch):
    said = f"{PROMPT}\n".encode() + b"\xff\n1+1-1:\n/quit\nnever read\n"
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(said)))
    main(["chat", "--checkpoint", sums, "--max-steps", "3"])
    printed = capsys.readouterr()
    assert printed.out.count("\n") == 2
    assert "remask chat: line 2 is not UTF-8: invalid start byte\n" in printed.err
    assert printed.err.count(f"start: {'▒' * 12}\n") == 2


@pytest.mark.slow
def test_a_terminal_is_prompted_until_ctrl_d(sums):
    leader, follower = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "remask.infra.cli", "chat", "--checkpoint", sums, "--max-steps=3"],
        stdin=follower, stdout=follower, stderr=follower, start_new_session=True,
        env=os.environ | {"TERM": "xterm"},
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )  # fmt: skip
    os.close(follower)
    try:
        assert b"every message is a prompt of its own" in read_until(leader, b"> ")
        os.write(leader, b"\x03")  # Ctrl-C at the prompt is a hint, not the end
        read_until(leader, b"Ctrl-D ends", b"> ")
        os.write(leader, f"{PROMPT}\n".encode())
        read_until(leader, b"forward passes", b"> ")
        os.write(leader, b"\x04")
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
        os.close(leader)


SILENCE_S = 120
"""A terminal that shows nothing for so long has stopped."""


def read_until(descriptor, *texts):
    """What a terminal shows up to some texts, one after another."""
    seen, at = b"", 0
    for text in texts:
        while text not in seen[at:]:
            ready, _, _ = select.select([descriptor], [], [], SILENCE_S)
            assert ready, f"{text!r} never came after {seen!r}"
            seen += os.read(descriptor, 4096)
        at = seen.index(text, at) + len(text)
    return seen


def test_wrong_checkpoints_are_one_line(capsys, tmp_path):
    folder = write_boards(tmp_path / "model")
    with pytest.raises(SystemExit, match="2"):
        main(["chat", "--checkpoint", folder])
    assert "takes inputs of kind sudoku, not text" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        main(["chat", "--checkpoint", folder, "--pace", "7"])
    assert "pace must lie in (0, 1], got 7.0" in capsys.readouterr().err
    with pytest.raises(ValueError, match="takes inputs of kind sudoku, not text"):
        chat.Conversation(open_reviser(folder), Options())
