import time

import numpy as np
import pytest
from scenes import observation

from alpamayo_ros.core.select import select
from alpamayo_ros.core.types import SamplingOptions
from alpamayo_ros.engine.base import Engine
from alpamayo_ros.engine.null_engine import NullEngine


def test_it_is_an_engine_that_says_it_is_not_trained():
    engine = NullEngine()
    assert isinstance(engine, Engine)
    assert not engine.info.trained


@pytest.mark.parametrize("speed", [10.0, 0.0, -2.0])
def test_the_first_sample_goes_straight_on_at_the_speed_of_the_last_step(speed):
    prediction = NullEngine().predict(observation(speed=speed), SamplingOptions(seed=3))
    assert prediction.xyz.shape == (1, 64, 3)
    np.testing.assert_allclose(prediction.xyz[0, :, 0], speed * 0.1 * np.arange(1, 65), atol=1e-9)
    np.testing.assert_allclose(prediction.xyz[0, :, 1:], 0, atol=1e-12)
    np.testing.assert_allclose(prediction.speed, speed, atol=1e-9)
    assert prediction.seed == 3


def test_samples_fan_out_to_both_sides_on_arcs_that_their_actions_describe():
    prediction = NullEngine().predict(observation(speed=10.0), SamplingOptions(num_samples=3))
    assert prediction.xyz[1, -1, 1] == pytest.approx(-prediction.xyz[2, -1, 1])
    assert prediction.xyz[1, -1, 1] > 1
    steps = np.linalg.norm(np.diff(prediction.xyz[1], axis=0), axis=-1)
    np.testing.assert_allclose(steps, 1.0, atol=1e-3)  # 10 m/s
    heading = np.arctan2(prediction.rotation[1, :, 1, 0], prediction.rotation[1, :, 0, 0])
    np.testing.assert_allclose(np.diff(heading), prediction.actions[1, 0, 1] * 1.0, atol=1e-9)


@pytest.mark.parametrize("samples", range(1, 9))
def test_the_path_that_is_chosen_goes_straight_on_however_many_samples_there_are(samples):
    prediction = NullEngine().predict(observation(speed=10.0), SamplingOptions(num_samples=samples))
    np.testing.assert_allclose(select(prediction, "medoid").xyz[:, 1], 0, atol=1e-12)


def test_the_same_observation_gives_the_same_prediction_alone_and_in_a_batch():
    engine, seen, options = NullEngine(), observation(speed=7.0), SamplingOptions(num_samples=4)
    alone = engine.predict(seen, options)
    for each in engine.predict_batch([seen, seen], [options, options]):
        np.testing.assert_array_equal(each.xyz, alone.xyz)


def test_reasoning_off_writes_nothing():
    prediction = NullEngine().predict(observation(speed=1.0), SamplingOptions(num_samples=2, reasoning="off"))
    assert prediction.reasoning == ("", "")
    assert prediction.finish_reasons == ("off", "off")


def test_faults_and_delays_can_be_planted():
    def fail(observation):
        raise MemoryError("planted")

    with pytest.raises(MemoryError, match="planted"):
        NullEngine(before=fail).predict(observation(speed=1.0), SamplingOptions())
    started = time.monotonic()
    NullEngine(delay=0.05).predict(observation(speed=1.0), SamplingOptions())
    assert time.monotonic() - started >= 0.05
