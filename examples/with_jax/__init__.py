"""The experiments in JAX: Flax NNX models, Optax, one jitted step for all of them."""
