"""fairseq_luna: attention that is not quadratic, as a fairseq plugin."""

from pathlib import Path

from setuptools import find_packages, setup

setup(
    name="fairseq-luna",
    version="0.1.0",
    description="Luna, Fastformer and block attention, and the Apollo optimizer, for fairseq",
    long_description=Path(__file__).with_name("README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    packages=find_packages(include=["fairseq_luna", "fairseq_luna.*"]),
    package_data={"fairseq_luna": ["py.typed"]},
    python_requires=">=3.10",
    install_requires=[
        "torch>=2.6",
        # fairseq 0.12.2 cannot be imported from Python 3.11 on; fairseq-fixed is its main branch with that mended.
        'fairseq==0.12.2; python_version < "3.11"',
        'fairseq-fixed==0.12.3.1; python_version >= "3.11"',
        "sacrebleu>=2.3",
        "sentencepiece>=0.2",
    ],
    extras_require={
        "test": ["pytest>=8", "hypothesis>=6", "ruff>=0.9", "mypy>=1.13"],
        "plot": ["matplotlib>=3.8"],
        "data": ["sacremoses>=0.1.1", "subword-nmt>=0.3.8", "regex", "tqdm"],
    },
)
