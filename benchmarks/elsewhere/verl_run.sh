#!/bin/sh
# A GRPO run of verl's own entry point, trainer and loss: what `rpg import verl` is tried and tested with.
#
#   python -m benchmarks.elsewhere.write_problems elsewhere
#   sh benchmarks/elsewhere/verl_run.sh elsewhere 0
#
# Of this project there is only what verl needs on a machine without a GPU: the CPU platform and the rollout server (verl-cpu),
# which rpg.backends.verl.plugin adds to verl's registries (docs/verl.md). Four minutes on a machine that does other things. The lines of verl's
# file logger are ELSEWHERE/verl-s0.jsonl, those of its console ELSEWHERE/verl-s0.log; trimmed (trim.py) they are
# tests/interop/importing/verl.jsonl and verl.log.
set -e
folder=$(realpath "$1"); seed=$2; here=$(dirname "$(realpath "$0")")
export VERL_USE_EXTERNAL_MODULES=rpg.backends.verl.plugin VERL_PLATFORM=cpu OMP_NUM_THREADS=1 TQ_NUM_THREADS=1
export VERL_FILE_LOGGER_PATH="$folder/verl-s$seed.jsonl" HF_HUB_OFFLINE=1 RAY_USAGE_STATS_ENABLED=0
export RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER=0      # Ray listens on the loopback interface only
python -m verl.trainer.main_ppo algorithm.adv_estimator=grpo \
  data.train_files="$folder/train.parquet" data.val_files="[$folder/chain-easy.parquet,$folder/chain-medium.parquet]" \
  data.train_batch_size=32 data.max_prompt_length=64 data.max_response_length=42 data.seed="$seed" \
  data.dataloader_num_workers=0 \
  reward.custom_reward_function.path="$here/verl_reward.py" reward.num_workers=1 \
  actor_rollout_ref.model.path="$folder/model" actor_rollout_ref.model.use_remove_padding=False \
  actor_rollout_ref.model.external_lib=verl_cpu.engine +actor_rollout_ref.model.override_config.attn_implementation=sdpa \
  actor_rollout_ref.actor.strategy=fsdp2 actor_rollout_ref.ref.strategy=fsdp2 \
  actor_rollout_ref.actor.use_torch_compile=False actor_rollout_ref.ref.use_torch_compile=False \
  actor_rollout_ref.actor.fsdp_config.use_torch_compile=False actor_rollout_ref.ref.fsdp_config.use_torch_compile=False \
  actor_rollout_ref.actor.optim.lr=1e-4 actor_rollout_ref.actor.optim.weight_decay=0.1 \
  actor_rollout_ref.actor.ppo_mini_batch_size=8 actor_rollout_ref.actor.use_dynamic_bsz=True \
  actor_rollout_ref.actor.use_kl_loss=True actor_rollout_ref.actor.kl_loss_coef=0.001 \
  actor_rollout_ref.rollout.log_prob_use_dynamic_bsz=True actor_rollout_ref.ref.log_prob_use_dynamic_bsz=True \
  actor_rollout_ref.rollout.name=rpg_huggingface actor_rollout_ref.rollout.n=8 \
  actor_rollout_ref.rollout.tensor_model_parallel_size=1 actor_rollout_ref.rollout.free_cache_engine=False \
  actor_rollout_ref.rollout.enforce_eager=True +actor_rollout_ref.rollout.enable_sleep_mode=False \
  actor_rollout_ref.rollout.max_model_len=106 actor_rollout_ref.rollout.agent.num_workers=1 \
  actor_rollout_ref.rollout.checkpoint_engine.update_weights_bucket_megabytes=16 \
  actor_rollout_ref.rollout.val_kwargs.n=4 actor_rollout_ref.rollout.val_kwargs.do_sample=True \
  actor_rollout_ref.rollout.val_kwargs.temperature=1.0 \
  trainer.device=cpu trainer.nnodes=1 trainer.n_gpus_per_node=1 trainer.logger="[console,file]" \
  trainer.project_name=elsewhere trainer.experiment_name="verl-s$seed" trainer.default_local_dir="$folder/verl-s$seed" \
  trainer.total_training_steps=20 trainer.test_freq=5 trainer.val_before_train=True trainer.save_freq=20 \
  transfer_queue.backend.SimpleStorage.num_data_storage_units=1 \
  +ray_kwargs.ray_init.address=local +ray_kwargs.ray_init.include_dashboard=False \
  ray_kwargs.ray_init.num_cpus=16 +ray_kwargs.ray_init.num_gpus=1 > "$folder/verl-s$seed.log" 2>&1
