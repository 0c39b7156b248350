"""A vision transformer of Equinox's own modules, converted and back."""

import equinox as eqx
import jax
import numpy as np
import optax
import pytest
from jax import export
from jax import numpy as jnp

from quantal.jax.equinox import QSD, convert, masks_on, predict_mc, revert, sites

KEY = jax.random.key(0)
IMAGES = jax.random.normal(KEY, (4, 1, 8, 8))
LABELS = jnp.arange(4)
DEPTH, WIDTH = 2, 8


class Block(eqx.Module):
    norms: list
    attention: eqx.nn.MultiheadAttention
    mlp: eqx.nn.MLP
    dropout: eqx.nn.Dropout

    def __init__(self, key):
        self.norms = [eqx.nn.LayerNorm(WIDTH), eqx.nn.LayerNorm(WIDTH)]
        self.attention = eqx.nn.MultiheadAttention(2, WIDTH, dropout_p=0.1, key=key)
        self.mlp = eqx.nn.MLP(WIDTH, WIDTH, 16, 1, key=key)
        self.dropout = eqx.nn.Dropout(0.2)

    def __call__(self, x, key):
        keys = [None] * 3 if key is None else jax.random.split(key, 3)
        y = jax.vmap(self.norms[0])(x)
        x = x + self.dropout(self.attention(y, y, y, key=keys[0]), key=keys[1])
        y = jax.vmap(self.mlp)(jax.vmap(self.norms[1])(x))
        return x + self.dropout(y, key=keys[2])


class ViT(eqx.Module):
    """Patches by a convolution; the blocks are stacked, and scanned if asked for."""

    patches: eqx.nn.Conv2d
    position: jax.Array
    embedding_dropout: eqx.nn.Dropout
    blocks: Block | list
    head: eqx.nn.Sequential
    scanned: bool = eqx.field(static=True)

    def __init__(self, key, scanned):
        keys = jax.random.split(key, 3)
        self.patches = eqx.nn.Conv2d(1, WIDTH, 4, 4, key=keys[0])
        self.position = jax.random.normal(keys[1], (4, WIDTH))
        self.embedding_dropout = eqx.nn.Dropout(0.3)
        each = jax.random.split(keys[2], DEPTH)
        self.blocks = eqx.filter_vmap(Block)(each) if scanned else [Block(key) for key in each]
        self.head = eqx.nn.Sequential(
            [eqx.nn.LayerNorm(WIDTH), eqx.nn.Dropout(0.4), eqx.nn.Linear(WIDTH, 4, key=keys[0])]
        )
        self.scanned = scanned

    def __call__(self, image, *, key=None):
        first, last, *keys = (
            [None] * (DEPTH + 2) if key is None else jax.random.split(key, DEPTH + 2)
        )
        x = self.patches(image).reshape(WIDTH, -1).T + self.position
        x = self.embedding_dropout(x, key=first)
        if self.scanned:
            arrays, static = eqx.partition(self.blocks, eqx.is_array)

            def layer(x, item):
                arrays, key = item
                return eqx.combine(arrays, static)(x, key), None

            keys = None if key is None else jnp.stack(keys)
            x, _ = jax.lax.scan(jax.checkpoint(layer), x, (arrays, keys))
        else:
            for block, own in zip(self.blocks, keys, strict=True):
                x = block(x, own)
        return self.head(x.mean(0), key=last)


def predict(model, images, key=None):
    if key is None:
        return jax.vmap(model)(images)
    keys = jax.random.split(key, len(images))
    return jax.vmap(lambda image, key: model(image, key=key))(images, keys)


PER_BLOCK = ("attention.dropout", "dropout")
NAMES = {
    True: {"embedding_dropout", "head.layers.1", *(f"blocks.{name}" for name in PER_BLOCK)},
    False: {
        "embedding_dropout", "head.layers.1",
        *(f"blocks.{i}.{name}" for i in range(DEPTH) for name in PER_BLOCK),
    },
}  # fmt: skip


@pytest.mark.parametrize("scanned", [True, False], ids=["scanned", "listed"])
def test_vit(scanned, tmp_path):
    native = ViT(KEY, scanned)
    assert {site.name for site in sites(native)} == NAMES[scanned]
    converted = convert(native, lambda rate: 2 * rate)
    assert {s.name: s.alpha / s.rate for s in sites(converted)} == dict.fromkeys(NAMES[scanned], 2)

    quiet = eqx.nn.inference_mode(native), eqx.nn.inference_mode(converted)
    np.testing.assert_array_equal(*(predict(model, IMAGES) for model in quiet))
    assert eqx.tree_equal(revert(converted), native)

    optimizer = optax.adam(1e-2)

    def loss(model, images, labels, key):
        logits = predict(model, images, key)
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

    @eqx.filter_jit
    def step(model, state, key):
        value, grads = eqx.filter_value_and_grad(loss)(model, IMAGES, LABELS, key)
        updates, state = optimizer.update(grads, state, model)
        return eqx.apply_updates(model, updates), state, value

    model, losses = converted, []
    state = optimizer.init(eqx.filter(model, eqx.is_inexact_array))
    for key in jax.random.split(KEY, 30):
        model, state, value = step(model, state, key)
        losses.append(float(value))
    assert np.mean(losses[-5:]) < np.mean(losses[:5])

    # What was trained with QSD is loaded without, and the other way round, and predicts the same.
    trained = predict(eqx.nn.inference_mode(model), IMAGES)
    for source, target in ((model, native), (revert(model), converted)):
        eqx.tree_serialise_leaves(tmp_path / "vit.eqx", source)
        loaded = eqx.tree_deserialise_leaves(tmp_path / "vit.eqx", target)
        np.testing.assert_array_equal(predict(eqx.nn.inference_mode(loaded), IMAGES), trained)

    calm = eqx.nn.inference_mode(model)
    with masks_on(calm) as drawing:
        assert bool(jnp.any(predict(drawing, IMAGES, KEY) != trained))
    mean, std = predict_mc(calm, IMAGES, 8, key=KEY, call=predict)
    assert mean.shape == std.shape == (4, 4)
    assert bool(jnp.all(std > 0))


def test_a_training_step_lowers_for_cuda():
    arrays, static = eqx.partition(convert(ViT(KEY, scanned=True), 1.0), eqx.is_array)

    def step(arrays, images, words):
        def loss(arrays):
            key = jax.random.wrap_key_data(words)
            return predict(eqx.combine(arrays, static), images, key).sum()

        return jax.tree.map(lambda a, g: a - g, arrays, jax.grad(loss)(arrays))

    exported = export.export(jax.jit(step), platforms=["cuda"])(
        arrays, IMAGES, jax.random.key_data(KEY)
    )
    assert exported.platforms == ("cuda",)
    assert "callback" not in exported.mlir_module()


def test_layers_made_by_hand_stay():
    model = eqx.nn.Sequential([QSD(0.5, 1.0), eqx.nn.Dropout(0.5)])
    converted = convert(model, 2.0)
    assert [site.alpha for site in sites(converted)] == [1.0, 2.0]
    assert eqx.tree_equal(revert(converted), model)
