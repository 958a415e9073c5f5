"""What is minimised: the reasoning's cross entropy, the flow's squared error, and guides for the pictures."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from alpamayo_ros.core.types import HORIZON
from alpamayo_ros.model.alpamayo import AlpamayoNetwork, action_velocity
from alpamayo_ros.model.config import ModelConfig
from alpamayo_ros.training.context import TrainingContext
from alpamayo_ros.training.forward import ImageFeatureBatch, ReadPrefix, TextForward, VisionForward
from alpamayo_ros.training.layout import Layout
from alpamayo_ros.training.store import Batch

MAX_TIME = 0.999  # of the flow in training
BETA = 1.5  # 1 - t / MAX_TIME follows Beta(1.5, 1), so that the noisy end is seen more often
PATH_SCALE = 10.0  # m; the guide sees paths in these
REASONING_WEIGHT = 0.2  # per token's nat
PATH_WEIGHT = 0.5
DRIFT_WEIGHT = 0.2  # of log(1 + drift in m^2)
CARS_WEIGHT = 0.2
SPEED_SCALE, CHANGE_SCALE = 5.0, 2.0  # m/s and m/s^2; the guide sees cars ahead in these, and in the gap's logarithm
NEAREST_GAP = 0.5  # m; of smaller gaps the logarithm would be wild


@dataclass(frozen=True, eq=False)
class FlowDraws:
    """The randomness of a batch: G noisy versions of each tick's actions."""

    noise: Tensor  # [B, G, N, 2] standard normal
    times: Tensor  # [B, G] in 0 .. 0.999


@dataclass(frozen=True, eq=False)
class Losses:
    """All of them, each a mean over ticks."""

    reasoning: Tensor  # nats of the whole reasoning, over the ticks with the expert's
    flow: Tensor  # squared error per normalised number
    drift: Tensor  # m^2: where the flow's errors would take the vehicle
    path: Tensor  # in units of 10 m, per coordinate, Huber's
    cars: Tensor  # nats of whether there is a car ahead, and its gap, speed and acceleration where there is, Huber's

    @property
    def total(self) -> Tensor:
        """What is minimised. The drift counts by its logarithm: of 100 m^2 at first, it would drown the rest."""
        drift = DRIFT_WEIGHT * torch.log1p(self.drift)
        guides = PATH_WEIGHT * self.path + CARS_WEIGHT * self.cars
        return REASONING_WEIGHT * self.reasoning + self.flow + drift + guides


def draw_flow(batch: int, samples: int, steps: int, generator: torch.Generator) -> FlowDraws:
    """Noise, and times t = 0.999 (1 - Beta(1.5, 1)), by Beta's inverse distribution function u^(1 / 1.5)."""
    device = generator.device
    noise = torch.randn(batch, samples, steps, 2, generator=generator, device=device)
    uniform = torch.rand(batch, samples, generator=generator, device=device)
    return FlowDraws(noise, MAX_TIME * (1 - uniform ** (1 / BETA)))


