"""The whole model: backbone, action expert, and the projections of actions into and out of it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from alpamayo_ros.core.types import ConfigurationError
from alpamayo_ros.model.action_projection import ACTION_DIMENSIONS, ActionProjection
from alpamayo_ros.model.action_space import NORMALISATION, UnicycleActionSpace
from alpamayo_ros.model.backbone import Backbone, make_vlm, restore_rotary_buffers
from alpamayo_ros.model.checkpoint import Checkpoint
from alpamayo_ros.model.config import ModelConfig
from alpamayo_ros.model.expert import Context, Expert
from alpamayo_ros.model.flow_matching import Velocity, integrate, mix_velocities
from alpamayo_ros.model.kv_cache import KVCache, Prefix
from alpamayo_ros.model.random_weights import fill_at_random
from alpamayo_ros.model.vocabulary import Vocabulary

# Alpamayo R1 stores these beside its weights, and NVIDIA's code uses what is stored; 1.5 makes them from its config.
ACTION_CONSTANTS = tuple(f"action_space.{name}" for name in NORMALISATION)
FREQUENCIES = (
    "action_in_proj.sinus.0.freqs",
    "action_in_proj.sinus.1.freqs",
    "action_in_proj.timestep_fourier_encoder.freqs",
)


class ActionNetwork(nn.Module):
    """The expert and its projections, under the names of NVIDIA's checkpoints."""

    def __init__(self, config: ModelConfig, bf16_constants: bool) -> None:
        super().__init__()
        self.expert, self.action_in_proj, self.action_out_proj = _action_modules(config, bf16_constants)


class AlpamayoNetwork(nn.Module):
    """Every weight, under the names of NVIDIA's checkpoints."""

    def __init__(self, config: ModelConfig, bf16_constants: bool) -> None:
        super().__init__()
        self.vlm = make_vlm(config.backbone)
        self.expert, self.action_in_proj, self.action_out_proj = _action_modules(config, bf16_constants)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of every parameter."""
        return {name: tuple(parameter.shape) for name, parameter in self.named_parameters()}


def _action_modules(config: ModelConfig, bf16_constants: bool) -> tuple[Expert, ActionProjection, nn.Linear]:
    hidden_size = config.expert.hidden_size
    projection = ActionProjection(
        config.projection,
        hidden_size,
        bf16_constants=bf16_constants,
        upcast_inputs=config.model_type == "alpamayo_r1",
    )
    return Expert(config.expert), projection, nn.Linear(hidden_size, ACTION_DIMENSIONS)


class ActionModules(Protocol):
    """`AlpamayoNetwork` or `ActionNetwork`, or what computes the same."""

    @property
    def expert(self) -> Callable[[Tensor, Context], Tensor]:
        """See `Expert.forward`."""

    @property
    def action_in_proj(self) -> Callable[[Tensor, Tensor], Tensor]:
        """See `ActionProjection.forward`."""

    @property
    def action_out_proj(self) -> Callable[[Tensor], Tensor]:
        """[..., hidden_size] to [..., 2]."""


def action_velocity(network: ActionModules, context: Context) -> Velocity:
    """The flow's velocity field for trajectories that read a context.

    The field takes states [B samples, N, 2] and times [B samples, 1, 1], and returns [B samples, N, 2] in the dtype of
    the weights.
    """

    def field(state: Tensor, time: Tensor) -> Tensor:
        embeddings = network.action_in_proj(state, time)
        return network.action_out_proj(network.expert(embeddings, context))

    return field


def make_network_on_meta(config: ModelConfig, bf16_constants: bool = True) -> AlpamayoNetwork:
    """The network without memory for its weights."""
    with torch.device("meta"):
        return AlpamayoNetwork(config, bf16_constants).eval()


@dataclass(frozen=True, eq=False)
class AlpamayoModel:
    """A loaded model and everything that its checkpoint says."""

    config: ModelConfig
    vocabulary: Vocabulary
    network: AlpamayoNetwork
    backbone: Backbone
    action_space: UnicycleActionSpace
    device: torch.device
    dtype: torch.dtype
    checkpoint_hash: str  # "" when the weights were made at random and there are no files

    @classmethod
    def load(
        cls, config: ModelConfig, device: torch.device, dtype: torch.dtype, bf16_constants: bool = True
    ) -> AlpamayoModel:
        """Read the weights of a checkpoint, or make them where its config.json has a seed for them.

        Args:
            config: The checkpoint's.
            device, dtype: Where the weights go and what they become.
            bf16_constants: Round the action space's constants and the Fourier frequencies to bfloat16, as NVIDIA's
                runtime does. What a checkpoint stores of them (Alpamayo R1) counts in any case.

        Raises:
            ConfigurationError: tensors that are missing, unexpected or of another shape, all named; files that can't
                be read; no tokenizer.
        """
        vocabulary = config.load_vocabulary()
        seed = config.random_seed
        checkpoint = open_weights(config)
        constants = Constants.of(config, checkpoint, bf16_constants)
        network = make_network_on_meta(config, constants.bf16_frequencies)
        if seed is None:
            check_weights(config, checkpoint, network)
            checkpoint.load_into(network, device, dtype)
        else:
            fill_at_random(network, seed, device, dtype)
        restore_rotary_buffers(network.vlm, config.backbone)
        network.to(device)
        return cls(
            config=config,
            vocabulary=vocabulary,
            network=network,
            backbone=Backbone(network.vlm),
            action_space=constants.action_space,
            device=device,
            dtype=dtype,
            checkpoint_hash=checkpoint.hash,
        )

    @property
    def parameters(self) -> int:
        """How many numbers the weights are."""
        return sum(parameter.numel() for parameter in self.network.parameters())

    @property
    def max_tokens(self) -> int:
        """Of a prompt and its reasoning."""
        return self.config.backbone.max_positions

    def new_cache(self, capacity: int) -> KVCache:
        """An empty cache for so many columns, the expert's `room` among them."""
        return KVCache(self.backbone.layers, capacity)

    def room(self, trajectories: int) -> int:
        """Columns after a row that the expert needs for so many trajectories."""
        return trajectories * self.config.action_space.n_waypoints

    def velocity(self, prefix: Prefix, samples: int) -> Velocity:
        """The flow's velocity field (`action_velocity`) for `samples` trajectories after each row of a prefix."""
        return action_velocity(self.network, self.context(prefix, samples))

    def context(self, prefix: Prefix, samples: int) -> Context:
        """What the expert reads to denoise `samples` trajectories after each row of a prefix."""
        return self.network.expert.read(prefix, samples, self.config.action_space.n_waypoints)

    def denoise(
        self, prefix: Prefix, without_route: Prefix | None, weight: float, samples: int, noise: Tensor, steps: int
    ) -> Tensor:
        """Follow the flow from noise [B samples, N, 2] to normalised actions of the same shape.

        Args:
            prefix: B rows.
            without_route: The same without the route, which the velocity is pushed away from; None: no guidance.
            weight: Of the guidance.
            samples: Trajectories after each row.
            noise: float32.
            steps: Of Euler's method.
        """
        velocity = guided = self.velocity(prefix, samples)
        if without_route is not None:
            unguided = self.velocity(without_route, samples)
            velocity = lambda state, time: mix_velocities(unguided(state, time), guided(state, time), weight)  # noqa: E731
        return integrate(velocity, noise.to(self.device), steps).actions


