"""The steps of a configuration: the model is built, trained for a step, saved, loaded, compared, and translates."""

import math
import re
from pathlib import Path
from typing import Any

import torch
from fairseq import checkpoint_utils
from fairseq.logging import metrics
from fairseq.tasks.sentence_prediction import SentencePredictionTask
from fairseq.trainer import Trainer
from omegaconf import DictConfig
from torch import Tensor

from .sentences import Batch, make_batch, make_task

_LONGEST_TRANSLATION = 4
# Incremental decoding against one forward pass, relative to the largest score.
_CLOSE = {torch.float32: 1e-3, torch.float16: 0.05, torch.bfloat16: 0.5}


class Broken(Exception):
    """A property of every accepted configuration does not hold; the message says which."""


def train(cfg: DictConfig, *, joined: bool) -> Trainer:
    """Build the model of ``cfg`` and make one update; invalid configurations must be refused here.

    Raises:
        Broken: the loss is not finite, or an expected gradient is missing or not finite.
    """
    torch.manual_seed(1)
    metrics.reset()
    task = make_task(cfg.task, joined=joined)
    model = task.build_model(cfg.model)
    trainer = Trainer(cfg, task, model, task.build_criterion(cfg.criterion))
    trainer.begin_epoch(1)
    with metrics.aggregate("train"):
        logged = trainer.train_step([make_batch(task, model)])
    if not math.isfinite(logged["loss"]):
        raise Broken(f"the loss is {logged['loss']}")
    check_gradients(cfg, model)
    return trainer


def use(trainer: Trainer, folder: Path, *, joined: bool) -> None:
    """Save the model, load it as fairseq-generate does, compare both, and translate; every error is a failure.

    Raises:
        Broken: the loaded model differs, or a translation's scores are not those of a forward pass.
    """
    model, task = trainer.model, make_task(trainer.cfg.task, joined=joined)
    batch, loaded = make_batch(task, model), saved_and_loaded(trainer, folder / "checkpoint.pt", task)
    if not outputs(model, batch).equal(outputs(loaded, batch)):
        raise Broken("the loaded model gives other outputs")
    if not isinstance(task, SentencePredictionTask) and loaded.max_decoder_positions() > 1:
        translate(trainer.cfg, task, loaded, batch)


def check_gradients(cfg: DictConfig, model: Any) -> None:
    without = [name for name, weight in model.named_parameters() if weight.requires_grad and weight.grad is None]
    unexplained = [name for name in without if not any(re.match(pattern, name) for pattern in explained(cfg))]
    if unexplained:
        raise Broken(f"no gradient: {unexplained}")
    infinite = [name for name, weight in model.named_parameters() if not _is_finite(weight.grad)]
    if infinite:
        raise Broken(f"the gradient is not finite: {infinite}")


def explained(cfg: DictConfig) -> list[str]:
    """Patterns of the weights that may have no gradient."""
    patterns = [r"decoder\.adaptive_softmax\.tail\."]  # no target word may be in that band
    if getattr(cfg.model, "encoder_layerdrop", 0) > 0:
        # Without layers a reader's packed sequence is unused.
        patterns += [r"encoder\.layers\.", r"encoder\.sentence_encoder\.(layers|.*packed)"]
    if getattr(cfg.model, "decoder_layerdrop", 0) > 0:  # without decoder layers the encoder is unused
        patterns += [r"decoder\.layers\.", r"encoder\."]
    return patterns


def _is_finite(gradient: Tensor | None) -> bool:
    return gradient is None or bool(torch.isfinite(gradient).all())


def saved_and_loaded(trainer: Trainer, path: Path, task: Any) -> Any:
    """The model as fairseq-generate loads it, in the dtype of its training."""
    trainer.consolidate_optimizer()
    trainer.save_checkpoint(str(path), {"train_iterator": {"epoch": 1}})
    [loaded], _, _ = checkpoint_utils.load_model_ensemble_and_task([str(path)], task=task, strict=True)
    return loaded.to(next(trainer.model.parameters()).dtype)


def outputs(model: Any, batch: Batch) -> Tensor:
    model.eval()
    given = batch["net_input"]
    with torch.no_grad():
        if "prev_output_tokens" in given:
            return model(**given)[0]
        return model(**given, classification_head_name="sentence_classification_head")[0]


def translate(cfg: DictConfig, task: Any, model: Any, batch: Batch) -> None:
    """Beam search; each translation must have the scores of one forward pass over it."""
    cfg.generation.beam, cfg.generation.nbest = 2, 2
    cfg.generation.max_len_b = _LONGEST_TRANSLATION
    model.prepare_for_inference_(cfg)
    generator = task.build_generator([model], cfg.generation)
    found = task.inference_step(generator, [model], batch)
    for row, hypotheses in enumerate(found):
        source = batch["net_input"]["src_tokens"][row]
        source = source[source.ne(task.source_dictionary.pad())][None]
        for hypothesis in hypotheses:
            scores = scores_as_a_whole(model, source, hypothesis["tokens"], task.target_dictionary.eos())
            gap = (scores - hypothesis["positional_scores"]).abs().max()
            if not gap <= _CLOSE[next(model.parameters()).dtype] * max(1, scores.abs().max()):
                raise Broken(f"the scores of a translation are off by {gap}")


def scores_as_a_whole(model: Any, source: Tensor, words: Tensor, eos: int) -> Tensor:
    """Log-probability of each of ``words (T,)``, a translation of ``source (1, S)``: ``(T,)``."""
    before = words.roll(1)
    before[0] = eos
    with torch.no_grad():
        out = model(source, torch.tensor([source.shape[1]]), before[None])
        log_probs = model.get_normalized_probs(out, log_probs=True)
    return log_probs[0].gather(1, words[:, None])[:, 0]
