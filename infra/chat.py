"""A conversation with a text model, whose answers are revised as one watches.

The tokenizer's chat template is used if the model was trained with one; otherwise every message is
a prompt of its own, by the prompt template of the model's training. On a terminal an answer changes
in place while it is decoded; elsewhere each step is a line on stderr, and answers go to stdout.

Ctrl-C interrupts an answer. Ctrl-D or /quit ends, /reset forgets what was said.

    remask chat --checkpoint models/LLaDA-8B-Instruct --length 128
    remask chat --checkpoint runs/mine/model
    remask chat
"""

import argparse
import contextlib
import sys
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.live import Live
from rich.text import Text

from remask.infra.record import Record, Step
from remask.infra.requests import check_text
from remask.infra.reviser import MAX_STEPS, Options, Reviser, open_reviser
from remask.infra.steps import LEGEND, step_name, summary, text_step
from remask.models.text.prompts import Message
from remask.pipeline.inputs.text import TextReader
from remask.pipeline.runtime.storage import StorageError
from remask.pipeline.runtime.terminal import complain, fail, make_console, say, visible

PROMPT = "> "
COMMANDS = "/reset forgets the conversation, /quit or Ctrl-D ends"
Listener = Callable[[Step], None]


class Conversation:
    """What was said, and the model that answers.

    Args:
        reviser: A text model.
        options: How answers are decoded.
        length: Tokens of an answer. Defaults to what the model's inputs say.
    """

    def __init__(self, reviser: Reviser, options: Options, length: int | None = None) -> None:
        if not isinstance(reviser.reader, TextReader):
            raise ValueError(f"{reviser.name} takes inputs of kind {reviser.kind}, not text")
        self._reviser, self._options, self._length = reviser, options, length
        self._reader = reviser.reader
        self.messages: list[Message] = []

    @property
    def remembers(self) -> bool:
        """Are earlier messages part of a prompt?"""
        return self._reader.inputs.chat

    def reset(self) -> None:
        """Forget what was said."""
        self.messages.clear()

    def answer(self, text: str, listener: Listener | None = None) -> Record:
        """The answer to a message; both become part of the conversation.

        Args:
            text: What the user says.
            listener: Called with every step.

        Raises:
            ValueError: The message cannot be answered; the conversation is as it was.
        """
        said: Message = {"role": "user", "content": text}
        start = self._reader.start_chat([*self.messages, said], self._length)
        record = self._reviser.revise(start, self._options, listener)
        self.messages += [said, {"role": "assistant", "content": record.result}]
        return record


def talk(conversation: Conversation, lines: Iterator[str], console: Console) -> None:
    """Answer lines until they end or one of them is /quit."""
    for line in lines:
        text = line.strip()
        if text == "/quit":
            return
        if text == "/reset":
            conversation.reset()
            say("the conversation is forgotten", to_stderr=True)
        elif text.startswith("/") and " " not in text:
            say(f"there is no {text}; {COMMANDS}", to_stderr=True)
        elif text:
            _answer(conversation, text, console)


def _answer(conversation: Conversation, text: str, console: Console) -> None:
    """Answer a message and print the answer, or say why there is none."""
    try:
        check_text("the message", text)
        with _shown(console) as listener:
            record = conversation.answer(text, listener)
    except KeyboardInterrupt:
        return say("interrupted; the message is not part of the conversation", to_stderr=True)
    except ValueError as error:
        return complain("remask chat", error)
    print("\n".join(map(visible, record.result.split("\n"))), flush=True)
    console.print(summary(record), style="dim")
    if record.note:
        say(record.note, to_stderr=True)


@contextlib.contextmanager
def _shown(console: Console) -> Iterator[Listener]:
    """What shows steps: in place on a terminal, a line each elsewhere."""
    steps: list[Step] = []
    if not console.is_terminal:

        def print_step(step: Step) -> None:
            steps.append(step)
            number = len(steps) - 1
            console.print(Text(f"{step_name(number)}: ").append_text(text_step(steps, number)))

        yield print_step
        return
    # Transient, since the answer itself is printed at the end.
    with Live(console=console, transient=True, auto_refresh=False) as live:

        def draw_step(step: Step) -> None:
            steps.append(step)
            live.update(text_step(steps, len(steps) - 1), refresh=True)

        yield draw_step


def read_messages() -> Iterator[str]:
    """Lines of standard input, with a prompt and a history on a terminal."""
    if not sys.stdin.isatty():
        yield from _lines()
        return
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401  (gives `input` line editing)
    while True:
        try:
            yield input(PROMPT)
        except KeyboardInterrupt:
            say(f"\n{COMMANDS}", to_stderr=True)
        except UnicodeDecodeError:
            complain("remask chat", "the message is not UTF-8")
        except EOFError:
            print(file=sys.stderr)
            return


def _lines() -> Iterator[str]:
    """Lines that come from a pipe or a file."""
    stream = getattr(sys.stdin, "buffer", sys.stdin)
    for number, line in enumerate(stream, 1):
        try:
            yield line.decode() if isinstance(line, bytes) else line
        except UnicodeDecodeError as error:
            complain("remask chat", f"line {number} is not UTF-8: {error.reason}")


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="remask chat", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "--checkpoint", help="folder of a text model, ours or published (default: the packaged one)"
    )
    parser.add_argument("--length", type=int, help="tokens of an answer (default: 64)")
    parser.add_argument("--max-steps", type=int, help=f"limit of steps (default: {MAX_STEPS})")
    parser.add_argument(
        "--pace", type=float, help="spread reveals over this share of the steps (default: 0.5)"
    )
    parser.add_argument(
        "--margin", type=float, help="re-mask only if MASK leads by this many nats (default: 0)"
    )
    arguments = parser.parse_args(argv)
    try:
        options = Options(
            max_steps=arguments.max_steps, pace=arguments.pace, margin=arguments.margin
        )
        reviser = open_reviser(arguments.checkpoint, "text")
        conversation = Conversation(reviser, options, arguments.length)
    except ValueError as error:
        fail("remask chat", 2, error)
    except StorageError as error:
        fail("remask chat", 1, error)
    console = make_console(to_stderr=True)
    if sys.stdin.isatty():
        memory = "" if conversation.remembers else "; every message is a prompt of its own"
        say(f"{reviser.name}: {COMMANDS}{memory}", to_stderr=True)
        say(LEGEND, to_stderr=True)
    talk(conversation, read_messages(), console)


if __name__ == "__main__":
    main()
