"""The embedded trainer's checkpoints: a Hugging Face model folder plus what is needed to go on bit
for bit.

`training/` holds state.json, optimizer.safetensors and, where the run has them:

    reference.safetensors                    the reference policy
    critic.safetensors                       the critic and the state of its optimizer
    past-<rollout steps done>.safetensors    past policies that are still to sample
    weights.safetensors                      the float32 weights of a model exported in bfloat16
    adapters.safetensors                     the adapters of a model exported with them merged

A model with adapters is exported twice: merged, in float32 (bfloat16 would round most of the
adapters away), and in `adapters/` as peft's adapters, for programs that load these beside a base.
Beside a base of 4 bits the adapters are all there is (rpg.models.beside_base).

No file is a pickle. How checkpoints lie on disk and are kept: rpg.store.checkpoints.
"""

import json
import shutil
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import Tensor, nn

from rpg.backends.local.sampler import Weights
from rpg.backends.local.tensor_files import save_tensors
from rpg.models.beside_base import RECORD, base_of, is_beside_base, write_base
from rpg.models.four_bit import is_packed
from rpg.models.lora import (
    FOLDER,
    adapted,
    adapters,
    base_weights,
    merged,
    put_adapters,
    save_adapters,
)
from rpg.models.model_loading import half, halve, set_dtype
from rpg.models.policy import Policy
from rpg.store.atomic_files import StoreError, link, read_json_object, readable
from rpg.store.checkpoints import FORMAT, KEEP, CheckpointFolder, Keep, digest, digests
from rpg.store.run_folder import RunFolder

_MODEL = "model.safetensors"
_PAST = "past-"
_ADAPTERS = "adapters.safetensors"
_WEIGHTS = "weights.safetensors"


