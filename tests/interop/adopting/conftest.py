import pytest


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("RPG_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return tmp_path