class TrainedNetwork(nn.Module):
    """The network with what only training needs: a forward pass over batches, and guides.

    A guide is a linear map from what the last layer's keys and values are made of. One leads from
    `<|traj_future_start|>` to the planned path: the flow's error is mostly noise, the path's is not, and so the
    pictures are understood sooner. One leads from the prompt's end, before any word, to the car ahead: how far it is
    and how fast decides where the vehicle will be more than all else, and shows in a few pixels. They are no part of
    the checkpoint.
    """

    def __init__(self, network: AlpamayoNetwork, config: ModelConfig, layout: Layout) -> None:
        super().__init__()
        self.network = network
        self.config = config
        self.rope_delta = layout.rope_delta
        model = network.vlm.model
        self.vision = VisionForward(model.visual, *layout.grid)
        self.text = TextForward(model.language_model, config, layout.positions, layout.image_columns)
        self.guide = nn.Linear(config.backbone.text.hidden_size, 2 * HORIZON)
        nn.init.zeros_(self.guide.weight)
        nn.init.zeros_(self.guide.bias)
        self.car_guide = nn.Linear(config.backbone.text.hidden_size, 1 + 3)  # whether, and what of it
        nn.init.zeros_(self.car_guide.weight)
        nn.init.zeros_(self.car_guide.bias)

    def forward(self, batch: Batch, pixels: Tensor, draws: FlowDraws) -> Losses:
        """The losses of a batch; `pixels` are the batch's."""
        prefix = self.text(batch.token_ids, self.encode(pixels, len(batch.token_ids)))
        flow, drift = self._flow(batch, prefix, draws)
        reasoning, path, cars = (
            self._reasoning(batch, prefix.hidden),
            self._path(batch, prefix),
            self._cars(batch, prefix),
        )
        return Losses(reasoning, flow, drift, path, cars)

    def encode(self, pixels: Tensor, ticks: int) -> ImageFeatureBatch:
        """The images of all ticks."""
        embeddings, levels = self.vision(pixels)
        size = embeddings.shape[-1]
        return ImageFeatureBatch(
            embeddings.reshape(ticks, -1, size), tuple(level.reshape(ticks, -1, size) for level in levels)
        )

    def velocity(self, batch: Batch, prefix: ReadPrefix, states: Tensor, times: Tensor) -> Tensor:
        """The flow's velocity [B, G, N, 2] at states [B, G, N, 2] and times [B, G]."""
        samples, steps = states.shape[1:3]
        context = TrainingContext.after(
            prefix.keys, prefix.values, batch.ends, self.rope_delta, samples, steps, self.config.expert
        )
        field = action_velocity(self.network, context)
        return field(states.flatten(0, 1), times.flatten()[:, None, None]).view(states.shape)

    def _reasoning(self, batch: Batch, hidden: Tensor) -> Tensor:
        place = torch.arange(batch.reasoning.shape[1], device=hidden.device)
        columns = batch.prompt_lengths[:, None] - 1 + place
        before = hidden.gather(1, columns[..., None].expand(-1, -1, hidden.shape[-1]))
        logits = self.network.vlm.lm_head(before).float()
        nats = functional.cross_entropy(logits.flatten(0, 1), batch.reasoning.flatten(), reduction="none")
        learned = (place < batch.reasoning_lengths[:, None]) & batch.own_words[:, None]
        return (nats.view(learned.shape) * learned).sum() / batch.own_words.sum().clamp(min=1)

    def _flow(self, batch: Batch, prefix: ReadPrefix, draws: FlowDraws) -> tuple[Tensor, Tensor]:
        """The squared error of the velocity, and of where the actions that it points at would take the vehicle.

        Both have the same minimum, the mean of what can follow. The first weighs every step alike; an acceleration that
        is slightly wrong all the time counts little in it, and takes the vehicle metres away.
        """
        actions = batch.actions[:, None]
        time = draws.times[..., None, None]
        noisy = time * actions + (1 - time) * draws.noise
        error = self.velocity(batch, prefix, noisy, draws.times).float() - (actions - draws.noise)
        return error.square().mean(), self._drift(batch, (1 - time) * error)  # of the actions that it points at

    def _drift(self, batch: Batch, error: Tensor) -> Tensor:
        """Mean squared distance in m^2 from the driven path, to first order, by errors [B, G, N, 2] of actions."""
        space = self.config.action_space
        steps = batch.paths.diff(dim=1, prepend=torch.zeros_like(batch.paths[:, :1])).norm(dim=-1)[:, None]  # [B, 1, N]
        along = (error[..., 0] * (space.accel_std * space.dt**2)).cumsum(-1).cumsum(-1)
        turned = (error[..., 1] * (space.curvature_std * steps)).cumsum(-1)
        across = (turned * steps).cumsum(-1)
        return (along.square() + across.square()).mean()

    def _path(self, batch: Batch, prefix: ReadPrefix) -> Tensor:
        guess = self.guide(_before(prefix, batch.ends)).float()
        return functional.smooth_l1_loss(guess, batch.paths.flatten(1) / PATH_SCALE, beta=0.1)

    def _cars(self, batch: Batch, prefix: ReadPrefix) -> Tensor:
        guess = self.car_guide(_before(prefix, batch.prompt_lengths)).float()
        gap, speed, change = batch.cars.nan_to_num(nan=1.0).unbind(-1)
        there = (~batch.cars[:, 0].isnan()).float()
        told = torch.stack((gap.clamp(min=NEAREST_GAP).log(), speed / SPEED_SCALE, change / CHANGE_SCALE), -1)
        of_it = functional.smooth_l1_loss(guess[:, 1:], told, beta=0.1, reduction="none").sum(-1)
        return functional.binary_cross_entropy_with_logits(guess[:, 0], there) + (of_it * there).mean()


def _before(prefix: ReadPrefix, ends: Tensor) -> Tensor:
    """[B, hidden_size] of the last columns before these, as the last layer is given them."""
    columns = (ends - 1)[:, None, None].expand(-1, 1, prefix.before_last.shape[-1])
    return prefix.before_last.gather(1, columns)[:, 0]
