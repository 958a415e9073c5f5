"""One observation on its way through the engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from alpamayo_ros.core.types import Observation, SamplingOptions
from alpamayo_ros.engine.reasoning import Text
from alpamayo_ros.engine.stage_clock import StageClock
from alpamayo_ros.engine.vllm.backbone import Reading
from alpamayo_ros.engine.vllm.pictures import Picture
from alpamayo_ros.model.prompt import Prompt


@dataclass(frozen=True, eq=False)
class Tick:
    """What is known of it before anything is computed."""

    observation: Observation
    options: SamplingOptions
    clock: StageClock
    pictures: tuple[Picture, ...]
    encoded: int  # of those, how many were encoded for it
    prompt: Prompt

    @property
    def rows(self) -> int:
        """Reasonings: one for all samples, or one each."""
        return self.options.num_samples if self.options.reasoning == "independent" else 1

    @property
    def guided(self) -> bool:
        """Whether the flow also reads the prompt without its route."""
        return self.options.guidance_weight not in (None, 1)

    @property
    def reading(self) -> Reading:
        """Its prompt."""
        return Reading(self.prompt, self.pictures)

    def readings(self, texts: Sequence[Text]) -> list[Reading]:
        """What the expert reads: the prompt and each text; when guided, then the same without the route."""
        prompts = [self.prompt, self.prompt.without_route()] if self.guided else [self.prompt]
        return [Reading(prompt, self.pictures, tuple(text.token_ids)) for prompt in prompts for text in texts]


@dataclass(frozen=True, eq=False)
class Reasoned:
    """What its rows say, closed."""

    texts: tuple[Text, ...]
    written: int = 0  # tokens that the longest took one by one
