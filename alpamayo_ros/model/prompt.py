"""What the model reads: images with their captions, the ego history, a route, and what to write.

The wording and the order are NVIDIA's (NVlabs/alpamayo1.5, helper.py, under Qwen3-VL's chat template). Nothing
separates the parts of the user's turn, and the assistant's turn stays open.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from alpamayo_ros.core.types import ConfigurationError
from alpamayo_ros.model.vocabulary import Vocabulary

CAMERA_NAMES = {
    0: "Front left camera",
    1: "Front camera",
    2: "Front right camera",
    3: "Rear left camera",
    4: "Rear camera",
    5: "Rear right camera",
    6: "Front telephoto camera",
}
SYSTEM = "You are a driving assistant that generates safe and accurate actions."
TASK = "output the chain-of-thought reasoning of the driving process, then output the future trajectory."
IMAGE = "<|vision_start|><|image_pad|><|vision_end|>"


@dataclass(frozen=True)
class Prompt:
    """Token ids, and where in them the parts lie."""

    token_ids: tuple[int, ...]
    images: tuple[range, ...]  # the image_pad tokens of each image
    history: range  # the tokens between traj_history_start and traj_history_end; empty in a question
    route: range  # from route_start to route_end, both included; empty without a route

    def __len__(self) -> int:
        return len(self.token_ids)

    def with_history(self, history_ids: Sequence[int]) -> Prompt:
        """The same with the ego history's token ids in place of the placeholders.

        Raises:
            ConfigurationError: another number of ids than of placeholders.
        """
        if len(history_ids) != len(self.history):
            raise ConfigurationError(
                f"the ego history has {len(history_ids)} tokens; the prompt has {len(self.history)} places for them"
            )
        before, after = self.token_ids[: self.history.start], self.token_ids[self.history.stop :]
        return replace(self, token_ids=(*before, *(int(i) for i in history_ids), *after))

    def without_route(self) -> Prompt:
        """The same without its route: what guidance compares with.

        Raises:
            ConfigurationError: there is no route.
        """
        if not self.route:
            raise ConfigurationError("the prompt has no route to take out; guidance needs a navigation text")
        start, stop = self.route.start, self.route.stop
        token_ids = self.token_ids[:start] + self.token_ids[stop:]
        return replace(self, token_ids=token_ids, route=range(start, start))  # images and history stand before it


def driving_text(
    images: int, history_tokens: int, cameras: Sequence[int] | None = None, navigation: str | None = None
) -> str:
    """The prompt for a trajectory, with one `<|image_pad|>` per image.

    Args:
        images: How many there are.
        history_tokens: Places for tokens of the ego history, `tokens_per_history_traj` in config.json.
        cameras: The camera of each image, for the captions of Alpamayo 1.5. None leaves them out, as R1 wants it.
        navigation: Free text like "Turn left in 30m". None leaves the route out; an empty text doesn't.
    """
    history = "<|traj_history_start|>" + "<|traj_history|>" * history_tokens + "<|traj_history_end|>"
    route = "" if navigation is None else f"<|route_start|>{navigation}<|route_end|>"
    return _conversation(_images_text(images, cameras) + history + route + TASK, "<|cot_start|>")


def question_text(images: int, question: str, cameras: Sequence[int] | None = None) -> str:
    """The prompt for an answer in words, with one `<|image_pad|>` per image; no ego history."""
    user = f"{_images_text(images, cameras)}<|question_start|>{question}<|question_end|>"
    return _conversation(user, "<|answer_start|>")


def build_driving_prompt(
    vocabulary: Vocabulary,
    image_token_counts: Sequence[int],
    history_tokens: int,
    cameras: Sequence[int] | None = None,
    navigation: str | None = None,
) -> Prompt:
    """The prompt for a trajectory, with placeholders for the ego history.

    Args:
        vocabulary: The model's.
        image_token_counts: How many tokens each image takes, camera by camera, oldest first.
        history_tokens, cameras, navigation: See `driving_text`.

    Raises:
        ConfigurationError: a navigation text that contains special tokens, or cameras that don't fit the images.
    """
    _check_free_text(vocabulary, navigation or "", "the navigation text")
    text = driving_text(len(image_token_counts), history_tokens, cameras, navigation)
    return _tokenise(vocabulary, text, image_token_counts)


def build_question_prompt(
    vocabulary: Vocabulary, image_token_counts: Sequence[int], question: str, cameras: Sequence[int] | None = None
) -> Prompt:
    """The prompt for an answer in words.

    Raises:
        ConfigurationError: a question that contains special tokens, or cameras that don't fit the images.
    """
    _check_free_text(vocabulary, question, "the question")
    return _tokenise(vocabulary, question_text(len(image_token_counts), question, cameras), image_token_counts)


def _conversation(user: str, assistant: str) -> str:
    turns = f"<|im_start|>system\n{SYSTEM}<|im_end|>\n<|im_start|>user\n{user}<|im_end|>\n"
    return f"{turns}<|im_start|>assistant\n{assistant}"


def _images_text(images: int, cameras: Sequence[int] | None) -> str:
    """Every image, with the frame's number before it and the camera's name where the camera changes."""
    if cameras is None:
        return IMAGE * images
    if len(cameras) != images:
        raise ConfigurationError(f"there are {images} images and {len(cameras)} cameras; each image needs its camera")
    parts = []
    number = 0
    for index, camera in enumerate(cameras):
        if index == 0 or camera != cameras[index - 1]:
            parts.append(f"{CAMERA_NAMES.get(camera, f'Camera {camera}')}: ")
            number = 0
        parts.append(f"frame {number} {IMAGE}")
        number += 1
    return "".join(parts)


def _check_free_text(vocabulary: Vocabulary, text: str, name: str) -> None:
    tokens = vocabulary.added_tokens_in(text)
    if tokens:
        raise ConfigurationError(f"{name} {text!r} contains the special token {tokens[0]}; it has to be plain text")


def _tokenise(vocabulary: Vocabulary, text: str, image_token_counts: Sequence[int]) -> Prompt:
    """Encode a text with one pad per image, repeat the pads, and find the parts."""
    counts = iter(image_token_counts)
    token_ids: list[int] = []
    images = []
    for token_id in vocabulary.encode(text):
        count = next(counts) if token_id == vocabulary.image_pad else 1
        if token_id == vocabulary.image_pad:
            images.append(range(len(token_ids), len(token_ids) + count))
        token_ids.extend([token_id] * count)
    history = range(0)
    if vocabulary.history_placeholder in token_ids:
        behind = token_ids[::-1].index(vocabulary.history_placeholder)
        history = range(token_ids.index(vocabulary.history_placeholder), len(token_ids) - behind)
    route = range(0)
    if vocabulary.route_start in token_ids:
        route = range(token_ids.index(vocabulary.route_start), token_ids.index(vocabulary.route_end) + 1)
    return Prompt(tuple(token_ids), tuple(images), history, route)
