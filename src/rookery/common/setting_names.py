"""Names of settings in other libraries, for suggestions in error messages.

A table in ``docs/coming_from/stable_baselines3.md`` lists the same names.
"""

from __future__ import annotations

# Name in other libraries -> settings of this library that it may stand for.
COMMON_NAMES: dict[str, tuple[str, ...]] = {
    "activation_fn": ("activation",),
    "batch_size": ("minibatch_size",),
    "buffer_size": ("replay_size",),
    "clip_coef": ("clip_range",),
    "clip_range_vf": ("value_clip_range",),
    "discount": ("gamma",),
    "ent_coef": ("entropy_coef",),
    "eval_freq": ("eval_every",),
    "exploration_final_eps": ("final_epsilon",),
    "exploration_initial_eps": ("initial_epsilon",),
    "features_extractor_class": ("encoder",),
    "gradient_steps": ("updates_per_step",),
    "learning_starts": ("warmup_steps",),
    "log_std_init": ("initial_log_std",),
    "lr": ("learning_rate",),
    "lstm_hidden_size": ("memory_size",),
    "n_envs": ("num_envs",),
    "n_epochs": ("num_epochs",),
    "n_eval_episodes": ("eval_episodes",),
    "n_quantiles": ("num_quantiles",),
    "n_steps": ("num_steps", "n_step"),
    "net_arch": ("hidden_sizes",),
    "ortho_init": ("orthogonal_init",),
    "policy_kwargs": ("hidden_sizes",),
    "polyak": ("target_rate",),
    "progress_bar": ("progress",),
    "rms_prop_eps": ("rms_epsilon",),
    "save_freq": ("checkpoint_every",),
    "sde_sample_freq": ("noise_interval",),
    "start_steps": ("warmup_steps",),
    "target_policy_noise": ("target_noise",),
    "target_update_interval": ("target_interval",),
    "tau": ("target_rate",),
    "total_timesteps": ("total_steps",),
    "train_freq": ("num_steps",),
    "update_epochs": ("num_epochs",),
    "use_sde": ("state_dependent_noise",),
    "vf_coef": ("value_coef",),
}
