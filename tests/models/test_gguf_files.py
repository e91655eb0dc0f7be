"""A GGUF file is read as transformers reads it, to the bit."""

import gguf
import numpy
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from rpg.models import gguf_files
from rpg.models.model_loading import ModelError, load_gguf
from tests.models.tiny_gguf import write_gguf


def test_model_and_tokenizer_are_those_of_transformers(tmp_path):
    path = write_gguf(tmp_path / "tiny.gguf")
    model, tokenizer = load_gguf(path)
    theirs = AutoModelForCausalLM.from_pretrained(
        tmp_path, gguf_file=path.name, dtype=torch.float32
    )
    reader = AutoTokenizer.from_pretrained(tmp_path, gguf_file=path.name)
    expected = theirs.state_dict()
    assert model.state_dict().keys() == expected.keys()
    assert all(torch.equal(value, expected[name]) for name, value in model.state_dict().items())
    ids = torch.arange(40)[None]
    assert torch.equal(model(ids).logits, theirs.eval()(ids).logits)
    assert model.lm_head.weight is model.model.embed_tokens.weight
    text = "abcd cd\n 12+3 = é <|im_start|>ab"
    assert tokenizer(text)["input_ids"] == reader(text)["input_ids"]
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text
    assert tokenizer.chat_template == reader.chat_template
    assert len(tokenizer) == len(reader)


@pytest.mark.parametrize("kind", ["Q4_0", "Q4_1", "Q8_0", "Q6_K", "F16", "BF16"])
def test_quantized_tensors_are_those_of_the_gguf_package(tmp_path, kind):
    kind = gguf.GGMLQuantizationType[kind]
    rows = numpy.random.default_rng(0).normal(0, 0.1, (6, 512)).astype(numpy.float32)
    if kind.name == "Q6_K":  # the package cannot write these: any bytes will do
        raw = numpy.random.default_rng(1).integers(0, 64, (6, 420), dtype=numpy.uint8)
    else:
        raw = gguf.quants.quantize(rows, kind)
    writer = gguf.GGUFWriter(tmp_path / "one.gguf", "llama")
    writer.add_tensor("blk.0.ffn_up.weight", raw, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    _, tensors = gguf_files.read(tmp_path / "one.gguf")
    read = gguf_files._tensor(tensors["blk.0.ffn_up.weight"]).numpy()
    assert read.shape == (6, 512)
    numpy.testing.assert_array_equal(read, gguf.quants.dequantize(raw, kind))


ONES = numpy.ones(32, numpy.float32)
OTHERS = {
    "its positions are scaled": {
        "more": lambda w: w.add_rope_scaling_type(gguf.RopeScalingType.YARN)
    },
    "positions are scaled": {
        "more": lambda w: w.add_tensor("rope_freqs.weight", ONES[:4])
    },  # as of Llama 3
    r"0\.self_attn\.q_proj\.bias is": {"more": lambda w: w.add_tensor("blk.0.attn_q.bias", ONES)},
    r"0\.mlp\.down_proj\.weight is missing": {"left_out": "blk.0.ffn_down"},
}


@pytest.mark.parametrize("why", OTHERS)
def test_what_would_become_another_model_is_refused(tmp_path, why):
    with pytest.raises(ModelError, match=why):
        load_gguf(write_gguf(tmp_path / "other.gguf", **OTHERS[why]))


@pytest.mark.parametrize("size", [2, 100, 3000, -8])
def test_a_file_that_is_cut_off_is_a_sentence(tmp_path, size):
    path = write_gguf(tmp_path / "tiny.gguf")
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(ModelError, match="cannot be read as a GGUF file"):
        load_gguf(path)
