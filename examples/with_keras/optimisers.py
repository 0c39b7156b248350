"""SGD and Adam as torch and Optax have them, so that all backends train alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from examples.experiments import Optimiser

__all__ = ["optimiser"]


def _dense(gradient: Any) -> Any:
    """Return a gradient as one array.

    TensorFlow lists the rows of an embedding's, each as often as its word occurs; Keras would take
    norms and squares of the list.
    """
    if keras.backend.backend() != "tensorflow":
        return gradient
    import tensorflow as tf

    return tf.convert_to_tensor(gradient)


class _Penalised(keras.optimizers.Optimizer):
    """Adds weight · λ to the gradient, where Keras's own weight decay is apart from it.

    Before that, and before it is clipped, the gradient of Keras's cost, a mean over all words of a
    text, is multiplied by ``summed``: that of the sum over so many words.
    """

    def __init__(self, *args: Any, penalty: float, summed: int, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.penalty, self.summed = penalty, summed

    def apply(self, grads: Sequence[Any], trainable_variables: Any = None) -> None:
        whole = [_dense(gradient) for gradient in grads]
        if self.summed > 1:
            whole = [gradient * self.summed for gradient in whole]
        super().apply(whole, trainable_variables)

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        gradient = ops.cast(gradient, variable.dtype)
        if self.penalty:
            gradient = gradient + self.penalty * variable
        self.move(gradient, variable, ops.cast(learning_rate, variable.dtype))

    def move(self, gradient: Any, variable: Any, rate: Any) -> None:
        raise NotImplementedError


class SGD(_Penalised, keras.optimizers.SGD):
    """With a velocity free of the learning rate; in Keras a change of rate reaches it late."""

    def move(self, gradient: Any, variable: Any, rate: Any) -> None:
        if self.momentum:
            velocity = self.momentums[self._get_variable_index(variable)]
            moved = self.momentum * velocity + gradient
            self.assign(velocity, moved)
            gradient = gradient + self.momentum * moved if self.nesterov else moved
        self.assign_sub(variable, rate * gradient)


class Adam(_Penalised, keras.optimizers.Adam):
    """With epsilon beside the corrected root; Keras has it beside the raw one."""

    def move(self, gradient: Any, variable: Any, rate: Any) -> None:
        index = self._get_variable_index(variable)
        mean, square = self._momentums[index], self._velocities[index]
        step = ops.cast(self.iterations + 1, variable.dtype)
        self.assign(mean, self.beta_1 * mean + (1 - self.beta_1) * gradient)
        self.assign(square, self.beta_2 * square + (1 - self.beta_2) * ops.square(gradient))
        root = ops.sqrt(square / (1 - ops.power(self.beta_2, step)))
        rate = rate / (1 - ops.power(self.beta_1, step))
        self.assign_sub(variable, rate * mean / (root + self.epsilon))


def optimiser(plan: Optimiser, costs_per_sample: int = 1) -> keras.optimizers.Optimizer:
    """Return the optimiser of an experiment."""
    common: dict[str, Any] = {"penalty": plan.weight_decay, "global_clipnorm": plan.clip}
    common["summed"] = costs_per_sample
    if plan.kind == "adam":
        return Adam(plan.rate, epsilon=1e-8, **common)
    return SGD(plan.rate, momentum=plan.momentum, nesterov=plan.nesterov, **common)
