"""Questions of one's own: prompts and answers by template, from any table or a build's rows."""

import functools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal

import pyarrow as pa

from remask.evaluation.decoder import Decoder
from remask.evaluation.judges.texts import check_pattern, find_number, matches, read_tests
from remask.evaluation.suite import with_left_out
from remask.evaluation.suites.generation_suite import GenerationSuite, Judge, Verdict
from remask.evaluation.suites.text_suite import Question
from remask.models import Backbone
from remask.models.ranges import Range
from remask.pipeline.benchmarks.task import QUESTION
from remask.pipeline.judges.answers import extract_answer, same_answer
from remask.pipeline.judges.equivalence import AnswerChecker
from remask.pipeline.judges.programs import extract_program
from remask.pipeline.sandbox.run import Limits, is_available, run_python
from remask.pipeline.sources.templates import fill, template_fields
from remask.pipeline.sources.text import TextPair, TextSource

Part = Literal["all", "held_out"]
HELD_OUT = "held_out"
UNUSABLE = "it lacks a field, has no response, holds MASK, or exceeds max_length"


@dataclass(frozen=True)
class TextRow:
    """A row of the data."""

    answer: str
    """The answer template, filled in."""


@dataclass(frozen=True, kw_only=True)
class OwnTextSuite(GenerationSuite):
    """Prompts by template, and responses judged by a second template."""

    kind: ClassVar[str] = "text"
    plain_template: ClassVar[str] = QUESTION
    chat_template: ClassVar[str] = QUESTION

    prompt: str = "{prompt}"
    """Template over a row's fields."""
    answer: str = "{response}"
    """Template over a row's fields; `judge` says what it gives."""
    judge: Literal["exact", "number", "regex", "math", "program"] = "exact"
    """`exact`: the response must be the answer, but for white space around it. `number`: its final
    number must be the answer's. `regex`: the answer is a regular expression without look-around
    that must match somewhere in the response. `math`: its final answer must be equal as
    mathematics. `program`: the answer is Python that tests the response in the sandbox."""
    part: Part = "all"
    """`held_out` takes the rows that a build with the same `data`, `prompt`, `response`,
    `held_out_share` and `max_length` holds out of training."""
    response: str | None = None
    """The build's template of the response. Defaults to `answer`."""
    held_out_share: Annotated[float, Range("(0, 1)")] = 0.05
    """The build's share of held-out rows."""
    max_length: Annotated[int | None, Range("[2, inf)")] = None
    """Leave out rows whose prompt and response have more tokens, as a build does. Defaults to
    leaving out none."""
    append_eos: bool = True
    """Whether the build's responses end with the end token, which counts towards `max_length`."""
    split: str = "train"
    """Split of a data set on the hub; the build's `subset`."""
    chat: bool = False
    timeout_s: Annotated[float, Range("(0, inf)")] = 5.0
    """Limit on the CPU time of comparing two answers by `math`."""
    limits: Limits = field(default_factory=Limits)
    """Resource limits of a program."""
    unsafe: bool = False
    """Run programs without a sandbox if none is available; only on a disposable machine."""

    @property
    def is_judged_along(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.judge != "program"

    def read(self, data: str, *, is_example: bool) -> Sequence[Question]:
        source = self._source(data)
        pairs = _read_pairs(source, None if is_example else self.part)[0]
        if not pairs:
            which = "row" if is_example or self.part == "all" else "held-out row"
            raise ValueError(
                f"{data} has no {which} that can be asked; raise held_out_share or max_length, or "
                "name another file"
            )
        return [self._question(source, pair) for pair in pairs]

    def check(self, backbone: Backbone) -> None:
        if self.judge == "math":
            try:
                AnswerChecker(timeout_s=self.timeout_s)
            except RuntimeError as error:
                raise ValueError(str(error)) from error
        reason = is_available() if self.judge == "program" else None
        if reason is not None and not self.unsafe:
            raise ValueError(
                f"judge: program runs generated code, and there is no sandbox: {reason} (in a "
                "recipe, unsafe: true in the suite)"
            )
        super().check(backbone)

    def predict(self, backbone: Backbone, samples: range, decoder: Decoder) -> pa.Table:
        predictions = super().predict(backbone, samples, decoder)
        reasons = _read_pairs(self._source(self.data), self.part)[1] if samples.start == 0 else []
        return with_left_out(predictions, reasons)

    @contextmanager
    def judging(self) -> Iterator[Judge]:
        if self.judge == "math":
            with AnswerChecker(timeout_s=self.timeout_s) as checker:
                yield lambda question, response: _as_mathematics(question, response, checker)
        else:
            judges: Mapping[str, Judge] = {
                "exact": self._as_text,
                "number": _as_number,
                "regex": _as_pattern,
                "program": self._as_program,
            }
            yield judges[self.judge]

    def _source(self, data: str) -> TextSource:
        """The build's source, which says what rows there are and which of them are held out."""
        return TextSource(
            data=data,
            tokenizer=self.tokenizer,
            subset=self.split,
            prompt=self.prompt,
            response=self.answer if self.response is None else self.response,
            chat=self.chat,
            max_length=self.max_length or 1 << 30,
            held_out_share=self.held_out_share,
            mask_token=self.mask_token,
            append_eos=self.append_eos,
        )

    def _question(self, source: TextSource, pair: TextPair) -> Question:
        number = int(pair.example_id.rpartition("-")[2])
        names = template_fields(self.answer)
        value = pair.record.get(names[0]) if self.answer == f"{{{''.join(names)}}}" else None
        if isinstance(value, list) and self.judge == "program":  # tests as a list of statements
            answer = "\n".join(map(str, value))
        else:
            answer = fill(self.answer, pair.record, source.data, number)
        try:
            self._check_answer(answer)
        except ValueError as error:
            raise ValueError(f"{source.data}: row {number + 1}: {error}") from error
        return Question(
            sample_id=f"row-{number + 1}",
            text=pair.prompt,
            worked=pair.response,
            record=TextRow(answer),
        )

    def _check_answer(self, answer: str) -> None:
        """Raise ValueError for an answer that the judge cannot use."""
        if self.judge == "number" and find_number(answer) is None:
            raise ValueError(f"the answer has no number: {answer!r}; use another judge")
        if self.judge == "regex":
            check_pattern(answer)
        if self.judge == "program":
            read_tests(answer)

    def _as_text(self, question: Question, response: str) -> Verdict:
        expected = question.record.answer
        ids = self.codec.encode(expected)
        forms = {expected.strip()}
        if self.codec.inner.unk_token_id not in ids:  # as the tokenizer writes it
            forms.add(self.codec.decode_answer(ids).strip())
        return Verdict(response.strip() or None, response.strip() in forms)

    def _as_program(self, question: Question, response: str) -> Verdict:
        tests = read_tests(question.record.answer)
        program = extract_program(response, list(tests.names))
        outcome = run_python(
            program,
            tests.tests,
            names=tests.names,
            setup=tests.setup,
            limits=self.limits,
            unsafe=self.unsafe,
        )
        return Verdict(program or None, outcome.status == "passed", outcome.status)


@functools.lru_cache(maxsize=4)
def _read_pairs(source: TextSource, part: Part | None) -> tuple[list[TextPair], list[str]]:
    """The rows of a part that can be asked, and the reasons why others cannot."""
    pairs, reasons = [], []
    for number in range(source.num_records()["train"]):
        pair = source.read_pair(number)
        if part == HELD_OUT and not pair.is_held_out:
            continue
        if source.encode_pair(pair) is not None:
            pairs.append(pair)
        else:
            reasons.append(f"{pair.example_id}: {UNUSABLE}")
    return pairs, reasons


def _as_number(question: Question, response: str) -> Verdict:
    expected, found = find_number(question.record.answer), find_number(response)
    if expected is None or found is None:
        return Verdict(None, False)
    return Verdict(found[0], found[1] == expected[1])


def _as_pattern(question: Question, response: str) -> Verdict:
    return Verdict(response.strip() or None, matches(question.record.answer, response))


def _as_mathematics(question: Question, response: str, checker: AnswerChecker) -> Verdict:
    """Compare the final answer of a response, or all of it if nothing marks one."""
    answer = extract_answer(response, "math") or response.strip()
    expected = extract_answer(question.record.answer, "math") or question.record.answer
    return Verdict(answer or None, bool(answer) and same_answer(expected, answer, checker))
