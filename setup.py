"""The page on a package index is README without its picture, with links to the repository's pages."""

import re
from pathlib import Path

from setuptools import setup

# OWNER stands for the account that hosts the repository; tests/test_documents.py lists the files that name it.
REPOSITORY = "https://github.com/OWNER/fairseq_luna"

readme = Path(__file__).with_name("README.md").read_text(encoding="utf-8")
readme = re.sub(r"<img [^>]*>\s*", "", readme)
readme = re.sub(r"\]\((?!https://)", f"]({REPOSITORY}/blob/main/", readme)
setup(
    long_description=readme,
    long_description_content_type="text/markdown",
    project_urls={"Repository": REPOSITORY, "Issues": f"{REPOSITORY}/issues", "Changelog": f"{REPOSITORY}/releases"},
)
