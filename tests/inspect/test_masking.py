"""What leaves the process: no value of the environment, no long string."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rote.inspect.masking import LONGEST, masked


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("os.environ._data[b'FOO'] was b'secret' and is b'other'", "os.environ._data[b'FOO'] was <6 ch"),
        ("os.environ['FOO'] was 'secret' and is None", "os.environ['FOO'] was <6 characters"),
        ("args[1]: 'short'", "args[1]: 'short'"),
        (f"args[1]: {'x' * 33!r}", "args[1]: <33 characters, sha256 "),
        ("key = 'sk-" + "a" * 40 + "'  # a key", "key = <43 characters, sha256 "),
        ("args[1]: '" + "x" * 36 + "...)", "args[1]: <a long string, its beginning sha256 "),
        ("don't, and it's short", "don't, and it's short"),
    ],
)
def test_texts(text, shown):
    assert masked(text).startswith(shown) and "secret" not in masked(text) and "xxx" not in masked(text)


@given(st.text(alphabet=st.characters(exclude_characters="\n\\'\""), min_size=LONGEST + 1, max_size=80))
def test_no_long_string_is_left(value):
    assert value not in masked(f"it was '{value}' and is \"{value}\"")


@given(st.text(min_size=1, max_size=20).filter(lambda text: repr(text)[1:-1] not in "os.environ was"))
def test_no_value_of_the_environment_is_left(value):
    told = masked(f"os.environ was {value!r}")
    assert told.startswith("os.environ was <") and told.endswith(">")


def test_equal_values_have_equal_digests():
    same, other = "'" + "a" * 40 + "'", "'" + "b" * 40 + "'"
    assert masked(same) == masked(same) != masked(other)
