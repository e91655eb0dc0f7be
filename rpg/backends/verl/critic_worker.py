"""verl's value model as the critic of a run whose advantages are of type gae, trained as that of
the embedded trainer.

It begins as a copy of the policy with a head of zeros. Shapes: B responses of a micro-batch (rows),
T response tokens.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

import torch
from tensordict import TensorDict
from torch import Tensor
from transformers import AutoModelForTokenClassification
from verl.single_controller.base.decorator import (
    Dispatch,
    make_nd_compute_dataproto_dispatch_fn,
    register,
)
from verl.utils import model as verl_model
from verl.utils import tensordict_utils as tu
from verl.workers.config import TrainingWorkerConfig
from verl.workers.engine_workers import TrainingWorker
from verl.workers.utils.padding import no_padding_2_padding

from rpg.backends.token_recorder import Values
from rpg.backends.verl import cpu, fsdp_weights
from rpg.backends.verl.job_settings import JobSettings
from rpg.backends.verl.update import UpdatePlan, update
from rpg.catalogue import GAE
from rpg.losses.advantages import value_loss
from rpg.losses.aggregation import Counts


@dataclass(frozen=True)
class ValueLoss:
    """The loss of the values, called as `ActorLoss`; `settings` are those of the critic's
    optimizer."""

    settings: JobSettings

    @classmethod
    def of(cls, settings: JobSettings) -> Self:
        """The loss of the critic in a job whose policy has these settings."""
        advantage = settings.algorithm.advantage
        assert isinstance(advantage, GAE)
        rate = advantage.critic_learning_rate or settings.learning_rate
        always = advantage.model_copy(
            update={"critic_warmup": 0}
        )  # its schedule falls over all steps
        algorithm = settings.algorithm.model_copy(update={"advantage": always})
        update = {"learning_rate": rate, "entropy_coeff": 0.0, "algorithm": algorithm}
        return cls(settings.model_copy(update=update))

    def __call__(
        self,
        model_output: Mapping[str, Any],
        data: TensorDict,
        dp_group: Any = None,  # noqa: ARG002 (verl passes it)
    ) -> tuple[Tensor, dict[str, tuple[dict[str, float], float, Values]]]:
        advantage = self.settings.algorithm.advantage
        assert isinstance(advantage, GAE)
        fields = data.select("response_mask", "values", "returns").to_padded_tensor()
        tokens = tu.get(data, "mini_batch_tokens")
        sequences = tu.get(data, "mini_batch_sequences")
        counts = Counts(tokens, sequences, self.settings.max_response_tokens)
        values = no_padding_2_padding(model_output["values"], data)
        loss = value_loss(
            values,
            old_values=fields["values"],
            targets=fields["returns"],
            response_mask=fields["response_mask"],
            clip=advantage.value_clip,
            counts=counts,
        )
        return loss * tu.get(data, "dp_size"), {"rpg": ({"loss": float(loss.detach())}, 0.0, {})}


def load_value_model(
    local_path: str, torch_dtype: Any, model_config: Any, trust_remote_code: bool
) -> Any:
    """Replaces verl's function of this name, which insists on flash attention
    (verl/utils/model.py:649). The head is zero and has no bias, as in the embedded trainer.
    """
    given = {"dtype": torch_dtype, "config": model_config, "trust_remote_code": trust_remote_code}
    model = AutoModelForTokenClassification.from_pretrained(local_path, **given)
    with torch.no_grad():
        for parameter in model.score.parameters():
            parameter.zero_()
    model.score.bias.requires_grad_(False)
    return model


class CriticWorker(TrainingWorker):
    """verl makes one per GPU, in the process of the policy's worker."""

    def __init__(self, config: TrainingWorkerConfig):
        if cpu.is_chosen():
            cpu.part("engine")  # registers itself
        verl_model.load_valuehead_model = load_value_model
        super().__init__(config)

    @register(dispatch_mode=make_nd_compute_dataproto_dispatch_fn(mesh_name="train"))
    def update_critic(self, data: TensorDict) -> TensorDict | None:
        assert isinstance(self.loss_fn, ValueLoss)
        result = update(self, data, UpdatePlan(**tu.get(data, "rpg_plan")), self.loss_fn.settings)
        if not self.engine.is_mp_src_rank_with_outputs():
            return None
        return tu.get_tensordict(tensor_dict={}, non_tensor_dict={"metrics": asdict(result)})

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def load_checkpoint(self, local_path: str, *args: Any, **kwargs: Any) -> None:
        """verl's, or ours if another number of workers wrote it."""
        with fsdp_weights.resharding(self.engine.checkpoint_manager, local_path, self.world_size):
            super().load_checkpoint(local_path, *args, **kwargs)
