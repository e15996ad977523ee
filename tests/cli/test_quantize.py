"""``rote quantize``: what it writes, what it says, and what it refuses."""

import json
import sys
from importlib.util import find_spec

import pytest

from rote.cli import output
from rote.quant import DuQuantConfig, DuQuantLinear, load_quantized
from rote.quant.saving import storage

BUILD = """
import torch
from torch import nn

class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.gate_proj, self.up_proj = nn.Linear(32, 48), nn.Linear(32, 48)
        self.down_proj, self.spare = nn.Linear(48, 32), nn.Linear(32, 32)

    def forward(self, x, scale=1.0):
        return self.down_proj(torch.tanh(self.gate_proj(x)) * self.up_proj(x)) * scale

    def act(self, x, bias=None):
        return self(x) if bias is None else self(x) + bias

def batches(count=3):
    torch.manual_seed(1)
    return [torch.randn(8, 32) for _ in range(count)]

def build(count=3):
    print('building')
    return Policy(), (batches(count),)

def one_call():
    return Policy(), (batches(1)[0],), {"scale": 2.0}

def method():
    return Policy().act, (iter([{"x": x} for x in batches()]),), {"bias": torch.ones(32)}

def pairs():
    return Policy(), ([(x, 2.0) for x in batches()],)

def no_arguments():
    return Policy()

def no_batches():
    return Policy(), ([],)

def closed_over():
    policy = Policy()
    return lambda x: policy(x), (batches(1)[0],)

def raises():
    raise OSError("the weights are gone")

def wrong_width():
    return Policy(), (batches(1) + [torch.randn(8, 31)],)

def broken_loader():
    def load():
        yield batches(1)[0]
        raise OSError("the disk is gone")
    return Policy(), (load(),)

def infinite():
    return Policy(), (torch.full((8, 32), torch.inf),)

def no_layers():
    return nn.Conv1d(3, 3, 1), (torch.randn(1, 3, 4),)

def done_already():
    from rote.quant import DuQuantConfig, quantize_
    model = Policy()
    quantize_(model, DuQuantConfig(rotation="none", permutation="none", smooth_alpha=None, block_size=16))
    return model, (batches(1)[0],)
"""
SMALL = {"block_size": 16, "rotation_steps": 4, "calib_batches": 3}
LAYERS = ["gate_proj", "up_proj", "down_proj", "spare"]


@pytest.fixture
def target(rote):
    """The name of a target; its file is forgotten afterwards."""
    path = list(sys.path)
    rote.write("quantize_target.py", BUILD)
    rote.write("small.json", json.dumps(SMALL))
    yield lambda function: f"quantize_target.py:{function}"
    sys.modules.pop("quantize_target", None)
    sys.path[:] = path


def quantize(rote, target, *arguments, config="small.json"):
    return rote("quantize", target, "--out", "out.safetensors", "--config", config, *arguments)


def test_a_checkpoint_that_loads_into_a_fresh_model(rote, target):
    done = quantize(rote, target("build"))
    assert done.exit_code == 0, done.output
    assert "3 of 4 linear layers quantized" in done.stdout
    assert "was not called in calibration" in done.stdout and "written to out.safetensors" in done.stdout
    assert done.stderr == "building\n"  # what a target prints is no report

    module = sys.modules["quantize_target"]
    fresh = module.Policy()
    load_quantized(fresh, rote.folder / "out.safetensors", config=DuQuantConfig(**SMALL))
    assert isinstance(fresh.down_proj, DuQuantLinear) and not isinstance(fresh.spare, DuQuantLinear)
    x = module.batches()[0]
    assert 0 < (fresh(x) - module.Policy()(x)).norm() < 0.2 * module.Policy()(x).norm()


@pytest.mark.parametrize("function", ["build", "method", "pairs"])
def test_every_batch_is_a_call(rote, target, function):
    done = quantize(rote, target(function), "--batches", 3)
    assert done.exit_code == 0 and "calibrated with" not in done.output, done.output


