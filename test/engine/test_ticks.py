from dataclasses import replace

from alpamayo_ros.core.types import SamplingOptions
from alpamayo_ros.engine.ticks import MOST_TICKS, group

PLAIN = SamplingOptions()


def test_ticks_that_differ_by_seed_text_or_drafts_go_together() -> None:
    options = [
        PLAIN,
        replace(PLAIN, seed=7),
        replace(PLAIN, draft_token_ids=(1, 2)),
        replace(PLAIN, given_reasoning="Stop."),
        replace(PLAIN, guidance_weight=1.0),
    ]
    assert group(options, 64) == [[0, 1, 2, 3, 4]]


def test_whatever_else_differs_parts_them() -> None:
    others = [
        {"num_samples": 2},
        {"temperature": 0.5},
        {"top_p": 0.5},
        {"max_reasoning_tokens": 5},
        {"deadline_ms": 5.0},
        {"reasoning": "off"},
        {"flow_steps": 5},
        {"noise_temperature": 0.5},
        {"guidance_weight": 1.5},
    ]
    options = [PLAIN, *(replace(PLAIN, **other) for other in others)]
    assert sorted(group(options, 64)) == [[place] for place in range(len(options))]


def test_guided_ticks_stay_alone_even_when_they_are_alike() -> None:
    guided = replace(PLAIN, guidance_weight=1.5)
    assert sorted(group([guided, PLAIN, guided, PLAIN], 64)) == [[0], [1, 3], [2]]


def test_a_batch_has_bounds() -> None:
    assert [len(places) for places in group([PLAIN] * (2 * MOST_TICKS + 1), 64)] == [MOST_TICKS, MOST_TICKS, 1]
    assert [len(places) for places in group([PLAIN] * 5, 64, most_ticks=2)] == [2, 2, 1]
    independent = replace(PLAIN, reasoning="independent", num_samples=6)
    assert [len(places) for places in group([independent] * 5, 16)] == [2, 2, 1]
    assert [len(places) for places in group([independent] * 2, 5)] == [1, 1]  # what one tick needs is had in any case
