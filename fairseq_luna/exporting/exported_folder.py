"""Folder of an exported model: graphs, one file with the weights of all, vocabularies, subword model, settings."""

import json
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO

import onnx
from fairseq.data.encoders.sentencepiece_bpe import SentencepieceBPE
from fairseq.tasks.translation import TranslationTask
from onnx.external_data_helper import set_external_data
from onnxruntime.quantization import QuantType, quantize_dynamic

from ..deployed.folder import FORMAT, PIECES, SETTINGS, SOURCE_WORDS, TARGET_WORDS, ExportSettings
from ..files import fingerprint
from ..models.shared.decoder import CausalDecoder
from ..models.shared.translator import TorchTranslator
from ..subwords import subword_marker
from ..usage_error import UsageError
from .onnx_graphs import make_graphs

WEIGHTS = "weights.bin"
SEARCHES = (
    "build_dataset_for_inference",
    "build_generator",
    "inference_step",
)  # methods that another task may override
SMALL = 1024  # bytes; smaller tensors stay in their graph
PAGE = 4096  # onnxruntime maps weights into memory that begin at a page


def write_folder(translator: TorchTranslator, folder: Path, *, int8: bool) -> None:
    """Write the model of ``translator`` to ``folder``; ``int8`` stores the weights of matrix products in 8 bits.

    Raises:
        UsageError: the model is an ensemble, one of fairseq's own models, trained for another task than translation, or
            has other subwords than SentencePiece's.
    """
    model = translator.models[0]
    if len(translator.models) > 1:
        raise UsageError("an ensemble cannot be exported; give one checkpoint, such as an average")
    if not isinstance(model.decoder, CausalDecoder):
        raise UsageError(f"{type(model).__name__}: is fairseq's own; fairseq-luna convert makes it one of these")
    task = type(translator.task)
    if any(getattr(task, name) is not getattr(TranslationTask, name) for name in SEARCHES):
        raise UsageError(f"{task.__name__}: may add language symbols to the text; only --task translation is exported")
    pieces = isinstance(translator.bpe, SentencepieceBPE)
    if translator.tokenizer is not None or not (pieces or translator.bpe is None):
        raise UsageError("only SentencePiece models can be exported: no other subwords, no tokenizer")
    longest, longest_target = translator.max_positions
    starts: list[dict[str, Any]] = []
    with (folder / WEIGHTS).open("wb") as file:
        weights = SharedWeightsFile(file)
        for graph in make_graphs(model, longest):
            onnx_model = quantize_weights(graph.model) if int8 else graph.model
            remove_debug_info(onnx_model)
            weights.move(onnx_model)
            onnx.save(onnx_model, folder / graph.file)
            if graph.longest:
                starts.append({"file": graph.file, "shortest": graph.shortest, "longest": graph.longest})
    translator.src_dict.save(str(folder / SOURCE_WORDS))
    translator.tgt_dict.save(str(folder / TARGET_WORDS))
    if pieces:
        (folder / PIECES).write_bytes(translator.bpe.sp.serialized_model_proto())
    files = {file.name: fingerprint(file) for file in sorted(folder.iterdir())}
    settings = {
        "format": FORMAT,
        **ExportSettings(starts, longest_target, pieces, subword_marker(translator.src_dict), files)._asdict(),
    }
    (folder / SETTINGS).write_text(json.dumps(settings, indent=2), encoding="utf-8")


def quantize_weights(model: onnx.ModelProto) -> onnx.ModelProto:
    with TemporaryDirectory() as folder:
        file = Path(folder, "graph.onnx")
        quantize_dynamic(model, file, op_types_to_quantize=["MatMul"], per_channel=True, weight_type=QuantType.QInt8)
        return onnx.load(file)


def remove_debug_info(model: onnx.ModelProto) -> None:
    """Remove the source location of each node, which takes more room than the graph."""
    for part in (model, model.graph, *model.graph.node, *model.graph.value_info, *model.graph.initializer):
        del part.metadata_props[:]
        part.doc_string = ""


class SharedWeightsFile:
    """File of weights, without duplicates."""

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        self.places: dict[bytes, int] = {}

    def move(self, model: onnx.ModelProto) -> None:
        """Put the large tensors of ``model`` into the file."""
        for tensor in model.graph.initializer:
            content = onnx.numpy_helper.to_array(tensor).tobytes()
            if len(content) < SMALL:
                continue
            key = sha256(content).digest()
            if key not in self.places:
                self.file.write(bytes(-self.file.tell() % PAGE))
                self.places[key] = self.file.tell()
                self.file.write(content)
            tensor.raw_data = content
            set_external_data(tensor, WEIGHTS, self.places[key], len(content))
            tensor.ClearField("raw_data")
