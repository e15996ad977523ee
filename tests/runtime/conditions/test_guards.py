"""The plain guard: it holds while every slot is as it was, and says what is not."""

from __future__ import annotations

import torch
from tests.runtime.conditions.reachable import guard_of


class Plain:
    def __init__(self, **attributes):
        for name, value in attributes.items():
            setattr(self, name, value)


def test_a_guard_holds_and_fails():
    box = Plain(a=1000, b=[1.5], t=torch.ones(2))
    found = guard_of(box, [box.t])
    assert found.holds() and found.explain() == [] and found.entries
    box.a = int("1000")  # another object, equal
    assert found.holds()
    box.a = 1001
    assert not found.holds()
    (text,) = map(str, found.explain())
    assert text == "f.a was 1000 and is 1001"
    box.a = 1000
    assert found.holds()
    box.b.append(2)
    assert not found.holds()
    assert "f (length) was 1 and is 2" in [str(d) for d in found.explain()]


def test_a_guard_on_tensors():
    box = Plain(t=torch.ones(2))
    found = guard_of(box, [box.t])
    old, kept = box.t.data_ptr(), box.t
    box.t = torch.zeros(2)
    assert not found.holds()
    (difference,) = found.explain()
    assert difference.moved
    assert str(difference) == f"f.t was the tensor at {old:#x} and is another one at {box.t.data_ptr():#x}"
    box.t = kept
    assert found.holds()
    data = kept.data
    kept.data = torch.zeros(2)
    assert [str(d) for d in found.explain()] == [
        f"f.t was at address {old:#x} and is at {kept.data_ptr():#x}"
    ]
    kept.data = data
    kept.requires_grad_()
    assert not found.holds()
    assert [str(d) for d in found.explain()] == ["f.t was requires_grad=False and is True"]


def test_a_guard_keeps_no_tensor_alive():
    box = Plain(t=torch.ones(2))
    found = guard_of(box, [box.t])
    box.t = None
    assert found.tensors.dead and not found.holds()


def test_a_guard_on_what_is_gone():
    box = Plain(d={"a": 1})
    found = guard_of(box)
    del box.d["a"]
    assert not found.holds()
    assert "f['a'] was 1 and is gone" in [str(d) for d in found.explain()]


def test_an_object_that_answers_everything_with_a_number_is_not_asked_for_its_class():
    class Odd:
        def __getattribute__(self, name):
            return 0

    box = Plain(odd=Odd(), a=1)
    found = guard_of(box)
    box.a = 2
    assert not found.holds()
