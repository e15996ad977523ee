import pytest
from typer.testing import CliRunner


@pytest.fixture
def rote(tmp_path, monkeypatch):
    """Runs the command line in a folder of its own; ``write`` makes files there."""
    from rote.cli.app import app

    monkeypatch.chdir(tmp_path)

    def run(*arguments, input=None):
        return CliRunner().invoke(app, [str(argument) for argument in arguments], input=input)

    def write(name, text):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
        return tmp_path / name

    run.write, run.folder = write, tmp_path
    return run
