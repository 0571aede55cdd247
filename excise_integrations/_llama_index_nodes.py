"""LlamaIndex nodes to candidates, and results back to nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from llama_index.core.schema import (
    BaseNode,
    Document,
    ImageNode,
    IndexNode,
    MetadataMode,
    Node,
    NodeRelationship,
    NodeWithScore,
    RelatedNodeInfo,
    TextNode,
)
from llama_index.core.vector_stores import MetadataFilters
from llama_index.core.vector_stores.utils import build_metadata_filter_fn

from ._llama_index_query import flat
from .errors import InvalidInputError
from .types import Candidate, ExciseResult

__all__ = ["candidates_of", "check_base_nodes", "check_nodes", "fired", "grouping", "matching", "node_of", "nodes_of"]

KEY = "excise"


class _SameHash:
    """A node whose hash does not depend on the audit.

    Fusion retrievers tell nodes apart by their hash: with the audit in it, one node found by three queries
    would count as three.
    """

    @property
    def hash(self) -> str:
        metadata = {key: value for key, value in self.metadata.items() if key != KEY}  # type: ignore[attr-defined]
        plain = self.model_copy(update={"metadata": metadata})  # type: ignore[attr-defined]
        return super(_SameHash, plain).hash  # type: ignore[misc, no-any-return]


class AuditedTextNode(_SameHash, TextNode):
    """A ``TextNode`` with the audit in its metadata."""


class AuditedNode(_SameHash, Node):
    """A ``Node`` with the audit in its metadata."""


class AuditedDocument(_SameHash, Document):
    """A ``Document`` with the audit in its metadata."""


class AuditedIndexNode(_SameHash, IndexNode):
    """An ``IndexNode`` with the audit in its metadata."""


class AuditedImageNode(_SameHash, ImageNode):
    """An ``ImageNode`` with the audit in its metadata."""


_AUDITED: dict[type[BaseNode], type[BaseNode]] = {
    TextNode: AuditedTextNode,
    Node: AuditedNode,
    Document: AuditedDocument,
    IndexNode: AuditedIndexNode,
    ImageNode: AuditedImageNode,
}


def grouping(node: BaseNode) -> dict[str, Any]:
    """Return the node's ``document_id``: its metadata's, else the id of the document it was cut from."""
    document = node.metadata.get("document_id", node.ref_doc_id)
    return {} if document is None else {"document_id": document}


def check_base_nodes(nodes: Sequence[BaseNode]) -> None:
    """Raise :class:`InvalidInputError` unless everything is a node (or a document) of LlamaIndex's."""
    for node in nodes:
        if not isinstance(node, BaseNode):
            raise InvalidInputError(f"{node!r} is a {type(node).__name__}; LlamaIndex nodes or documents are needed.")


def check_nodes(nodes: Sequence[NodeWithScore]) -> None:
    """Raise :class:`InvalidInputError` unless everything is a ``NodeWithScore``."""
    for n in nodes:
        if not isinstance(n, NodeWithScore):
            raise InvalidInputError(f"{n!r} is a {type(n).__name__}; a list of NodeWithScore is needed.")


def candidates_of(nodes: Sequence[NodeWithScore]) -> list[Candidate]:
    """Return nodes as a shortlist: the text that an embedding model would see, under the node's own id."""
    return [
        Candidate(
            id=n.node.node_id,
            text=n.node.get_content(metadata_mode=MetadataMode.EMBED),
            score=None if n.score is None else float(n.score),
            metadata={**grouping(n.node), **n.node.metadata},
        )
        for n in nodes
    ]


def node_of(candidate: Candidate) -> BaseNode:
    """Return a candidate as a node; its id is the passage's, so that passages of one document stay apart."""
    document = candidate.metadata.get("document_id")
    source = {} if document is None else {NodeRelationship.SOURCE: RelatedNodeInfo(node_id=str(document))}
    return TextNode(
        id_=candidate.id, text=candidate.text, metadata=dict(candidate.metadata), relationships=dict(source)
    )


def nodes_of(result: ExciseResult, nodes: Mapping[str, BaseNode]) -> list[NodeWithScore]:
    """Return a result as nodes, best first.

    Args:
        result: what the pipeline returned.
        nodes: nodes by candidate id; they are copied, never changed. A candidate without one gets a new node.
    """
    out = []
    for candidate in result.candidates:
        node = _audited(nodes.get(candidate.id) or node_of(candidate), result.metadata(candidate))
        # In shadow mode the frozen scores go with the frozen order.
        score = candidate.score if result.shadow else result.score(candidate)
        out.append(NodeWithScore(node=node, score=score))
    return out


def _audited(node: BaseNode, audit: dict[str, Any]) -> BaseNode:
    # Neither a prompt nor an embedding shall see the audit.
    update = {
        "metadata": {**node.metadata, KEY: audit},
        "excluded_embed_metadata_keys": [*dict.fromkeys([*node.excluded_embed_metadata_keys, KEY])],
        "excluded_llm_metadata_keys": [*dict.fromkeys([*node.excluded_llm_metadata_keys, KEY])],
        "relationships": dict(node.relationships),
    }
    kind = _AUDITED.get(type(node))
    if kind is None:
        return node.model_copy(update=update)
    return kind.model_construct(set(node.model_fields_set) | set(update), **{**node.__dict__, **update})


def fired(node: BaseNode) -> bool:
    """Say whether a node comes from a firing of Excise's."""
    audit = node.metadata.get(KEY)
    return isinstance(audit, dict) and audit.get("fired") is True


def matching(nodes: Sequence[NodeWithScore], filters: MetadataFilters | None) -> list[NodeWithScore]:
    """Return the nodes whose metadata the filters let through."""
    if filters is None:
        return list(nodes)
    metadata = {n.node.node_id: {**grouping(n.node), **n.node.metadata} for n in nodes}
    try:
        keep = build_metadata_filter_fn(metadata.__getitem__, flat(filters))
        return [n for n in nodes if keep(n.node.node_id)]
    except (TypeError, ValueError) as error:
        raise InvalidInputError(f"The filters {filters!r} cannot be applied to these nodes: {error}") from error
