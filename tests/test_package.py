"""The package as it is imported and shipped."""

import importlib
import inspect
import os
import pkgutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import django_pgqueue

ROOT = Path(__file__).resolve().parent.parent


def submodules() -> list[str]:
    """Return every module of the package that a program imports (commands are run, not imported)."""
    found = pkgutil.walk_packages(django_pgqueue.__path__, "django_pgqueue.")
    return sorted(info.name for info in found if not info.name.endswith("__main__"))


def run_python(code: str, **env: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(ROOT), "DJANGO_SETTINGS_MODULE": "testproject.settings", **env},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_task_is_the_decorator_whatever_submodule_is_imported() -> None:
    for name in submodules():
        importlib.import_module(name)
        assert inspect.isfunction(django_pgqueue.task), name
    assert importlib.reload(django_pgqueue).task is django_pgqueue.tasks.task


FIRST = """
import sys, importlib, django
from django.conf import settings
first = sys.argv[1:] or {names!r}
for name in first:
    for loaded in [key for key in sys.modules if key.split(".")[0] == "django_pgqueue"]:
        del sys.modules[loaded]
    importlib.import_module(name)
    from django_pgqueue import task
    assert callable(task) and task.__name__ == "task", (name, task)
print(len(first))
"""


def test_task_is_the_decorator_whatever_is_imported_first() -> None:
    names = (
        "tasks",
        "backend",
        "conf",
        "compat",
        "retry",
        "payloads",
        "exceptions",
        "signals",
        "sql",
        "states",
    )
    before_the_apps = [f"django_pgqueue.{name}" for name in names]
    assert run_python(FIRST.format(names=before_the_apps)) == str(len(before_the_apps))


def test_every_public_name_can_be_imported_and_says_what_it_is() -> None:
    assert sorted(django_pgqueue.__all__) == list(django_pgqueue.__all__)
    for name in django_pgqueue.__all__:
        value = getattr(django_pgqueue, name)
        assert inspect.getdoc(value), name
    assert set(django_pgqueue._HOMES) == set(django_pgqueue.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        django_pgqueue.nothing  # noqa: B018


def public_objects() -> list[tuple[str, object]]:
    found: list[tuple[str, object]] = []
    for name in submodules():
        module = importlib.import_module(name)
        found.append((name, module))
        for attribute, value in vars(module).items():
            mine = getattr(value, "__module__", None) == name
            if (
                mine
                and not attribute.startswith("_")
                and (inspect.isclass(value) or inspect.isfunction(value))
            ):
                found.append((f"{name}.{attribute}", value))
                if inspect.isclass(value):
                    found += [
                        (f"{name}.{attribute}.{key}", method)
                        for key, method in vars(value).items()
                        if inspect.isfunction(method) and not key.startswith("_") and key != "Meta"
                    ]
    return found


def is_empty(value: object) -> bool:
    return inspect.ismodule(value) and not Path(str(value.__file__)).read_text()


def test_every_public_object_has_a_docstring() -> None:
    skipped = ("django_pgqueue.migrations.", "django_pgqueue.admin.", "django_pgqueue.lab.")
    silent = [
        name
        for name, value in public_objects()
        if not inspect.getdoc(value) and not is_empty(value) and not name.startswith(skipped)
    ]
    assert silent == []


def test_importing_the_package_imports_no_models() -> None:
    code = "import sys, django_pgqueue; print([m for m in sys.modules if m.startswith('django')])"
    assert run_python(code) == "['django_pgqueue']"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel and the sdist without a network."""
    hatchling = pytest.importorskip("hatchling.build", reason="hatchling is not installed")
    folder = tmp_path_factory.mktemp("dist")
    code = "import sys, hatchling.build as b; print(b.build_wheel(sys.argv[1])); print(b.build_sdist(sys.argv[1]))"
    assert hatchling
    done = subprocess.run(
        [sys.executable, "-c", code, str(folder)], cwd=ROOT, capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stderr
    return folder


def test_the_wheel_ships_what_the_app_needs_and_nothing_else(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    assert wheel.name.startswith("django_pgqueue_leases-") and wheel.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        (metadata,) = [name for name in names if name.endswith(".dist-info/METADATA")]
        text = archive.read(metadata).decode()
    folders = {name.split("/")[0] for name in names}
    assert {folder for folder in folders if not folder.endswith(".dist-info")} == {"django_pgqueue"}
    assert not [name for name in names if "__pycache__" in name or name.endswith(".pyc")]
    assert "django_pgqueue/py.typed" in names
    here = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "django_pgqueue").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert here <= names
    assert "License-Expression: MIT" in text
    assert "Requires-Python: >=3.11" in text
    assert "Requires-Dist: django-tasks" in text and "python_version < '3.12'" in text


def test_the_sdist_is_small_and_holds_the_tests(built: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "manage.py", "PKG-INFO"} <= names
    assert {"tests/test_package.py", "testproject/settings.py", "django_pgqueue/py.typed"} <= names
    assert not [name for name in names if name.startswith((".pgdata", ".shop", ".venv", ".git/"))]
    assert sdist.stat().st_size < 1_000_000


def test_the_version_is_one() -> None:
    from importlib.metadata import PackageNotFoundError, version

    try:
        installed = version("django-pgqueue-leases")
    except PackageNotFoundError:
        pytest.skip("the package is not installed, only on the path")
    assert installed == django_pgqueue.__version__
