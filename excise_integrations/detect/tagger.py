"""The network of the trained detector: a query encoder with a token head and a query head."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

__all__ = ["OUTSIDE", "SpanTagger", "TaggerOutput"]

# Labels of the token head: outside, first token of a topic, further token of a topic.
OUTSIDE, BEGIN, INSIDE = 0, 1, 2


@dataclass(frozen=True)
class TaggerOutput:
    """What the network says about a batch.

    Args:
        tokens: (batch, length, 3) logits over outside, begin, inside.
        query: (batch,) logit that the query excludes something.
    """

    tokens: Tensor
    query: Tensor


class SpanTagger(nn.Module):
    """A transformer with a linear token head and a linear query head.

    The query's logit is the sum of what its strongest token says and what the whole query says: the
    paper takes the strongest token alone, which leaves "covered already" and "covered badly" to be
    told apart by one token.

    Args:
        transformer: a BERT-like encoder.
        hidden: its hidden size.
    """

    def __init__(self, transformer: nn.Module, hidden: int) -> None:
        super().__init__()
        self.transformer = transformer
        self.dropout = nn.Dropout(0.1)
        self.token_head = nn.Linear(2 * hidden, 3)
        self.query_head = nn.Linear(2 * hidden, 1)

    def forward(self, input_ids: Tensor, attention_mask: Tensor, content: Tensor) -> TaggerOutput:
        """Tag a batch.

        Args:
            input_ids, attention_mask: (batch, length).
            content: (batch, length) booleans, True for tokens that are words.
        """
        hidden = self.transformer(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        mask = attention_mask[:, :, None].to(hidden.dtype)
        mean = (hidden * mask).sum(dim=1) / mask.sum(dim=1)
        # Each token also sees the whole query's mean, which carries the query's intent.
        wide = torch.cat([hidden, mean[:, None, :].expand_as(hidden)], dim=-1)
        tokens = self.token_head(self.dropout(wide)).float()
        whole = self.query_head(self.dropout(torch.cat([hidden[:, 0], mean], dim=-1))).float().squeeze(-1)
        inside = torch.logsumexp(tokens[:, :, 1:], dim=-1) - tokens[:, :, OUTSIDE]
        strongest = inside.masked_fill(~content, -30.0).amax(dim=1)
        return TaggerOutput(tokens, whole + strongest)

    def head_state(self) -> dict[str, Tensor]:
        """Return the heads' weights, as ``span_head.safetensors`` holds them."""
        return {
            "token_head.weight": self.token_head.weight.detach().float(),
            "token_head.bias": self.token_head.bias.detach().float(),
            "query_head.weight": self.query_head.weight.detach().float(),
            "query_head.bias": self.query_head.bias.detach().float(),
        }

    def load_heads(self, state: dict[str, Tensor]) -> None:
        """Load what :meth:`head_state` returned."""
        self.token_head.load_state_dict({"weight": state["token_head.weight"], "bias": state["token_head.bias"]})
        self.query_head.load_state_dict({"weight": state["query_head.weight"], "bias": state["query_head.bias"]})
