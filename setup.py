"""The page on a package index is README without its picture, whose file is only in the repository."""

import re
from pathlib import Path

from setuptools import setup

readme = Path(__file__).with_name("README.md").read_text(encoding="utf-8")
setup(long_description=re.sub(r"<img [^>]*>\s*", "", readme), long_description_content_type="text/markdown")
