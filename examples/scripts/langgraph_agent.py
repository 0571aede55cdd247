"""A LangGraph agent that has the retriever as a tool, and a model that forgets what was excluded.

Models shorten a question before they search, and "but not at the Rotterdam depot" is the first thing to go. Here the
user's own words are asked for topics before the graph runs, and ``excluding`` carries them around the model to the
retriever. Needs the extras ``langchain`` and ``embedded``, and ``pip install langgraph``.

    python examples/scripts/langgraph_agent.py
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from langchain_core.documents import Document
from langchain_core.language_models import FakeMessagesListChatModel
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import create_retriever_tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

from excise_integrations.langchain import ExciseRetriever, excluding

LINES = (Path(__file__).parents[1] / "data/legal.jsonl").read_text(encoding="utf-8").splitlines()
QUESTION = "Where else were there temperature excursions of vaccine, but not at the Rotterdam depot?"
SHORTENED = "temperature excursions vaccine"


class Scripted(FakeMessagesListChatModel):
    """Calls the tool with a shortened question, then answers."""

    def bind_tools(self, tools: Any, **_: Any) -> Any:
        return self


def model() -> Any:
    """The chat model."""
    # With a real one: from langchain.chat_models import init_chat_model; return init_chat_model("openai:gpt-5-mini")
    call = {"name": "search_documents", "args": {"query": SHORTENED}, "id": "call-1"}
    return Scripted(responses=[AIMessage("", tool_calls=[call]), AIMessage("In Leipzig, Lyon, Gdansk and Porto.")])


def build(retriever: ExciseRetriever) -> Any:
    """Compile the graph: model, tools, model, until the model calls no tool."""
    tools = [create_retriever_tool(retriever, "search_documents", "Searches the documents of the case.")]
    llm = model().bind_tools(tools)

    def agent(state: MessagesState) -> dict[str, Any]:
        return {"messages": [llm.invoke(state["messages"])]}

    graph = StateGraph(MessagesState)
    graph.add_node("agent", agent)
    graph.add_node("tools", ToolNode(tools))
    graph.add_edge(START, "agent")
    graph.add_conditional_edges("agent", tools_condition)
    graph.add_edge("tools", "agent")
    return graph.compile()


def found(state: dict[str, Any]) -> str:
    """Return what the tool told the model."""
    return "\n".join(str(m.content) for m in state["messages"] if isinstance(m, ToolMessage))


def main() -> None:
    """Run the graph without and with the user's exclusion carried around the model."""
    documents = [Document(id=d["_id"], page_content=f"{d['title']}. {d['text']}") for d in map(json.loads, LINES)]
    retriever = ExciseRetriever.from_documents(documents, k=4, progress=False)
    question = {"messages": [HumanMessage(QUESTION)]}

    forgotten = found(build(retriever).invoke(question))
    print(f"\n  The model searches for {SHORTENED!r}; it reads:\n")
    print("   ", "\n    ".join(line[:110] for line in forgotten.splitlines() if line))

    topics = [span.text for span in retriever.excise.detect(QUESTION).spans]
    with excluding(topics):
        kept = build(retriever).invoke(question)
    print(f"\n  With {topics} carried around it:\n")
    print("   ", "\n    ".join(line[:110] for line in found(kept).splitlines() if line))
    print(f"\n  {kept['messages'][-1].content}")
    assert "Rotterdam" in forgotten
    assert "Rotterdam" not in found(kept)
    assert found(kept)


if __name__ == "__main__":
    main()
