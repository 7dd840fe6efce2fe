#!/usr/bin/env python3
"""Writes renders.json: conversations with thinking, tools and parts, rendered by Python's jinja2 (pip install jinja2==3.1.6)
with Hugging Face's conventions from the templates of the golden data, which VIBRANT_TESTDATA names. Run it in this folder."""
import datetime
import json
import os

from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

TOOL = {"type": "function", "function": {"name": "get_weather", "description": "Weather of a <city>", "parameters": {
    "type": "object", "properties": {"city": {"type": "string", "description": "City & land"}, "days": {"type": "integer", "default": 3},
                                     "unit": {"type": "string", "enum": ["C", "F"]}, "tags": {"type": "array", "items": {"type": "string"}}},
    "required": ["city"]}}}
CALL = {"id": "call00001", "type": "function", "function": {"name": "get_weather", "arguments": {"city": "Zürich", "days": 2}}}
USER = {"role": "user", "content": "Weather in Zürich?"}
ANSWER = {"role": "assistant", "content": "It is 21.5 °C."}
SCENARIOS = {
    "thinking": {"messages": [USER, {**ANSWER, "thinking": "Easy.", "reasoning_content": "Easy."}, USER]},
    "tagged": {"messages": [USER, {**ANSWER, "content": "<think>\nEasy.\n</think>\n\nIt is 21.5 °C."}, USER]},
    "call": {"messages": [USER, {"role": "assistant", "content": "I look.", "thinking": "Which?", "tool_calls": [CALL]},
                          {"role": "tool", "name": "get_weather", "tool_call_id": "call00001", "content": "{\"temp\": 21.5}"}, ANSWER, USER],
             "tools": [TOOL]},
    "calls": {"messages": [USER, {"role": "assistant", "content": "", "tool_calls": [CALL, {**CALL, "id": "call00002"}]},
                           {"role": "tool", "name": "get_weather", "tool_call_id": "call00001", "content": "1"},
                           {"role": "tool", "name": "get_weather", "tool_call_id": "call00002", "content": "2"}], "tools": [TOOL, TOOL]},
    "developer": {"messages": [{"role": "developer", "content": "Be \"brief\".\n"}, USER], "tools": [TOOL]},
    "parts": {"messages": [{"role": "user", "content": [{"type": "text", "text": "One"}, {"type": "text", "text": " two"}]}]},
    "effort": {"messages": [{"role": "system", "content": "Be brief."}, USER], "extra": {"reasoning_effort": "high", "enable_thinking": False}},
    "empty": {"messages": []},
    "two users": {"messages": [USER, USER]},
}
MODELS = ["openai-gpt-oss-120b.jinja", "google-gemma-2-2b-it.jinja", "mistralai-Ministral-3-14B-Reasoning-2512.jinja",
          "unsloth-mistral-Devstral-Small-2507.jinja", "Qwen3.5-4B.jinja", "HuggingFaceTB-SmolLM3-3B.jinja", "Phi-3-mini", "phi-4",
          "Mistral-Nemo-Instruct-2407 (mistralai 'v3-tekken' template; modified to have system prompt at start)", "google/gemma-7b-it"]


class Raised(Exception):
    pass


def raise_exception(message):
    raise Raised(message)


def render(template, bos, eos, s):
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
    env.filters["tojson"] = lambda x, ensure_ascii=False, indent=None, separators=None, sort_keys=False: json.dumps(
        x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda f: datetime.datetime(2024, 7, 26, 12, 34, 56).strftime(f)
    try:
        return env.from_string(template).render(
            messages=s["messages"], tools=s.get("tools"), documents=None, add_generation_prompt=True, bos_token=bos, eos_token=eos,
            **s.get("extra", {}))
    except Exception:  # which error it is, is the engine's own matter
        return None


def main():
    data = os.path.join(os.environ["VIBRANT_TESTDATA"], "chat")
    known = {t["name"]: t for t in json.load(open(os.path.join(data, "model-templates-renders.json")))["templates"]}
    known |= {t["name"]: t for t in json.load(open(os.path.join(data, "chat-template-cases.json")))["cases"]}
    renders = {}
    for name in MODELS:
        t = known[name]
        renders[name] = {k: render(t["template"], t["bos_token"], t["eos_token"], s) for k, s in SCENARIOS.items()}
    with open("renders.json", "w", encoding="utf-8") as f:
        json.dump({"scenarios": SCENARIOS, "renders": renders}, f, ensure_ascii=False, indent=0)
        f.write("\n")


main()
