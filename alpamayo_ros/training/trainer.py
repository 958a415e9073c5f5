"""The weights on their way: optimiser, moving average, and one step after the other."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from alpamayo_ros.core.types import ConfigurationError
from alpamayo_ros.model.alpamayo import AlpamayoNetwork
from alpamayo_ros.model.checkpoint import Checkpoint
from alpamayo_ros.model.config import ModelConfig
from alpamayo_ros.model.vocabulary import Vocabulary
from alpamayo_ros.training.initial import initial_network
from alpamayo_ros.training.layout import Layout
from alpamayo_ros.training.losses import Losses, TrainedNetwork, draw_flow
from alpamayo_ros.training.settings import Schedule, TrainingSettings
from alpamayo_ros.training.store import ExampleStore

BETAS = (0.9, 0.95)
STEP_KEYS = 1_000_003  # a prime; the randomness of a step is keyed by seed and step


class Trainer:
    """A training on one device, that can be saved after any step and go on as if nothing had happened."""

    def __init__(
        self,
        config: ModelConfig,
        vocabulary: Vocabulary,
        layout: Layout,
        settings: TrainingSettings,
        device: torch.device,
        compiled: bool,
    ) -> None:
        """Begin with the initial weights.

        Args:
            config, vocabulary, layout: Of the checkpoint and its sequences.
            settings: What is told.
            device: Where to train; on a GPU in bfloat16 by autocast.
            compiled: Let a compiler join the small operations, which takes a minute at the first step.
        """
        self.config, self.settings, self.device = config, settings, device
        self.step = 0  # done so far
        network = initial_network(config, vocabulary, settings.seed)
        self.trained = TrainedNetwork(network, config, layout).to(device)
        self._average = [parameter.detach().clone() for parameter in self.network.parameters()]
        self._optimiser = torch.optim.AdamW(
            _groups(self.trained, settings.weight_decay), lr=0.0, betas=BETAS, fused=device.type == "cuda"
        )
        self._losses = torch.compile(self.trained, dynamic=False) if compiled else self.trained

    @property
    def network(self) -> AlpamayoNetwork:
        """The weights as the last step left them."""
        return self.trained.network

    def begin_from(self, folder: Path) -> None:
        """Take the weights of a checkpoint instead of the initial ones.

        Raises:
            ConfigurationError: a checkpoint that can't be read, or of another network.
        """
        checkpoint = Checkpoint.open(folder)
        problems = checkpoint.problems(self.network.shapes())
        if problems:
            raise ConfigurationError(f"{folder} is of another network:\n  " + "\n  ".join(problems))
        with torch.no_grad():
            for name, tensor in checkpoint.stream(list(checkpoint.tensors)):
                self.network.get_parameter(name).copy_(tensor)
        self._average = [parameter.detach().clone() for parameter in self.network.parameters()]

    @property
    def learning_rate(self) -> float:
        """That of the last step."""
        return float(self._optimiser.param_groups[0]["lr"])

    def compile_on(self, store: ExampleStore) -> None:
        """Let the compiler do its work on a batch, which changes nothing: drives can be recorded meanwhile."""
        self._losses_of(store, 0).total.backward()
        self._optimiser.zero_grad(set_to_none=True)

    def run_step(self, store: ExampleStore, schedule: Schedule) -> dict[str, Tensor]:
        """One step on the examples that are there; the losses stay on the device."""
        settings = self.settings
        losses = self._losses_of(store, settings.seed * STEP_KEYS + self.step)
        losses.total.backward()
        norm = nn.utils.clip_grad_norm_(self.trained.parameters(), settings.gradient_limit)
        for group in self._optimiser.param_groups:
            group["lr"] = schedule.learning_rate(self.step, settings)
        self._optimiser.step()
        self._optimiser.zero_grad(set_to_none=True)
        self._follow()
        self.step += 1
        values = {field.name: getattr(losses, field.name) for field in fields(losses)} | {"gradient": norm}
        return {name: value.detach() for name, value in values.items()}

    def _losses_of(self, store: ExampleStore, key: int) -> Losses:
        """Those of a batch of keyed randomness."""
        settings = self.settings
        generator = torch.Generator().manual_seed(key)
        batch = store.draw(settings, generator)
        draws = draw_flow(
            settings.batch,
            settings.flow_samples,
            self.config.action_space.n_waypoints,
            torch.Generator(self.device).manual_seed(key),
        )
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda"):
            losses: Losses = self._losses(batch, batch.pixels(self.config.images), draws)
        return losses

    def averaged(self) -> dict[str, Tensor]:
        """The moving average of the network's weights by their names: what becomes the checkpoint."""
        names = [name for name, _ in self.network.named_parameters()]
        return dict(zip(names, self._average, strict=True))

    def save(self, path: Path, course: Mapping[str, Any]) -> None:
        """Write everything that goes on, and what is known of the course, as safetensors, all or nothing."""
        tensors = {f"weight.{name}": each.detach() for name, each in self.trained.named_parameters()}
        tensors |= {f"average.{place}": each for place, each in enumerate(self._average)}
        for place, its in self._optimiser.state_dict()["state"].items():
            tensors |= {f"optimiser.{place}.{key}": each for key, each in its.items()}
        scratch = path.with_name(f".{path.name}")
        told = json.dumps({"step": self.step, "course": dict(course)})
        save_file({name: each.contiguous() for name, each in tensors.items()}, scratch, metadata={"training": told})
        scratch.rename(path)

    def load(self, path: Path) -> dict[str, Any]:
        """Go on from a saved state; returns what was known of the course.

        Raises:
            ConfigurationError: the file belongs to another model, or can't be read.
        """
        try:
            with safe_open(path, "pt") as stored:
                told = json.loads(stored.metadata()["training"])
                # copies: what is read from the file lies in its pages
                tensors = {name: stored.get_tensor(name).to(self.device, copy=True) for name in stored.keys()}  # noqa: SIM118
            with torch.no_grad():
                for name, parameter in self.trained.named_parameters():
                    parameter.copy_(tensors[f"weight.{name}"])
            self._average = [tensors[f"average.{place}"] for place in range(len(self._average))]
            state: dict[int, dict[str, Tensor]] = {}
            for name in tensors:
                if name.startswith("optimiser."):
                    _, place, key = name.split(".")
                    state.setdefault(int(place), {})[key] = tensors[name]
            self._optimiser.load_state_dict({**self._optimiser.state_dict(), "state": state})
        except (OSError, SafetensorError, KeyError, ValueError, RuntimeError) as error:
            raise ConfigurationError(f"{path} can't be resumed from: {error}") from error
        self.step = int(told["step"])
        course: dict[str, Any] = told["course"]
        return course

    def _follow(self) -> None:
        """Move the average; at first it follows closely, since the beginning is worth nothing."""
        share = 1 - min(self.settings.average, (1 + self.step) / (10 + self.step))
        torch._foreach_lerp_(self._average, [parameter.detach() for parameter in self.network.parameters()], share)


def _groups(trained: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Matrices decay; norms, biases and embeddings don't."""
    decaying = {name for name, each in trained.named_parameters() if each.ndim >= 2 and "embed" not in name}
    matrices = [each for name, each in trained.named_parameters() if name in decaying]
    rest = [each for name, each in trained.named_parameters() if name not in decaying]
    return [{"params": matrices, "weight_decay": weight_decay}, {"params": rest, "weight_decay": 0.0}]


def is_finite(values: Mapping[str, float]) -> bool:
    """Whether a step's losses are numbers."""
    return all(map(math.isfinite, values.values()))