class Checkpoints(CheckpointFolder):
    """Writes the checkpoints of one run and removes those that are no longer needed."""

    def __init__(self, folder: RunFolder, eval_steps: Collection[int], keep: Keep = KEEP):
        super().__init__(folder, eval_steps, keep)
        self._last: Path | None = None
        self._digests: dict[str, dict[str, Any]] = {}
        self._of_past: dict[str, dict[str, Any]] = {}
        self._keys: list[str] | None = None

    def save(
        self,
        step: int,
        policy: Policy,
        state: dict[str, Any],
        tensors: Mapping[str, dict[str, Tensor]],
        past: Sequence[tuple[int, Weights]] = (),
        trained: Weights | None = None,
    ) -> None:
        """Write the checkpoint of `step`, then drop what is no longer needed.

        `tensors` of the optimizer, the reference and the critic, by file; `trained`: the weights
        that are trained, at full precision, where the model holds rounded ones. Raises StoreError:
        it cannot be written (the message names the folder); earlier checkpoints are unharmed.
        """
        final = self.folder.checkpoint(step)
        build = final.with_name(f".{final.name}.tmp")
        try:
            with readable("write", final):
                shutil.rmtree(build, ignore_errors=True)
                (build / "training").mkdir(parents=True)
                self._write_model(policy, build, trained)
                training = build / "training"
                files = {
                    f"{name}.safetensors": save_tensors(values, training / f"{name}.safetensors")
                    for name, values in tensors.items()
                }
                of_adapters: dict[str, Any] = {}
                if adapted(policy.model):
                    files |= self._write_adapters(policy, build, trained)
                    of_adapters = digests(build / FOLDER)
                elif policy.bfloat16:
                    whole = self._tensors(policy, trained)
                    files[_WEIGHTS] = save_tensors(whole, training / _WEIGHTS)
                files |= self._write_past(past, training)
                state = {
                    "format": FORMAT,
                    "step": step,
                    **state,
                    "files": dict(sorted(files.items())),
                }
                (training / "state.json").write_text(json.dumps(state, indent=1))
                record = {name: state[name] for name in ("format", "step", "optimizer_step")}
                record["files"] = {
                    **self._digests,
                    **{f"{FOLDER}/{name}": value for name, value in of_adapters.items()},
                }
                (build / "checkpoint.json").write_text(json.dumps(record, indent=1))
                self.publish(build, final)
        except SafetensorError as error:
            raise StoreError(f"cannot write {final}: {error}") from error
        finally:
            shutil.rmtree(build, ignore_errors=True)
        self._last = final
        self.prune()

    def _write_adapters(
        self, policy: Policy, build: Path, trained: Weights | None
    ) -> dict[str, dict[str, Any]]:
        """The adapters as peft writes them. Merged weights cannot be parted to the bit, so beside
        these they are also part of the training state, whose files are returned with their
        digests."""
        rounded = adapters(policy.model)
        weights = {name: (trained or rounded)[name] for name in rounded}
        save_adapters(policy.model, build / FOLDER, base_of(policy.model), weights)
        if not is_packed(policy.model):
            return {_ADAPTERS: save_tensors(weights, build / "training" / _ADAPTERS)}
        if self._last is None:
            write_base(policy.model, build / FOLDER)
        else:
            link(self._last / FOLDER / RECORD, build / FOLDER / RECORD)
        return {}

    def _write_past(
        self, past: Sequence[tuple[int, Weights]], folder: Path
    ) -> dict[str, dict[str, Any]]:
        """The files of past policies with their digests. A past policy never changes, so its file
        is a link where the previous checkpoint has it."""
        files = {}
        for step, weights in past:
            name = f"{_PAST}{step:06d}.safetensors"
            before = self._last / "training" / name if self._last else None
            if before is not None and before.exists():
                link(before, folder / name)
                files[name] = self._of_past.get(name) or digest(folder / name)
            else:
                whole = {key: value.contiguous() for key, value in weights.items()}
                files[name] = save_tensors(whole, folder / name)
        self._of_past = files
        return files

    def _write_model(self, policy: Policy, build: Path, trained: Weights | None) -> None:
        """New weights; config and tokenizer never change, so they are links to those of the last
        checkpoint."""
        if is_packed(policy.model):
            self._write_without_weights(policy, build)
            return
        with_adapters = adapted(policy.model)
        rounds = policy.bfloat16 and not with_adapters
        if self._last is None or self._keys is None:
            state = self.exported(policy, trained or {}) if with_adapters else None
            cast(Any, policy.model).save_pretrained(
                build, max_shard_size="1000GB", state_dict=state
            )
            policy.tokenizer.save_pretrained(build)
            if rounds:
                halve(build)
            elif with_adapters:
                set_dtype(build, "float32")
            with safe_open(build / _MODEL, "pt") as file:
                keys = list(file.keys())
            # A model that is stored under other names than its parameters' is written by
            # transformers every time.
            self._keys = keys if set(keys) <= base_weights(policy.model).keys() else None
            self._digests = digests(build)
            return
        self._link_settings(build, self._last)
        weights = self.exported(policy, trained or {})
        tensors = {name: weights[name].contiguous() for name in self._keys}
        written = save_tensors(tensors, build / _MODEL, metadata={"format": "pt"})
        self._digests = {**self._digests, _MODEL: written}

    def _write_without_weights(self, policy: Policy, build: Path) -> None:
        """Only config and tokenizer: what is trained is in the adapters."""
        if self._last is not None:
            self._link_settings(build, self._last)
            return
        policy.model.config.save_pretrained(build)
        if policy.model.generation_config is not None:
            policy.model.generation_config.save_pretrained(build)
        policy.tokenizer.save_pretrained(build)
        self._digests = digests(build)

    def _link_settings(self, build: Path, last: Path) -> None:
        for name in self._digests:
            if name != _MODEL:
                link(last / name, build / name)

    def exported(self, policy: Policy, trained: Weights) -> dict[str, Tensor]:
        """The whole weights that a checkpoint exports, by their names in the model without
        adapters. trained: the weights that are trained, at full precision."""
        weights = merged(policy.model, trained)
        if adapted(policy.model) or not policy.bfloat16:
            return weights
        return {name: half(value) for name, value in weights.items()}

    def _tensors(self, policy: Policy, trained: Weights | None = None) -> dict[str, Tensor]:
        """The model's weights, with those that are `trained`; a tensor of several names has the one
        it is stored under."""
        weights = {**merged(policy.model), **(trained or {})}
        names = dict(policy.model.named_parameters()) if self._keys is None else self._keys
        return {name: weights[name].contiguous() for name in names}


def restore(model: nn.Module, checkpoint: Path) -> None:
    """Put what is trained back into a checkpoint's model: float32 weights that were exported in
    bfloat16, or adapters."""
    if is_beside_base(checkpoint):
        put_adapters(model, checkpoint)
        return
    for path in (checkpoint / "training" / _WEIGHTS, checkpoint / "training" / _ADAPTERS):
        if path.exists() and (
            others := model.load_state_dict(load_file(path), strict=False).unexpected_keys
        ):
            raise StoreError(f"{path}: {others[0]} is of another model")


def load_training(checkpoint: Path) -> tuple[dict[str, Any], dict[str, dict[str, Tensor]]]:
    """(state, tensors by file) of a whole checkpoint, as they were saved."""
    folder = checkpoint / "training"
    files = (folder / f"{name}.safetensors" for name in ("optimizer", "reference", "critic"))
    return read_json_object(folder / "state.json"), {
        file.stem: load_file(file) for file in files if file.exists()
    }


def load_past(checkpoint: Path) -> list[tuple[int, Weights]]:
    """(rollout steps done, weights) of the past policies of a whole checkpoint, oldest first."""
    files = sorted((checkpoint / "training").glob(f"{_PAST}*.safetensors"))
    return [(int(file.stem.removeprefix(_PAST)), load_file(file)) for file in files]
