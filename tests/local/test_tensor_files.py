"""Tensors are written with the digest of their file."""

import pytest
import torch
from safetensors.torch import load_file, save_file

from rpg.backends.local.tensor_files import save_tensors
from rpg.store.checkpoints import digest

TENSORS = {
    "weight": torch.arange(6.0).reshape(2, 3),
    "a half": torch.tensor([1.5, -2.0, 3.0], dtype=torch.bfloat16),
    "count": torch.tensor(7),
    "mask": torch.tensor([True, False, True]),
    "nothing": torch.empty(0),
    "codes": torch.arange(5, dtype=torch.uint8),
    "trained": torch.ones(3, requires_grad=True),
    "part": torch.arange(10.0)[4:8],
}


@pytest.mark.parametrize("metadata", [None, {"format": "pt"}])
def test_the_digest_is_that_of_the_file(tmp_path, metadata):
    path = tmp_path / "all.safetensors"
    assert save_tensors(TENSORS, path, metadata) == digest(path)


def test_the_file_is_that_of_safetensors(tmp_path):
    save_tensors(TENSORS, tmp_path / "ours", {"format": "pt"})
    save_file(TENSORS, tmp_path / "theirs", metadata={"format": "pt"})
    assert (tmp_path / "ours").read_bytes() == (tmp_path / "theirs").read_bytes()
    read = load_file(tmp_path / "ours")
    assert all(read[name].equal(value) for name, value in TENSORS.items())


def test_a_file_that_was_written_wrongly_does_not_have_the_digest(tmp_path, monkeypatch):
    def wrong(tensors, path, metadata=None):
        save_file({**tensors, "count": tensors["count"] + 1}, path, metadata=metadata)

    monkeypatch.setattr("rpg.backends.local.tensor_files.save_file", wrong)
    path = tmp_path / "all.safetensors"
    assert save_tensors(TENSORS, path)["sha256"] != digest(path)["sha256"]
