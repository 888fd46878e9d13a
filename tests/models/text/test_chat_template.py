"""Chat templates, published and hostile."""

import os

import pytest

from remask.models.text import chat_template
from remask.models.text.chat_template import TemplateError, render
from remask.models.text.prompts import load_tokenizer
from tests.text_folders import TEMPLATE, write_text_tokenizer

CHATML = (
    "{%- for message in messages %}\n"
    "    {{- '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}\n"
    "{%- endfor %}\n"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}\n"
)
LLAMA3 = (
    "{% set loop_messages = messages %}{% for message in loop_messages %}"
    "{% set content = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'"
    "+ message['content'] | trim + '<|eot_id|>' %}"
    "{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}{{ content }}"
    "{% endfor %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}"
)
QWEN = (
    "{%- if tools %}\n    {{- 'tools: ' + tools | tojson }}\n{%- else %}\n"
    "    {%- if messages[0].role == 'system' %}\n        {{- messages[0].content + '\\n' }}\n"
    "    {%- endif %}\n{%- endif %}\n"
    "{%- set ns = namespace(last=messages|length - 1, seen=false) %}\n"
    "{%- for m in messages[::-1] %}\n    {%- set index = (messages|length - 1) - loop.index0 %}\n"
    "    {%- if m.role == 'user' and not ns.seen %}\n        {%- set ns.last = index %}\n"
    "        {%- set ns.seen = true %}\n        {%- break %}\n    {%- endif %}\n{%- endfor %}\n"
    "{%- macro say(m) %}<|{{ m.role }}|>{{ m.content.split('</think>')[-1].lstrip('\\n') }}"
    "{% endmacro %}\n{%- for m in messages %}{{ say(m) }}{{ loop.cycle('a', 'b') }}{% endfor %}\n"
    "{{ ns.last }} {{ {'ä': [1, none]} | tojson(indent=2) }} {{ dict(a=1).items() | list }}\n"
)
MARKED = (
    "{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}\n{% set x = 1 %}"
    "{{ m.content }}{{ eos_token }}{% endgeneration %}{{ x }}\n{% else %}{{ m.content }}{% endif %}"
    "{% if m.role not in ['user', 'assistant', 'system'] %}{{ raise_exception('no') }}{% endif %}"
    "{% endfor %}{{ strftime_now('%Y') }}"
)
ROUNDS = [
    {"role": "system", "content": " Be brief.  "},
    {"role": "user", "content": "1 < 2 & 'three' \"é\"\n"},
    {"role": "assistant", "content": "<think>x</think>\nyes"},
    {"role": "user", "content": "why?"},
]


@pytest.mark.parametrize("template", [TEMPLATE, CHATML, LLAMA3, QWEN, MARKED])
@pytest.mark.parametrize("add_generation_prompt", [True, False])
def test_templates_give_what_transformers_gives(tmp_path, template, add_generation_prompt):
    tokenizer = load_tokenizer(write_text_tokenizer(tmp_path / "tokenizer"))
    tokenizer.inner.chat_template = template
    expected = tokenizer.inner.apply_chat_template(
        ROUNDS, tokenize=False, add_generation_prompt=add_generation_prompt
    )
    assert tokenizer.render(ROUNDS, add_generation_prompt=add_generation_prompt) == expected
    assert expected


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        ("{% for %}", "TemplateSyntaxError: "),
        ("{{ messages[0].content.nothing.more }}", "UndefinedError: "),
        ("{{ unknown() }}", "'unknown' is undefined"),
        ("{{ 1 + 'a' }}", "TypeError: "),
        ("{{ 1 / 0 }}", "ZeroDivisionError: "),
        ("{{ messages|nonsense }}", "No filter named 'nonsense'"),
        ("{{ raise_exception('roles must\nalternate') }}", "TemplateError: roles must alternate"),
        ("{{ ''.__class__.__mro__ }}", "SecurityError: "),
        ("{{ messages.append(1) }}", "SecurityError: "),
        ("{% include '/etc/passwd' %}", "TypeError: no loader"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "RecursionError: "),
        ("{{ " + "(" * 9999 + "1" + ")" * 9999 + " }}", "Error"),
        ("{{ range(10**9) }}", "OverflowError: "),
        ("{{ 'a' * 10**9 }}", "MemoryError"),
        ("{{ 'a'.ljust(10**12) }}", "MemoryError"),
        ("{{ 'a' * 10**8 }}", "it gives 100000000 characters, more than 16777216"),
    ],
)
def test_a_template_that_fails_says_why(template, reason):
    with pytest.raises(TemplateError, match=reason) as caught:
        render(template, {"messages": ROUNDS})
    assert len(str(caught.value)) < 300
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "template",
    [
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{{ 9 ** (9 ** 9) }}",
        "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}"
        "{{ f(90) }}",
        "{% set ns = namespace(a=[1], b=[1]) %}{% for i in range(60) %}"
        "{% set ns.a = [ns.a, ns.a] %}{% set ns.b = [ns.b, ns.b] %}{% endfor %}{{ ns.a == ns.b }}",
    ],
)
def test_a_template_without_end_is_ended_and_the_next_is_rendered(template):
    with pytest.raises(TemplateError, match="more than 2 seconds of CPU time"):
        render(template, {})
    assert render("{{ 1 + 1 }}", {}) == "2"


def test_one_process_renders_everything_and_is_replaced_when_it_is_gone():
    render("a", {})
    process = chat_template._process(os.getpid())
    assert render("{{ x }}", {"x": "\ud800é\n\0"}) == "\ud800é\n\0"
    assert chat_template._process(os.getpid()) is process
    process.kill()
    process.wait()
    with pytest.raises(TemplateError):
        render("a", {})
    assert render("b", {}) == "b"


def test_prompts_name_the_tokenizer_and_what_to_do(tmp_path):
    tokenizer = load_tokenizer(write_text_tokenizer(tmp_path / "broken"))
    tokenizer.inner.chat_template = "{% for %}"
    with pytest.raises(ValueError, match="broken fails: TemplateSyntaxError.*; set chat: false"):
        tokenizer.encode_prompt("hello", chat=True)
    tokenizer.inner.chat_template = {"rag": "a", "tool_use": "b"}
    with pytest.raises(ValueError, match="broken fails: .*multiple chat templates"):
        tokenizer.encode_prompt("hello", chat=True)


@pytest.mark.parametrize("template", [TEMPLATE, CHATML, LLAMA3])
def test_a_last_round_is_left_open_as_transformers_leaves_it(tmp_path, template):
    tokenizer = load_tokenizer(write_text_tokenizer(tmp_path / "tokenizer"))
    tokenizer.inner.chat_template = template
    rounds = [*ROUNDS, {"role": "assistant", "content": "Because"}]
    expected = tokenizer.inner.apply_chat_template(
        rounds, tokenize=False, continue_final_message=True
    )
    assert tokenizer.render_open(rounds) == expected
    tokenizer.inner.chat_template = "nothing"
    with pytest.raises(ValueError, match="leaves out the last message"):
        tokenizer.render_open(rounds)