def test_the_arguments_of_one_call_are_one_batch(rote, target):
    done = quantize(rote, target("one_call"))
    assert done.exit_code == 0
    assert "calibrated with 1 batch, where the configuration has 3" in done.stdout


def test_arguments_reach_the_builder(rote, target):
    done = quantize(rote, target("build"), "--arg", "count=2")
    assert "calibrated with 2 batches" in done.stdout


def test_too_few_batches_are_an_error_where_a_number_is_asked_for(rote, target):
    done = quantize(rote, target("build"), "--batches", 4)
    assert done.exit_code == 2 and "--batches 4: quantize_target.py:build has 3" in done.stderr
    assert not (rote.folder / "out.safetensors").exists()


def test_json_is_all_there_is_on_standard_output(rote, target):
    done = quantize(rote, target("build"), "--json", "-")
    report = json.loads(done.stdout)
    assert [row["name"] for row in report["rows"]] == LAYERS and report["quantized"] == 3
    assert report["rows"][0]["output_error"] > 0 and "written to out.safetensors" in done.stderr


def test_json_in_a_file_beside_the_table(rote, target):
    done = quantize(rote, target("build"), "--json", "report.json")
    assert "3 of 4 linear layers quantized" in done.stdout and "report in report.json" in done.stdout
    assert json.loads((rote.folder / "report.json").read_text())["quantized"] == 3


def test_a_dry_run_lists_every_layer_and_changes_nothing(rote, target):
    done = rote("quantize", target("build"), "--config", "small.json", "--dry-run", "--exclude", "spare")
    assert done.exit_code == 0
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines[1:4]] == LAYERS[:3]
    assert lines[1].split()[1:4] == ["48x32", "W4A8", "kernel"]
    dense, quantized = map(int, lines[1].split()[4:6])
    assert dense == 4 * (48 * 32 + 48) and quantized > 48 * 16
    assert lines[5].split() == ["spare", "32x32", "dense", "4224", "excluded", "by", "'spare'"]
    assert lines[6].startswith("3 of 4 linear layers would be quantized, ")
    assert not (rote.folder / "out.safetensors").exists()


def test_notes_of_layers_are_in_the_table(rote, target):
    lines = quantize(rote, target("build")).stdout.splitlines()
    assert lines[0].split()[-1] == "note"
    assert [line.split()[0] for line in lines if "one launch with" in line] == ["gate_proj", "up_proj"]


def test_include_and_exclude(rote, target):
    done = quantize(rote, target("build"), "--include", "*_proj", "--exclude", "re:^up", "--json", "-")
    rows = json.loads(done.stdout)["rows"]
    assert [row["name"] for row in rows if not row["reason"]] == ["gate_proj", "down_proj"]


@pytest.mark.parametrize("config, path", [("vla", "fused"), ("default", "kernel")])
def test_configurations_by_name(rote, target, config, path):
    done = rote("quantize", target("one_call"), "--config", config, "--dry-run", "--json", "-")
    assert {row["path"] for row in json.loads(done.stdout)["rows"]} == {path}


def test_path_overrides(rote, target):
    done = quantize(rote, target("one_call"), "--path", "reference", "--json", "-", config="vla")
    rows = json.loads(done.stdout)["rows"]
    assert {row["path"] for row in rows if not row["reason"]} == {"reference"}


def test_a_picture(rote, target):
    done = quantize(rote, target("build"), "--plot", "out.png")
    assert done.exit_code == 0 and "picture in out.png" in done.stdout
    assert (rote.folder / "out.png").read_bytes().startswith(b"\x89PNG")


def test_no_calibration_where_none_is_needed_or_possible(rote, target):
    plain = {"rotation": "none", "permutation": "none", "smooth_alpha": None, "block_size": 16}
    rote.write("plain.json", json.dumps(plain))
    done = quantize(rote, target("no_arguments"), config="plain.json")
    assert done.exit_code == 0 and "4 of 4 linear layers quantized" in done.stdout
    done = quantize(rote, target("no_arguments"), "--plot", "out.png", config="plain.json")
    assert done.exit_code == 2 and "--plot needs inputs to look at" in done.stderr


