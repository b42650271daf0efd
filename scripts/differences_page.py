"""Print docs/differences.md, of the data beside each attention: python scripts/differences_page.py > differences.md."""

from collections.abc import Iterator

from fairseq_luna.commands.info import published_layers
from fairseq_luna.modules.attention import DIFFERENCES_OF_ALL
from fairseq_luna.published import Difference

INTRODUCTION = """# Differences from the published layers

Where an attention, Luna or Apollo is not what its paper or the authors' code has, and why. This page is made by
`python scripts/differences_page.py` from the data that stands beside each attention in `fairseq_luna/modules`, so that
it agrees with the code. Where the published numbers are compared, they agree: [reproduce](reproduce.md).

C is the number of the model's channels, D of a head's. *Published* is the paper, then the code that it was compared
with.
"""
WEIGHT_DECAY = """
## Weight decay

fairseq's trainer gives all parameters to the optimizer as one group, and `--fp16` joins them into one tensor, so
`--weight-decay` reaches parameters that the authors exempt: `A_log`, `dt_bias` and `D` of ssd and gated-delta, and
biases, norms, the spans of adaptive-span and the deviations of rfa. Without `--weight-decay`, 0 by default, nothing is
changed. With it, fairseq's Adam multiplies a parameter by 1 - learning rate times decay in each update: what the loss
does not hold falls to exp(-decay times the sum of all learning rates). After 100,000 updates with a mean learning rate
of 0.0003 that is 0.997 with 0.0001, which is too little to see, and 0.05 with 0.1, as language models have it. Then the
decays of `A_log`, exp(`A_log`), tend to 1, and `dt_bias` to 0, with which a head forgets half of its sum in a step.

What you can do:

- leave `--weight-decay` at 0.0001 or below for ssd and gated-delta;
- in a training loop of your own, give torch's optimizer two groups:

```python
exempt = [p for name, p in model.named_parameters() if name.rpartition(".")[2] in ("A_log", "dt_bias", "D")]
others = [p for name, p in model.named_parameters() if name.rpartition(".")[2] not in ("A_log", "dt_bias", "D")]
optimizer = torch.optim.AdamW([{"params": others}, {"params": exempt, "weight_decay": 0.0}], lr=3e-4, weight_decay=0.1)
```

- under fairseq-hydra-train, fairseq's optimizer `composite` has groups with settings of their own, by the attribute
  `param_group` of a parameter, which code of yours has to set.
"""


def rows(name: str, differences: tuple[Difference, ...]) -> Iterator[str]:
    if not differences:
        yield f"| {name} | none known | | | |"
    for difference in differences:
        yield f"| {name} | {' | '.join(difference)} |"


def page() -> str:
    lines = [
        INTRODUCTION.rstrip(),
        "\n## Of every attention\n",
        "| | here | published | why |",
        "| --- | --- | --- | --- |",
    ]
    lines += [f"| {' | '.join(difference)} |" for difference in DIFFERENCES_OF_ALL]
    lines += ["\n## By name\n", "| name | what | here | published | why |", "| --- | --- | --- | --- | --- |"]
    for name, published in published_layers().items():
        lines += rows(name, published.differences)
    lines += ["\n## Published\n", "| name | paper; code that it was compared with |", "| --- | --- |"]
    lines += [f"| {name} | {published.layer} |" for name, published in published_layers().items()]
    return "\n".join(lines) + "\n" + WEIGHT_DECAY


if __name__ == "__main__":
    print(page(), end="")
