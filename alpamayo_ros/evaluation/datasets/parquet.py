"""Tables in Parquet, for which pyarrow is needed: an optional dependency that nothing else imports."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

from alpamayo_ros.core.types import ConfigurationError


def read_columns(data: bytes, columns: Sequence[str], what: str) -> dict[str, list[Any]]:
    """Columns of a Parquet file, by name. What pandas kept as an index is a column too.

    Args:
        data: the file's bytes.
        columns: those that are wanted.
        what: names the file in errors.

    Raises:
        ConfigurationError: pyarrow is not installed, the data are damaged, or a column is missing.
    """
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise ConfigurationError(
            f"{what} is a Parquet file, and pyarrow is not installed: pip install pyarrow"
        ) from error
    try:
        file = parquet.ParquetFile(io.BytesIO(data))
        missing = [name for name in columns if name not in file.schema_arrow.names]
        if missing:
            raise ConfigurationError(
                f"{what} has no column {', '.join(missing)}; it has {', '.join(file.schema_arrow.names)}"
            )
        found: dict[str, list[Any]] = file.read(columns=list(columns)).to_pydict()
    except (pyarrow.ArrowException, OSError) as error:
        raise ConfigurationError(f"{what} can't be read: {error}; expected a Parquet file") from error
    return found
