"""Printed lines and JSON of scores."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from ...files import atomic_write
from .documents import SourceScores
from .metrics import ComparedScore, Scores


def lines_of_scores(name: str, scores: Scores, unit: str) -> list[str]:
    """Lines with each score, its signature, its confidence interval, and for BLEU the lengths of both sides."""
    lines = [f"{name}: {scores.sentences:,} {unit}"]
    for measure in scores.measures:
        lines.append(f"  {measure.score:6.2f}  {measure.name}  {measure.signature}")
        if measure.mean is not None:
            lines.append(f"          {measure.mean:.2f} ± {measure.interval:.2f} in 95 % of resampled tests")
        if measure.hypothesis_length is not None:
            lines.append(
                f"          hypotheses {measure.hypothesis_length:,} tokens, references "
                f"{measure.reference_length:,}, brevity penalty {measure.brevity_penalty:.3f}"
            )
    return lines


def lines_of_documents(rows: Sequence[SourceScores]) -> list[str]:
    """Lines of a table with a row for each source."""
    lines = ["  d-BLEU  documents  segment BLEU  segments with as many separators as the reference"]
    for row in rows:
        segment_bleu = "-" if row.segment_bleu is None else f"{row.segment_bleu:.2f}"
        aligned = f"{row.aligned:,} of {row.segments:,}"
        lines.append(
            f"  {row.document_bleu:6.2f}  {row.documents:9,}  {segment_bleu:>12}  {aligned:20}  {row.source or 'all'}"
        )
    return lines


def lines_of_comparison(compared: Sequence[ComparedScore]) -> list[str]:
    """Lines of a table for each metric, the baseline first. All of ``compared`` have the same baseline."""
    lines = [f"paired bootstrap against {compared[0].system}: score, mean and 95 % interval of the resampled tests"]
    for measure, signature in {row.measure: row.signature for row in compared}.items():
        lines.append(f"  {measure}  {signature}")
        for row in (row for row in compared if row.measure == measure):
            chance = "baseline" if row.p is None else f"p = {row.p:.4f}"
            lines.append(f"    {row.score:6.2f}  {row.mean:6.2f} ± {row.interval:.2f}  {chance:10}  {row.system}")
    return lines


def write_json(
    file: Path,
    references: Sequence[Path],
    tokenizer: str,
    scores: Mapping[str, Scores],
    documents: Mapping[str, Sequence[SourceScores]],
    compared: Sequence[ComparedScore],
) -> None:
    """Write all scores to ``file``, with the field names of the dataclasses."""
    content = {
        "references": [*map(str, references)],
        "tokenizer": tokenizer,
        "systems": {
            name: {"sentences": scored.sentences, "scores": {each.name: asdict(each) for each in scored.measures}}
            for name, scored in scores.items()
        },
        "documents": {name: [row._asdict() for row in rows] for name, rows in documents.items()},
        "paired_bootstrap": [row._asdict() for row in compared],
    }
    with atomic_write(file) as unfinished:
        unfinished.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
