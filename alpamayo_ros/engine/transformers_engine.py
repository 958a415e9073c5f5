"""The reference engine: the backbone by transformers, everything else by alpamayo_ros.model; any torch device."""

from __future__ import annotations

from typing import Any

from alpamayo_ros.engine.base import LoadOptions
from alpamayo_ros.engine.gpu_jpegs import GpuJpegs, jpegs_by_options
from alpamayo_ros.engine.load_model import load_model
from alpamayo_ros.engine.sampling import draw_each
from alpamayo_ros.engine.stepwise_engine import StepwiseEngine
from alpamayo_ros.model.alpamayo import AlpamayoModel


class TransformersEngine(StepwiseEngine):
    """Runs AlpamayoModel as it is."""

    def __init__(
        self, model: AlpamayoModel, name: str, max_samples: int, max_cameras: int, jpegs: GpuJpegs | None = None
    ) -> None:
        super().__init__("transformers", model, name, max_samples, max_cameras, draw_each, jpegs=jpegs)

    @classmethod
    def load(cls, checkpoint: str, **options: Any) -> TransformersEngine:
        """Load a checkpoint.

        Args:
            checkpoint: folder or Hugging Face name.
            options: fields of LoadOptions.

        Raises:
            ConfigurationError: a checkpoint that can't be used.
            EngineError: a device that isn't there, or has too little memory.
        """
        wanted = LoadOptions(**options)
        model = load_model(checkpoint, wanted)
        jpegs = jpegs_by_options(wanted, model.device)
        return cls(model, checkpoint, wanted.max_samples, wanted.max_cameras, jpegs)
