import pytest
from hypothesis import given
from hypothesis import strategies as st

from alpamayo_ros.core.types import ConfigurationError
from alpamayo_ros.model.prompt import build_driving_prompt, build_question_prompt, driving_text
from alpamayo_ros.model.vocabulary import Vocabulary

IMAGE = "<|vision_start|><|image_pad|><|vision_end|>"


def test_the_text_is_nvidias_word_for_word():
    text = driving_text(2, history_tokens=2, cameras=[1, 6], navigation="Turn left in 30m")

    assert text == (
        "<|im_start|>system\nYou are a driving assistant that generates safe and accurate actions.<|im_end|>\n"
        "<|im_start|>user\n"
        f"Front camera: frame 0 {IMAGE}Front telephoto camera: frame 0 {IMAGE}"
        "<|traj_history_start|><|traj_history|><|traj_history|><|traj_history_end|>"
        "<|route_start|>Turn left in 30m<|route_end|>"
        "output the chain-of-thought reasoning of the driving process, then output the future trajectory.<|im_end|>\n"
        "<|im_start|>assistant\n<|cot_start|>"
    )


def test_without_cameras_there_are_no_captions():
    assert f"user\n{IMAGE}{IMAGE}<|traj_history_start|>" in driving_text(2, history_tokens=1)


def test_the_frame_counter_restarts_only_when_the_camera_changes():
    text = driving_text(5, history_tokens=1, cameras=[1, 1, 1, 0, 1])

    captions = text.replace(IMAGE, "|").split("user\n")[1].split("<|traj_history_start|>")[0]
    assert captions == ("Front camera: frame 0 |frame 1 |frame 2 |Front left camera: frame 0 |Front camera: frame 0 |")


def test_an_unknown_camera_is_called_by_its_number():
    assert f"Camera 9: frame 0 {IMAGE}" in driving_text(1, history_tokens=1, cameras=[9])


def test_an_empty_navigation_text_is_still_a_route_and_none_is_not():
    assert "<|route_start|><|route_end|>" in driving_text(1, history_tokens=1, navigation="")
    assert "route" not in driving_text(1, history_tokens=1, navigation=None)


def test_spans_point_at_their_parts(vocabulary: Vocabulary):
    prompt = build_driving_prompt(vocabulary, [6, 4], 48, cameras=[1, 6], navigation="Go")

    assert [len(image) for image in prompt.images] == [6, 4]
    for image in prompt.images:
        assert {prompt.token_ids[i] for i in image} == {vocabulary.image_pad}
        assert prompt.token_ids[image.start - 1] == vocabulary.vision_start
        assert prompt.token_ids[image.stop] == vocabulary.vision_end
    assert {prompt.token_ids[i] for i in prompt.history} == {vocabulary.history_placeholder}
    assert len(prompt.history) == 48
    route = prompt.token_ids[prompt.route.start : prompt.route.stop]
    assert vocabulary.decode(route) == "<|route_start|>Go<|route_end|>"


def test_history_is_written_over_the_placeholders_and_nothing_else(vocabulary: Vocabulary):
    prompt = build_driving_prompt(vocabulary, [4], 6)
    history = list(vocabulary.history_ids)[:6]

    fused = prompt.with_history(history)

    assert [fused.token_ids[i] for i in fused.history] == history
    assert vocabulary.history_placeholder not in fused.token_ids
    outside = [i for i in range(len(prompt)) if i not in prompt.history]
    assert [fused.token_ids[i] for i in outside] == [prompt.token_ids[i] for i in outside]


def test_history_of_another_length_is_refused(vocabulary: Vocabulary):
    prompt = build_driving_prompt(vocabulary, [4], 48)

    with pytest.raises(ConfigurationError, match="has 45 tokens; the prompt has 48 places"):
        prompt.with_history([vocabulary.history_ids.start] * 45)


@given(navigation=st.text(st.characters(exclude_characters="<|>", exclude_categories=["Cs"]), max_size=30))
def test_taking_the_route_out_gives_the_prompt_without_navigation(vocabulary: Vocabulary, navigation: str):
    history = list(vocabulary.history_ids)[:6]
    guided = build_driving_prompt(vocabulary, [4, 4], 6, cameras=[1, 1], navigation=navigation).with_history(history)

    unguided = build_driving_prompt(vocabulary, [4, 4], 6, cameras=[1, 1]).with_history(history)

    assert guided.without_route().token_ids == unguided.token_ids
    assert guided.without_route().images == unguided.images
    assert guided.without_route().history == unguided.history


def test_a_route_that_is_not_there_cannot_be_taken_out(vocabulary: Vocabulary):
    with pytest.raises(ConfigurationError, match="has no route"):
        build_driving_prompt(vocabulary, [4], 6).without_route()


def test_a_question_has_no_history_and_leaves_the_answer_open(vocabulary: Vocabulary):
    prompt = build_question_prompt(vocabulary, [4], "Is it raining?", cameras=[1])

    text = vocabulary.decode(prompt.token_ids)
    assert text.endswith(
        "<|question_start|>Is it raining?<|question_end|><|im_end|>\n<|im_start|>assistant\n<|answer_start|>"
    )
    assert not prompt.history
    assert not prompt.route
    assert vocabulary.history_placeholder not in prompt.token_ids


@pytest.mark.parametrize("text", ["go<|im_end|>", "<|route_end|>", "<|image_pad|>", "<i3>"])
def test_special_tokens_in_free_text_are_refused(vocabulary: Vocabulary, text: str):
    with pytest.raises(ConfigurationError, match="contains the special token"):
        build_driving_prompt(vocabulary, [4], 6, navigation=text)
    with pytest.raises(ConfigurationError, match="contains the special token"):
        build_question_prompt(vocabulary, [4], text)


def test_images_and_cameras_have_to_be_as_many(vocabulary: Vocabulary):
    with pytest.raises(ConfigurationError, match="3 images and 2 cameras"):
        build_driving_prompt(vocabulary, [4, 4, 4], 6, cameras=[0, 1])
