"""Answers of language models, each paid for once: kept in JSON lines, and with a time limit."""

from __future__ import annotations

import hashlib
import json
import os
import queue
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from ...errors import ExciseError, InvalidInputError
from ...train.query_llm import ask, completer
from ..lines import json_lines

__all__ = ["AnswerBook", "Model", "check_different", "model_name"]

_Read = TypeVar("_Read")
# A provider that is down must not drop the rest of the corpus, question by question.
_FAILURES_IN_A_ROW = 5


class AnswerBook:
    """Answers by prompt, in a file that every new answer is flushed to.

    Args:
        path: JSON lines; created when needed. A last line that a killed process left unfinished is dropped.

    Raises:
        SuiteError: another line is malformed.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._answers: dict[str, str] = {}
        if self.path.exists():
            self._drop_unfinished()
            for _, row in json_lines(self.path):
                if isinstance(row.get("key"), str) and isinstance(row.get("answer"), str):
                    self._answers[row["key"]] = row["answer"]

    def __len__(self) -> int:
        return len(self._answers)

    def get(self, role: str, name: str, prompt: str) -> str | None:
        """Return the answer that a model gave in a role, or None."""
        return self._answers.get(_key(role, name, prompt))

    def put(self, role: str, name: str, prompt: str, answer: str) -> None:
        """Keep an answer, on disk before this returns."""
        key = _key(role, name, prompt)
        self._answers[key] = answer
        self.path.parent.mkdir(parents=True, exist_ok=True)
        line = json.dumps({"key": key, "role": role, "model": name, "answer": answer}, ensure_ascii=True)
        with self.path.open("a", encoding="utf-8", newline="\n") as handle:
            handle.write(line + "\n")
            handle.flush()
            os.fsync(handle.fileno())

    def _drop_unfinished(self) -> None:
        content = self.path.read_bytes()
        end = content.rfind(b"\n") + 1
        if end < len(content):
            with self.path.open("r+b") as handle:
                handle.truncate(end)


class Model:
    """A language model in a role, which is asked once for each prompt.

    Args:
        llm: a LangChain chat model, a LlamaIndex LLM, or a function from prompt to answer.
        role: "writer", "judge" or "second judge".
        book: where answers are kept.
        attempts: for one usable answer, at least 1; an error or a timeout counts as one.
        timeout: seconds that one answer may take.
    """

    def __init__(self, llm: Any, role: str, book: AnswerBook, *, attempts: int, timeout: float) -> None:
        self.role = role
        self.name = model_name(llm)
        self.calls = 0
        self._complete = completer(llm)
        self._book = book
        self._attempts = attempts
        self._timeout = timeout
        self._failed = 0

    def ask(self, prompt: str, read: Callable[[str], _Read]) -> _Read | None:
        """Return what a usable answer says, or None when there was none.

        Raises:
            ExciseError: the model failed or timed out for several prompts in a row.
        """
        try:
            found = ask(self._answer, prompt, read, attempts=self._attempts)
        except _NoAnswer as error:
            self._failed += 1
            if self._failed >= _FAILURES_IN_A_ROW:
                raise ExciseError(
                    f"The {self.role} {self.name} gave no answer {self._failed} times in a row ({error}). The answers "
                    f"so far are in {self._book.path}; run the build again to go on from there."
                ) from error
            return None
        self._failed = 0
        return found

    def _answer(self, prompt: str) -> str:
        kept = self._book.get(self.role, self.name, prompt)
        if kept is not None:
            return kept
        problem = ""
        for _ in range(self._attempts):
            self.calls += 1
            try:
                answer = _within(self._timeout, lambda: self._complete(prompt))
            except Exception as error:
                problem = f"{type(error).__name__}: {error}"
                continue
            self._book.put(self.role, self.name, prompt, answer)
            return answer
        raise _NoAnswer(problem)


class _NoAnswer(Exception):
    """A model failed as often as it was asked."""


def model_name(llm: Any) -> str:
    """Return the name that a model goes by, or its class when it has none."""
    found = _own_name(llm)
    if found:
        return found
    kind = llm if hasattr(llm, "__qualname__") else type(llm)
    return f"{kind.__module__}.{kind.__qualname__}"


def check_different(writer: Any, judge: Any, second: Any) -> None:
    """Raise :class:`InvalidInputError` when two roles have the same model."""
    roles = [(r, m) for r, m in (("writer", writer), ("judge", judge), ("second judge", second)) if m is not None]
    for at, (role, one) in enumerate(roles):
        for other_role, other in roles[at + 1 :]:
            name = _own_name(one)
            if one is other or (name and name == _own_name(other)):
                raise InvalidInputError(
                    f"The {role} and the {other_role} are the same model, {model_name(one)}; a model must not judge "
                    "its own work. Give another one."
                )


def _own_name(llm: Any) -> str:
    for holder, attribute in ((llm, "model_name"), (llm, "model"), (llm, "model_id")):
        value = getattr(holder, attribute, None)
        if isinstance(value, str) and value:
            return value
    value = getattr(getattr(llm, "metadata", None), "model_name", None)
    return value if isinstance(value, str) and value != "unknown" else ""


def _within(seconds: float, call: Callable[[], str]) -> str:
    """Call in a thread that nobody waits for: a model that hangs must not keep the process from ending."""
    results: queue.SimpleQueue[str | Exception] = queue.SimpleQueue()

    def work() -> None:
        try:
            results.put(call())
        except Exception as error:
            results.put(error)

    threading.Thread(target=work, name="excise-llm", daemon=True).start()
    try:
        result = results.get(timeout=seconds)
    except queue.Empty:
        raise TimeoutError(f"no answer within {seconds:g} seconds") from None
    if isinstance(result, Exception):
        raise result
    return result


def _key(role: str, name: str, prompt: str) -> str:
    return hashlib.sha256(json.dumps([role, name, prompt]).encode()).hexdigest()
