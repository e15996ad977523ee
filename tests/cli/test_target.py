"""What a command line target may be, and what is said of one that is none."""

import sys
import textwrap

import pytest

from rote.base.errors import MisuseError
from rote.cli.targets import check_arguments, load


@pytest.fixture(autouse=True)
def modules():
    """Imports of targets are undone."""
    before, path = set(sys.modules), list(sys.path)
    yield
    for name in set(sys.modules) - before:
        del sys.modules[name]
    sys.path[:] = path


@pytest.fixture
def build(tmp_path):
    def write(body, name="policy_target.py"):
        (tmp_path / name).write_text(textwrap.dedent(body))
        return f"{tmp_path / name}:build"

    return write


def test_a_callable_with_its_arguments(build):
    target = load(build("def build():\n    return max, (1, 2), {'key': abs}"))
    assert target.function is max and target.args == (1, 2) and target.kwargs == {"key": abs}


def test_short_forms(build):
    assert load(build("def build():\n    return max, [1, 2]")).args == (1, 2)
    assert load(build("def build():\n    return (max,)")).args == ()
    assert load(build("def build():\n    return max")).kwargs == {}


def test_arguments_are_literals_or_text(build):
    target = load(
        build("def build(n, name, flag=True):\n    return max, (n, name, flag)"),
        ["n=3", "name=big", "flag=False"],
    )
    assert target.args == (3, "big", False)


def test_a_neighbour_can_be_imported(build, tmp_path):
    (tmp_path / "neighbour_of_target.py").write_text("value = 5")
    assert load(build("import neighbour_of_target as n\ndef build():\n    return max, (n.value,)")).args == (
        5,
    )


def test_a_module_of_the_working_folder(build, tmp_path, monkeypatch):
    build("def build():\n    return max, (1, 2)", "target_of_the_folder.py")
    monkeypatch.chdir(tmp_path)
    assert load("target_of_the_folder:build").args == (1, 2)


def test_a_module(tmp_path):
    with pytest.raises(MisuseError, match=r"operator:itemgetter (raised TypeError|cannot be called)"):
        load("operator:itemgetter")


@pytest.mark.parametrize(
    "body, message",
    [
        ("def other():\n    pass", r"has no function 'build'\. It has: other\."),
        ("def build():\n    raise ValueError('no weights')", r"raised ValueError: no weights"),
        ("def build():\n    return 3", r"returned an int; a target returns a callable"),
        ("def build():\n    return max, 3", r"returned \(builtin_function_or_method, int\); args is to be"),
        (
            "def build():\n    return max, (1,), []",
            r"returned \(.*, tuple, list\); .*, as in \(fn, \(x,\)\): ",
        ),
        ("from os.path import join\ndef other():\n    pass", r"has no function 'build'\. It has: other\."),
        ("def build(:", r"cannot be imported: SyntaxError: .* \(policy_target.py, line 1\)$"),
        ("import nothing_there", r"cannot be imported: ModuleNotFoundError: .* \(.*policy_target.py:1\)$"),
        ("raise ValueError('two\\nlines')", r"cannot be imported: ValueError: two \(.*policy_target.py:1\)$"),
        ("raise ValueError", r"cannot be imported: ValueError \(.*policy_target.py:1\)$"),
        ("exit(3)", r"cannot be imported: SystemExit: 3 \(.*policy_target.py:1\)$"),
        ("def build():\n    exit('no')", r"raised SystemExit: no \(.*policy_target.py:2\)$"),
        ("def build():\n    raise KeyError(4)", r"raised KeyError: 4 \(.*policy_target.py:2\)$"),
        ("def biuld():\n    pass\ndef other():\n    pass", r"no function 'build'\. It has: biuld\.$"),
        (
            "def build(n):\n    pass",
            r"cannot be called: .* 'n'\. .*; give it values with --arg NAME=VALUE, or",
        ),
        (
            "import torch\nbuild = torch.nn.Linear(2, 2)",
            r"cannot be called: .* 'input'\. A target is a function",
        ),
    ],
)
def test_what_is_no_target(build, body, message):
    with pytest.raises(MisuseError, match=message):
        load(build(body))


def test_malformed_names(tmp_path):
    with pytest.raises(MisuseError, match=r"'policy\.py' is not of the form"):
        load("policy.py")
    with pytest.raises(MisuseError, match=r"there is no file missing\.py"):
        load("missing.py:build")
    with pytest.raises(MisuseError, match=r"no_such_package cannot be imported: ModuleNotFoundError"):
        load("no_such_package:build")


def test_malformed_arguments(build):
    with pytest.raises(MisuseError, match=r"--arg 'n' is not of the form name=value"):
        load(build("def build():\n    return max"), ["n"])


def test_a_name_that_is_not_given(build):
    name = build("def build(n=1):\n    return max, (n, n)")
    with pytest.raises(
        MisuseError, match=r"unexpected keyword argument 'm'\. .*; it takes \(n=1\) and was given m"
    ):
        load(name, ["m=2"])


def test_a_file_of_a_package_is_named_as_a_module(build, tmp_path):
    for name in ("", "policies/"):
        (tmp_path / "robots" / name).mkdir()
        (tmp_path / "robots" / name / "__init__.py").touch()
    name = build("from .shapes import SIZE\ndef build():\n    return max", "robots/policies/small.py")
    with pytest.raises(MisuseError) as raised:
        load(name)
    assert str(raised.value).endswith(
        f"Name it as robots.policies.small:function, with {tmp_path} on PYTHONPATH."
    )


def test_a_path_without_a_function(build, tmp_path):
    file = build("def build():\n    pass\ndef _inner():\n    pass\ndef other():\n    pass").rpartition(":")[0]
    with pytest.raises(
        MisuseError, match=r"; name one of its functions \(build, other\), or only .*: rote check --static "
    ):
        load(file)
    with pytest.raises(MisuseError, match=r"; a folder can be read: rote check --static "):
        load(str(tmp_path))


@pytest.mark.parametrize(
    "body, message",
    [
        (
            "def build():\n    return lambda x: x",
            r"returned a function .* 'x'\. A target returns a callable, \(",
        ),
        (
            "import torch\ndef build():\n    return torch.nn.Linear(2, 2)",
            r"returned a Linear that .* 'input'\. ",
        ),
        ("def build():\n    return (lambda: 1), (2,)", r"it came with: too many positional arguments"),
        ("def build():\n    return (lambda x: 1), (2,), {'y': 3}", r"unexpected keyword argument 'y'"),
    ],
)
def test_arguments_that_the_callable_does_not_take(build, body, message):
    with pytest.raises(MisuseError, match=message):
        check_arguments(load(build(body)))


def test_arguments_that_it_takes_and_callables_that_do_not_say(build):
    check_arguments(
        load(build("import torch\ndef build():\n    return torch.nn.Linear(2, 2), (torch.ones(2),)"))
    )
    check_arguments(load(build("def build():\n    return max, (1, 2)")))