@dataclass(frozen=True, eq=False)
class Constants:
    """What isn't a weight: by config.json, and where a checkpoint stores it (Alpamayo R1), as stored."""

    action_space: UnicycleActionSpace
    bf16_frequencies: bool  # of the projection, rounded to bfloat16

    @classmethod
    def of(cls, config: ModelConfig, checkpoint: Checkpoint, bf16_constants: bool) -> Constants:
        """The constants of a checkpoint.

        Raises:
            ConfigurationError: stored frequencies that don't belong to config.json.
        """
        stored = read_stored_constants(checkpoint)
        action_space = config.action_space
        if stored.action_space:
            action_space = action_space.with_constants(stored.action_space)
        return cls(
            action_space=UnicycleActionSpace(action_space, bf16_constants=bf16_constants and not stored.action_space),
            bf16_frequencies=bf16_constants
            if stored.frequencies is None
            else _frequencies_are_rounded(config, stored.frequencies),
        )


def open_weights(config: ModelConfig) -> Checkpoint:
    """A checkpoint's files; none where its config.json has a seed for random weights.

    Raises:
        ConfigurationError: files that can't be read.
    """
    return Checkpoint.open(config.folder) if config.random_seed is None else Checkpoint.without_files(config.folder)


def check_weights(config: ModelConfig, checkpoint: Checkpoint, network: AlpamayoNetwork) -> None:
    """Compare a checkpoint's headers with the network.

    Raises:
        ConfigurationError: tensors that are missing, unexpected or of another shape, all named.
    """
    problems = checkpoint.problems(network.shapes(), optional=(*ACTION_CONSTANTS, *FREQUENCIES))
    if problems:
        raise ConfigurationError(
            f"{config.folder} doesn't fit its config.json and {config.backbone.origin}:\n  " + "\n  ".join(problems)
        )


@dataclass(frozen=True, eq=False)
class StoredConstants:
    """What a checkpoint stores besides parameters; nothing in Alpamayo 1.5."""

    action_space: dict[str, float]
    frequencies: Tensor | None  # [F] float32, the same for acceleration, curvature and time


def read_stored_constants(checkpoint: Checkpoint) -> StoredConstants:
    """Read Alpamayo R1's seven extra buffers, as far as they are there.

    Raises:
        ConfigurationError: constants that aren't one number, or frequencies that differ from each other.
    """
    names = [name for name in (*ACTION_CONSTANTS, *FREQUENCIES) if name in checkpoint.tensors]
    for name in set(names) & set(ACTION_CONSTANTS):
        shape = checkpoint.tensors[name].shape
        if math.prod(shape) != 1:
            raise ConfigurationError(
                f"{checkpoint.folder}: {name} has the shape {list(shape)}; it has to be one number"
            )
    values = {name: tensor.float().flatten() for name, tensor in checkpoint.stream(names)}
    constants = {name.rpartition(".")[2]: float(values[name]) for name in ACTION_CONSTANTS if name in values}
    frequencies = [values[name] for name in FREQUENCIES if name in values]
    if any(not torch.equal(frequencies[0], other) for other in frequencies[1:]):
        raise ConfigurationError(f"{checkpoint.folder}: the tensors {', '.join(FREQUENCIES)} have to be equal")
    return StoredConstants(constants, frequencies[0].clone() if frequencies else None)


def _frequencies_are_rounded(config: ModelConfig, stored: Tensor) -> bool:
    """Whether the stored frequencies are those of config.json after rounding to bfloat16."""
    for rounded in (True, False):
        own = ActionProjection(config.projection, 1, bf16_constants=rounded).frequencies
        if own.shape == stored.shape and torch.allclose(own, stored, rtol=1e-6, atol=0):
            return rounded
    raise ConfigurationError(
        f"{FREQUENCIES[0]} is {stored.tolist()}; by max_freq and num_fourier_feats in config.json "
        f"it has to be {own.tolist()}, or that rounded to bfloat16"
    )
