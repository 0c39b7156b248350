"""On eight devices the draw is that of one, and the layer adds no communication."""

import os
import subprocess
import sys
import textwrap

SETUP = """
import itertools, re
import jax, numpy as np
from jax import numpy as jnp
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
import quantal, quantal.jax

assert len(jax.devices()) == 8
TALK = re.compile("all-reduce|all-gather|reduce-scatter|collective|all-to-all| send| recv")
KEY = jax.random.key(1)
X = jnp.asarray(np.random.default_rng(0).standard_normal((16, 6, 64)), jnp.float32)
GRANULARITY = {}, {"p_broadcast_dims": 0}, {"broadcast_dims": -1}

def step(x, key, upstream, options):
    y, pull = jax.vjp(lambda x: quantal.jax.dilute(x, 0.2, 0.2, key=key, **options), x)
    return y, pull(upstream)[0]

def equal(one, other):
    return all(np.array_equal(np.asarray(a), np.asarray(b)) for a, b in zip(one, other))
"""


def run(body):
    """Run Python code in a process that has eight devices."""
    environment = os.environ | {"XLA_FLAGS": "--xla_force_host_platform_device_count=8"}
    command = [sys.executable, "-W", "error", "-c", SETUP + textwrap.dedent(body)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.splitlines()[-1:] == ["checked"]


def test_sharded_is_unsharded_and_silent():
    run("""
    mesh = jax.make_mesh((4, 2), ("a", "b"), axis_types=(AxisType.Auto,) * 2)
    cuts = P("a"), P(("a", "b")), P("a", None, "b"), P(None, None, ("a", "b"))
    for options in GRANULARITY:
        f = jax.jit(lambda x, key, upstream: step(x, key, upstream, options))
        alone = f(X, KEY, X)
        for cut in cuts if options == {} else cuts[2:3]:
            x = jax.device_put(X, NamedSharding(mesh, cut))
            program = f.lower(x, KEY, x).compile()
            together = program(x, KEY, x)
            assert equal(together, alone), (options, cut)
            assert not TALK.findall(program.as_text()), (options, cut)
            assert together[0].sharding.is_equivalent_to(x.sharding, X.ndim), (options, cut)
    talk = jax.jit(lambda x: jnp.cumsum(x, 0)).lower(jax.device_put(X, NamedSharding(mesh, P("a"))))
    assert TALK.findall(talk.compile().as_text())  # the pattern finds what it looks for
    print("checked")
    """)


def test_explicit_shardings_divide_the_work():
    run("""
    mesh = jax.make_mesh((4, 2), ("a", "b"), axis_types=(AxisType.Explicit,) * 2)
    for options in GRANULARITY[:2]:
        f = jax.jit(lambda x, key, upstream: step(x, key, upstream, options))
        alone = f(X, KEY, X)
        work = f.lower(X, KEY, X).compile().cost_analysis()["flops"]
        with jax.set_mesh(mesh):
            for cut in (P("a", None, "b"),):
                x = jax.device_put(X, NamedSharding(mesh, cut))
                program = f.lower(x, KEY, x).compile()
                together = program(x, KEY, x)
                assert equal(together, alone), (options, cut)
                assert not TALK.findall(program.as_text()), (options, cut)
                assert jax.typeof(together[0]) == jax.typeof(x), (options, cut)
                assert program.cost_analysis()["flops"] < 0.5 * work, (options, cut)
    print("checked")
    """)


def test_shard_map_draws_by_the_key_it_is_given():
    run("""
    mesh = jax.make_mesh((8,), ("d",), axis_types=(AxisType.Auto,))
    def local(x, key):
        return quantal.jax.dilute(x, 0.2, 0.2, key=key)
    def folded(x, key):
        return local(x, jax.random.fold_in(key, jax.lax.axis_index("d")))
    parts = jnp.split(X, 8)
    apart = jnp.concatenate([local(x, jax.random.fold_in(KEY, i)) for i, x in enumerate(parts)])
    alike = jnp.concatenate([local(x, KEY) for x in parts])
    for function, desired in ((folded, apart), (local, alike)):
        f = jax.jit(jax.shard_map(function, mesh=mesh, in_specs=(P("d"), P()), out_specs=P("d")))
        y, pull = jax.vjp(lambda x: f(x, KEY), X)
        assert equal([y], [desired])
        assert equal([pull(jnp.ones_like(X))[0] * X], [desired])
    print("checked")
    """)
