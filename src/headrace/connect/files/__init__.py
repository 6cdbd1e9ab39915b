"""Files: lines that a file grows by, the files of a folder, and rows that go out as files of a size or an age."""

from headrace.connect.files.growing import lines
from headrace.connect.files.incoming import folder
from headrace.connect.files.rolled import rolling

__all__ = ["folder", "lines", "rolling"]
