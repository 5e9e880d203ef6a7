"""A script that inserts rows of files into a table, and the rows that it inserted."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

LOCATION = "abfss://lake@acct.dfs.core.windows.net/tables/orders"


def script(*files, refresh=False, select="SELECT id, name, uri FROM @data", location=LOCATION):
    names = ", ".join(f'"{file}"' for file in files)
    delete = ""
    if refresh:
        delete = (
            "DECLARE TABLE @target_rw LOCATION @deltaPath OPTIONS (LAYOUT = DELTA);\n"
            "DELETE FROM @target_rw WHERE true;\n"
        )
    return (
        'SET @@FeaturePreviews = "EnableDeltaTableDynamicInsert:on";\n'
        f'#DECLARE @deltaPath string = "{location}";\n'
        "CREATE TABLE IF NOT EXISTS @target (id long, name string, uri string)\n"
        "LOCATION @deltaPath OPTIONS (LAYOUT = DELTA);\n"
        'ALTER TABLE @target SET TBLPROPERTIES ("owner" = "us");\n'
        f"{delete}"
        f"@data = EXTRACT id : long, name : string, uri = FILE.URI(), size = FILE.LENGTH(),\n"
        f"created = FILE.CREATED(), modified = FILE.MODIFIED() FROM {names} USING Extractors.SStream();\n"
        f"@batch_data = {select};\n"
        "INSERT INTO @target SELECT id, name, uri FROM @batch_data;\n"
    )


def write(path, *ids, name="n"):
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"id": list(ids), "name": [name] * len(ids), "unused": list(ids)}), path)


def rows(root):
    table = DeltaTable(root / "lake/tables/orders").to_pyarrow_table()
    return sorted(zip(*(table[name].to_pylist() for name in ("id", "uri")), strict=True))