@pytest.mark.parametrize("function", ["no_layers", "done_already"])
def test_status_1_where_nothing_can_be_quantized(rote, target, function):
    done = quantize(rote, target(function))
    assert done.exit_code == 1 and "linear layers quantized" in done.stdout
    assert not (rote.folder / "out.safetensors").exists()


def test_status_1_where_calibration_reaches_no_layer(rote, target):
    done = quantize(rote, target("build"), "--include", "spare")
    assert done.exit_code == 1 and "0 of 4 linear layers quantized" in done.stdout
    assert not (rote.folder / "out.safetensors").exists()


@pytest.mark.parametrize(
    "function, message",
    [
        ("raises", "raised OSError: the weights are gone"),
        ("wrong_width", "raised RuntimeError in batch 2 of 2: "),
        ("broken_loader", "the batches of quantize_target.py:broken_loader raised OSError: the disk is gone"),
        ("no_batches", "returned no batches to calibrate with"),
        ("no_arguments", "raised TypeError in batch 1 of 1"),
        ("closed_over", "returned a function to call, and whose layers are meant cannot be seen"),
        ("infinite", "the input of 'gate_proj' has values that are not finite"),
        ("missing", "has no function 'missing'"),
    ],
)
def test_targets_that_cannot_be(rote, target, function, message):
    done = quantize(rote, target(function))
    assert done.exit_code == 2 and message in done.stderr, done.output
    assert not done.stdout and not (rote.folder / "out.safetensors").exists()


@pytest.mark.parametrize(
    "text, message",
    [
        ('{"wieght_bits": 4}', "broken.json: wieght_bits is no field of DuQuantConfig"),
        ('{"weight_bits": 3.5}', "weight_bits=3.5"),
        ('{"weight_bits": "4"}', "weight_bits='4'"),
        ('{"path": null}', "path=None"),
        ('{"groups": 3}', "groups=3"),
        ('{"layer_bits": [["nowhere*", 8]]}', "layer_bits: 'nowhere*' matches none of the 4 linear layers"),
        ("[4]", "must be a JSON object, not list"),
        ("{", "must be a JSON object"),
        ("[" * 100_000, "must be a JSON object"),
    ],
)
def test_configurations_that_cannot_be(rote, target, text, message):
    rote.write("broken.json", text)
    done = quantize(rote, target("build"), config="broken.json")
    assert done.exit_code == 2 and message in done.stderr, done.output


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--out", "o.safetensors", "--include", "nowhere*"], "include: 'nowhere*' matches none of the 4"),
        (["--out", "o.safetensors", "--exclude", "re:("], "exclude: 're:(' is no regular expression"),
        (["--out", "o.safetensors", "--path", "magic"], "path='magic'"),
        (["--out", "o.safetensors", "--config", "no.json"], "--config 'no.json' is neither default nor vla"),
        (["--out", "o.safetensors", "--config", "."], "--config '.' is neither default nor vla"),
        (["--out", "o.safetensors", "--batches", "0"], "--batches"),
        (["--out", "o.safetensors", "--arg", "count"], "--arg 'count' is not of the form name=value"),
        (["--out", "o.safetensors", "--from-env"], "--from-env: no variable ROTE_DUQUANT_*"),
        (["--out", "o.safetensors", "--from-env", "--include", "*"], "--from-env does not go together"),
        (["--out", "no/o.safetensors"], "no/o.safetensors cannot be written: there is no folder no"),
        (["--out", "."], ". cannot be written: it is a folder"),
        (["--dry-run", "--json", "no/o.json"], "no/o.json cannot be written: there is no folder no"),
        (["--dry-run", "--plot", "o.png"], "--plot shows what quantization did"),
        (["--out", "o.safetensors", "--plot", "o.xyz"], "o.xyz cannot be written: pictures are PNG files"),
        ([], "--out names the checkpoint to write"),
    ],
)
def test_options_that_cannot_be(rote, target, arguments, message):
    done = rote("quantize", target("build"), *arguments)
    assert done.exit_code == 2 and message in done.stderr, done.output
    assert not done.stdout and not (rote.folder / "o.safetensors").exists()


