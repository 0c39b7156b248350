"""On a GPU, no operation of a step would run on the host, or wait for the device."""

import json

import keras
import pytest

if keras.backend.backend() != "tensorflow":
    pytest.skip("about TensorFlow itself: needs KERAS_BACKEND=tensorflow", allow_module_level=True)

import tensorflow as tf
from gpu_placement import FAULTS, LIST, judge, steps, trace

KERNELS = json.loads(LIST.read_text())["kernels"]


def test_a_step_stays_on_the_device():
    for name, function, spec in steps():
        assert judge(trace(function, spec), KERNELS) == [], name


@pytest.mark.parametrize("name", FAULTS)
def test_the_judge_sees_what_goes_through_the_host(name):
    function, fault = FAULTS[name]
    found = judge(trace(function, tf.TensorSpec((None,))), KERNELS)
    assert any(line.startswith(fault) for line in found), found


def test_an_operation_that_is_not_in_the_list_fails():
    found = judge(trace(lambda x: tf.raw_ops.Betainc(a=x, b=x, x=x), tf.TensorSpec((4,))), KERNELS)
    assert "Betainc(T=float32): not in gpu_kernels.json" in found[0]
