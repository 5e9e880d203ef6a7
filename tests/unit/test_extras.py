"""What an installation without extras does, and what it says of what it lacks."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib

from tests.docs.pages import DOCS, ROOT, blocks, code, rows, section

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
BLOCK = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if any(f"{name}.".startswith(f"{blocked}.") for blocked in BLOCKED):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

BLOCKED = %r
sys.meta_path.insert(0, Blocked())
"""
OF_EXTRAS = ["adlfs", "azure", "botocore", "kubernetes"]


def run_without(*lines: str) -> subprocess.CompletedProcess[str]:
    """Run Python where the packages of the extras cannot be imported."""
    text = BLOCK % OF_EXTRAS + "\n".join(lines)
    return subprocess.run([sys.executable, "-c", text], cwd=ROOT, capture_output=True, text=True, check=False)


def test_all_is_all_extras():
    extras = PROJECT["optional-dependencies"]

    assert sorted(extras) == ["all", "azure", "kubernetes", "s3", "scope"]
    assert set(extras["all"]) == {
        package for name, more in extras.items() if name != "all" for package in more
    }
    required = {re.split(r"[<>=!~]", name)[0] for name in PROJECT["dependencies"]}
    assert not required & {"adlfs", "azure-identity", "apache-airflow-providers-microsoft-azure"}


def test_files_on_a_disk_need_no_extra_and_all_modules_are_there(tmp_path):
    (tmp_path / "landing").mkdir()
    (tmp_path / "landing" / "a.csv").write_text("1\n")
    done = run_without(
        "import importlib, pkgutil",
        "import airflow_provider_scope as package",
        "for module in pkgutil.walk_packages(package.__path__, package.__name__ + '.'):",
        "    if not module.name.endswith(('main', 'main__')):",
        "        importlib.import_module(module.name)",
        "from airflow_provider_scope.engines.assembly import RunContext, assemble",
        "from airflow_provider_scope.protocol.dry_run import preview",
        "from airflow_provider_scope.operators.delta_ingest import DeltaIncrementalIngestOperator",
        "from airflow_provider_scope.specs import FileSource",
        f"source = FileSource(roots={str(tmp_path / 'landing')!r}, format='csv', safety_buffer_seconds=0)",
        f"table = {str(tmp_path / 'table')!r}",
        "task = DeltaIncrementalIngestOperator(task_id='t', delta_location=table, source=source)",
        "run, request, _ = assemble(task.ingest(), RunContext(task='d.t', log_file=None, report=print))",
        "print(len(preview(run, request).new), 'planned')",
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "1 planned"


NEEDING = {
    ("azure", "adlfs"): "store_of('abfss://lake@acme.dfs.core.windows.net/t').storage",
    ("scope", "azure"): "acquire(Identity(kind='default'))",
    ("s3", "botocore"): "store_of('s3://bucket/t').storage",
    ("kubernetes", "kubernetes"): "Kubernetes(Connection(conn_id='k8s', host='k8s://host'))",
}
"""Extra, and the first of its packages that is missed -> what needs it."""


def test_what_is_missing_is_named_with_its_extra_as_the_page_shows_it():
    done = run_without(
        "from airflow_provider_scope.exceptions import InputError",
        "from airflow_provider_scope.hooks.credentials import Identity, acquire",
        "from airflow_provider_scope.hooks.stores import store_of",
        "from airflow.sdk import Connection",
        "from airflow_provider_scope.engines.kubernetes import Kubernetes",
        f"for code in {[*NEEDING.values()]}:",
        "    try:",
        "        exec(code)",
        "    except InputError as err:",
        "        print(f'InputError: {err}\\n')",
    )

    messages = done.stdout.split("\n\n")[:-1]
    assert len(messages) == len(NEEDING), done.stderr
    for (extra, package), message in zip(NEEDING, messages, strict=True):
        assert f"pip install 'airflow-provider-scope[{extra}]'" in message
        assert f"needs a package that is not installed here: No module named {package!r}" in message
    assert f"{messages[0]}\n" == blocks(section(DOCS / "install.md", "## Extras"), "text")[0].text


def test_the_package_says_that_it_is_typed():
    # The wheel is all of the folder; `make test-versions` looks for it in an installed one.
    assert (ROOT / "airflow_provider_scope" / "py.typed").is_file()


def test_the_page_lists_the_extras_and_their_packages():
    table = rows(section(DOCS / "install.md", "## Extras"))
    documented = {code(row[0])[0]: set(code(row[2])) for row in table if row[0].startswith("`")}
    extras = PROJECT["optional-dependencies"]
    names = {name: {re.split(r"[<>=]", package)[0] for package in more} for name, more in extras.items()}

    assert documented == {**names, "all": set()}