@pytest.mark.parametrize("package, use", [("safetensors", "--out"), ("matplotlib", "a picture")])
def test_missing_extras_are_told_before_anything_is_done(rote, target, monkeypatch, package, use):
    monkeypatch.setattr(output, "find_spec", lambda name: None if name == package else find_spec(name))
    done = quantize(rote, target("raises"), "--plot", "out.png")
    assert done.exit_code == 2 and f"{use} needs {package}: pip install" in done.stderr


def content(rote, file):
    """What a checkpoint holds; safetensors writes metadata in any order."""
    tensors, metadata = storage.read(rote.folder / file)
    return {name: tensor.tolist() for name, tensor in tensors.items()}, metadata


def from_env(rote, target, *arguments):
    return rote("quantize", target, "--out", "out.safetensors", "--from-env", *arguments)


def test_values_of_the_environment(rote, target, monkeypatch):
    monkeypatch.setenv("ROTE_DUQUANT_WBITS_DEFAULT", "8")
    monkeypatch.setenv("OPENPI_DUQUANT_EXCLUDE", "^spare")
    monkeypatch.setenv("ROTE_DUQUANT_CALIB_STEPS", "2")
    done = from_env(rote, target("method"), "--json", "-", "--path", "kernel")
    assert done.exit_code == 0, done.output
    quantized = [row for row in json.loads(done.stdout)["rows"] if not row["reason"]]
    assert [row["name"] for row in quantized] == LAYERS[:3]
    assert {(row["weight_bits"], row["path"]) for row in quantized} == {(8, "kernel")}
    load_quantized(sys.modules["quantize_target"].Policy(), rote.folder / "out.safetensors")


def test_a_dry_run_of_the_environment(rote, target, monkeypatch):
    monkeypatch.setenv("ROTE_DUQUANT_DRYRUN", "1")
    done = rote("quantize", target("build"), "--from-env")
    assert done.exit_code == 0 and "4 of 4 linear layers would be quantized" in done.stdout


def test_a_checkpoint_that_the_environment_keeps_is_taken(rote, target, monkeypatch):
    monkeypatch.setenv("ROTE_DUQUANT_PACKDIR", str(rote.folder / "packs"))
    monkeypatch.setenv("ROTE_DUQUANT_EXCLUDE", "^spare")
    first = from_env(rote, target("build"))
    kept = content(rote, "out.safetensors")
    second = from_env(rote, target("build"))
    assert first.exit_code == second.exit_code == 0, second.output
    assert len(list((rote.folder / "packs").iterdir())) == 1
    assert content(rote, "out.safetensors") == kept
    note = "3 quantized layers are those of a checkpoint in PACKDIR"
    assert note not in first.stdout and note in second.stdout


def test_variables_that_cannot_be(rote, target, monkeypatch):
    monkeypatch.setenv("ROTE_DUQUANT_SCOPE", "policy.dit.")
    done = from_env(rote, target("build"))
    assert done.exit_code == 2 and "SCOPE='policy.dit.' fits none of the model's 4" in done.stderr
    monkeypatch.setenv("ROTE_DUQUANT_BITS", "4")
    assert "ROTE_DUQUANT_BITS is not known" in from_env(rote, target("build")).stderr


def test_nothing_is_random_about_it(rote, target):
    for name in ("a", "b"):
        assert rote("quantize", target("one_call"), "--out", name, "--config", "small.json").exit_code == 0
    assert content(rote, "a") == content(rote, "b")


def test_a_list_of_batches_in_the_place_of_the_arguments(rote, target):
    rote.write(
        "listed.py",
        "import torch\n\n\ndef build():\n"
        "    net = torch.nn.Sequential(torch.nn.Linear(32, 32))\n"
        "    return net, [torch.randn(2, 32) for _ in range(3)]\n",
    )
    result = rote("quantize", "listed.py:build", "--out", "net.safetensors")
    assert result.exit_code == 2 and "or one list: (model, (batches,))" in result.stderr
