"""A folder of Parquet files as a sink: a manifest names the files that are whole, and the last epoch of each writer."""

from headrace.connect.parquet.folder import ParquetFolder, folder
from headrace.connect.parquet.reading import compact, files, sql

__all__ = ["ParquetFolder", "compact", "files", "folder", "sql"]
