"""What other back ends of the encoder save, as ratios to PyTorch in the arithmetic that is chosen on this machine.

The default backbone and its detector run on each; everything around them stays the same. Timed in turn: the bare
forward pass of one query and of 25 documents of 60 words, a whole search that excludes nothing, and one that
re-embeds those 25 documents.

    python examples/scripts/compare_backends.py            # a few rounds
    python examples/scripts/compare_backends.py --full     # the table of docs/sizing.md, two minutes

Wants ``pip install onnx onnxruntime openvino``; what is not installed is left out.
"""

from __future__ import annotations

import argparse
import copy
import importlib.util
import json
import tempfile
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from peft import get_peft_model
from torch import Tensor, nn
from transformers.modeling_outputs import BaseModelOutput

from excise_integrations import Excise
from excise_integrations.bench.speed import Task, Workload, forward_of, interleave
from excise_integrations.first_stage.memory import MemoryFirstStage
from excise_integrations.train.detector import lora_config

DATA = Path(__file__).resolve().parents[1] / "data"
DOCUMENTS, WORDS = 25, 60
SILENT, FIRED = "contracts about the depot", "contracts about the depot, but not Rotterdam"
COLUMNS = ("one query", f"{DOCUMENTS} documents", "search, silent", "search, documents re-embedded")
Make = Callable[[nn.Module], nn.Module]


class Exported(nn.Module):
    """A transformer that runs elsewhere: ids and mask of shape (batch, length) in, its last hidden states out."""

    def __init__(self, model: nn.Module, hidden: Callable[[Any, Any], Any]) -> None:
        super().__init__()
        self.config, self.hidden = model.config, hidden

    def forward(self, input_ids: Tensor, attention_mask: Tensor, **_: Any) -> BaseModelOutput:
        """Run it; a query is one segment, so nothing else that callers pass changes what comes out."""
        states = self.hidden(input_ids.numpy(), attention_mask.numpy())
        return BaseModelOutput(last_hidden_state=torch.from_numpy(states))


class _Hidden(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        states: Tensor = self.model(input_ids=ids, attention_mask=mask).last_hidden_state
        return states


def to_onnx(model: nn.Module) -> bytes:
    """Return a transformer in float32 as ONNX, for batches of any size and length."""
    ids = torch.ones(2, 8, dtype=torch.long)
    axes = {name: {0: "batch", 1: "length"} for name in ("ids", "mask", "hidden")}
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        path = Path(folder) / "model.onnx"
        torch.onnx.export(
            _Hidden(copy.deepcopy(model).float().eval()), (ids, ids), str(path), dynamo=False,
            input_names=["ids", "mask"], output_names=["hidden"], dynamic_axes=axes,
        )  # fmt: skip
        return path.read_bytes()


def onnx_runtime(model: nn.Module) -> nn.Module:
    """Return the transformer on ONNX Runtime."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    session = onnxruntime.InferenceSession(to_onnx(model), options, providers=["CPUExecutionProvider"])
    return Exported(model, lambda ids, mask: session.run(None, {"ids": ids, "mask": mask})[0])


def with_lora(model: nn.Module) -> nn.Module:
    """Return the transformer with LoRA beside its weights, as a trainer has it; Excise merges it."""
    wrapped: nn.Module = get_peft_model(copy.deepcopy(model), lora_config(model, 16)).eval().to(model.dtype)
    return wrapped


def on(excise: Excise, make: Make) -> Excise:
    """Put the transformers of a pipeline, the backbone's and the detector's, on another back end."""
    backbone: Any = excise.backbone
    backbone.encoder[0].model = make(backbone.encoder[0].model)
    tagger: Any = excise.detector.tagger
    tagger.transformer = make(tagger.transformer)
    return excise


def passages() -> list[str]:
    """Return the texts that are timed, of the examples' own documents."""
    lines = [line for path in sorted(DATA.glob("*.jsonl")) for line in path.read_text(encoding="utf-8").splitlines()]
    words = " ".join(json.loads(line).get("text", "") for line in lines).split()
    return [" ".join(words[i * WORDS : (i + 1) * WORDS]) for i in range(DOCUMENTS)]


def installed(*modules: str) -> bool:
    """Return whether modules are there, and say what brings them if not."""
    missing = [module for module in modules if importlib.util.find_spec(module) is None]
    if missing:
        print(f"{modules[-1]} is left out: pip install {' '.join(missing)}")
    return not missing


def variants(*, compiled: bool) -> dict[str, Excise]:
    """Return the pipeline on every back end that is installed, the reference first."""

    def load(dtype: Any = "auto", backend: Any = "torch") -> Excise:
        return Excise.from_pretrained("minilm", dtype=dtype, backend=backend, k=DOCUMENTS)

    chosen = load()
    name = str(chosen.backbone.dtype).removeprefix("torch.")
    found = {f"PyTorch, {name}": chosen, "PyTorch, float32": load("float32")}
    found[f"PyTorch, {name}, LoRA beside the weights"] = on(load(), with_lora)
    if compiled:
        found[f"torch.compile, {name}"] = on(load(), lambda model: torch.compile(model, dynamic=True))
    if installed("onnx", "onnxruntime"):
        found["ONNX Runtime, float32"] = on(load("float32"), onnx_runtime)
    if installed("openvino"):
        found |= {f"OpenVINO, {dtype}": load(dtype, "openvino") for dtype in ("float32", "bfloat16")}
    return found


def compare(found: Mapping[str, Excise], repeats: int) -> dict[str, list[float]]:
    """Return, per back end, the ratio of every column to the first back end's."""
    texts = passages()
    tasks: list[dict[str, Task]] = [{} for _ in COLUMNS]
    for label, excise in found.items():
        work = Workload(excise, MemoryFirstStage.from_texts(texts, backbone=excise.backbone), [SILENT], [FIRED])
        tasks[0][label] = forward_of(excise.backbone, [], [SILENT])
        tasks[1][label] = forward_of(excise.backbone, texts, [])
        tasks[2][label] = work.search([SILENT])
        tasks[3][label] = work.rerank(cold=True)
    reference = next(iter(found))
    ratios: dict[str, list[float]] = {label: [] for label in found}
    for column, column_tasks in enumerate(tasks):
        # Short ones need more rounds for the same certainty.
        rounds = repeats * (1 if column % 2 else 5)
        for timing in interleave(column_tasks, repeats=rounds, reference=reference):
            ratios[timing.name].append(timing.ratio)
    return ratios


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Other back ends of the encoder, as ratios to PyTorch.")
    parser.add_argument("--full", action="store_true", help="the table of docs/sizing.md")
    parser.add_argument("--compile", action="store_true", help="torch.compile as well, which compiles for minutes")
    arguments = parser.parse_args()
    ratios = compare(variants(compiled=arguments.compile), 10 if arguments.full else 1)
    print("| | " + " | ".join(COLUMNS) + " |")
    print("|---" * (len(COLUMNS) + 1) + "|")
    for label, row in ratios.items():
        print(f"| {label} | " + " | ".join(f"{ratio:.2f}" for ratio in row) + " |")


if __name__ == "__main__":
    main()
