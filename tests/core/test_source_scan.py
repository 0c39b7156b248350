"""The one scanner of source code, on a library of two functions that stands for a framework."""

import functools
import math
import sys
import textwrap
import types

import pytest

from quantal._source_scan import UNKNOWN, Scanner

TOY = """
def dropout(x, rate=0.5):
    return x

def channels(x, rate=0.5):
    return x

class Layer:
    def __call__(self, x):
        return dropout(x)

def plain_decorator(function):  # without functools.wraps
    def run(*args, **kwargs):
        return function(*args, **kwargs)
    return run
"""
toy = sys.modules["toy"] = types.ModuleType("toy")
exec(TOY, toy.__dict__)
dropout = toy.dropout

SCANNER = Scanner(frozenset({"toy", "pytest"}), apart=(toy.Layer,), assume={"training": True})


def found(owner, scanner=SCANNER, **more):
    """The calls of the toy's functions, as (how it is written, its rate)."""
    calls = list(scanner.calls(owner, **more))
    chosen = [call for call in calls if call.target in (toy.dropout, toy.channels)]
    return [(call.written, rate_of(call)) for call in chosen]


def rate_of(call):
    rate = call.argument(1, "rate")
    return 0.5 if rate is None else rate.value


TABLE = {"drop": toy.dropout, "channels": toy.channels, "none": len}
BOUND = functools.partial(toy.dropout, rate=0.3)


def helper(x):
    return toy.dropout(x, 0.2)


def takes(function, x):
    return function(x)


@toy.plain_decorator
def decorated(x):
    return toy.dropout(x, 0.9)


class Ways:
    """Each method is a way to write it; the rate says which line was found."""

    rate = 0.6

    def __init__(self):
        self.mine = {"p": 0.7}
        self.function = toy.dropout
        self.list = [toy.channels]
        self.layer = toy.Layer()
        self.training = False

    def plainly(self, x):
        return toy.dropout(x, 0.1)

    def by_a_name(self, x):
        return dropout(x, rate=0.1)

    def default_rate(self, x):
        return toy.dropout(x)

    def own_rate(self, x):
        return toy.dropout(x, self.rate)

    def in_a_table_of_its_own(self, x):
        return toy.dropout(x, self.mine["p"])

    def in_training(self, x):
        return toy.dropout(x, self.rate if self.training else 0.0)

    def computed(self, x):
        return toy.dropout(x, 1 - self.rate)

    def local_rate(self, x):
        rate = self.rate
        return toy.dropout(x, rate)

    def passed_rate(self, x, rate=0.1):
        return toy.dropout(x, rate)

    def changed_rate(self, x):
        rate = 0.1
        rate *= 2
        return toy.dropout(x, rate)

    def alias(self, x):
        drop = toy.dropout
        return drop(x, 0.1)

    def one_of_two(self, x):
        drop = toy.dropout if x else toy.channels
        return drop(x, 0.1)

    def imported(self, x):
        from toy import dropout as drop

        return drop(x, 0.1)

    def imported_module(self, x):
        import toy as library

        return library.dropout(x, 0.1)

    def partial(self, x):
        drop = functools.partial(toy.dropout, rate=0.1)
        return drop(x)

    def partial_positions(self, x):
        return functools.partial(toy.dropout, x)(0.1)

    def partial_elsewhere(self, x):
        return BOUND(x)

    def partial_overridden(self, x):
        return BOUND(x, rate=0.4)

    def by_getattr(self, x):
        return getattr(toy, "dropout")(x, 0.1)  # noqa: B009

    def from_a_table(self, x):
        return TABLE["drop"](x, 0.1)

    def from_a_table_by_a_variable(self, x, name):
        return TABLE[name](x, 0.1)

    def from_a_loop(self, x):
        for function in self.list:
            x = function(x, 0.1)
        return x

    def from_a_comprehension(self, x):
        return [function(x, 0.1) for function in TABLE.values()]

    def held(self, x):
        return self.function(x, 0.1)

    def in_an_inner_function(self, x):
        def run(y):
            return toy.dropout(y, 0.1)

        return run(x)

    def in_a_lambda(self, x):
        return (lambda y: toy.dropout(y, 0.1))(x)

    def passed_on(self, x):
        return takes(toy.dropout, x)

    def in_keywords(self, x, **options):
        return toy.dropout(x, **options)

    def in_known_keywords(self, x):
        options = {"rate": 0.1}
        return toy.dropout(x, **options)

    def in_stars(self, *args):
        return toy.dropout(*args)

    def default_function(self, x, drop=toy.dropout):
        return drop(x, 0.1)

    def walrus(self, x):
        return (drop := toy.dropout)(x, 0.1) or drop

    def unpacked(self, x):
        drop, rate = toy.dropout, 0.1
        return drop(x, rate)

    def a_layer(self, x):
        return self.layer(x)  # found by itself

    def another_name(self, dropout):
        return dropout(0.1)  # whatever is passed, not the global of this name


@pytest.mark.parametrize(
    ("method", "expected"),
    {
        "plainly": [("toy.dropout", 0.1)],
        "by_a_name": [("dropout", 0.1)],
        "default_rate": [("toy.dropout", 0.5)],
        "own_rate": [("toy.dropout", 0.6)],
        "in_a_table_of_its_own": [("toy.dropout", 0.7)],
        "in_training": [("toy.dropout", 0.6)],
        "computed": [("toy.dropout", 0.4)],
        "local_rate": [("toy.dropout", 0.6)],
        "passed_rate": [("toy.dropout", UNKNOWN)],
        "changed_rate": [("toy.dropout", UNKNOWN)],
        "alias": [("drop", 0.1)],
        "one_of_two": [("drop", 0.1), ("drop", 0.1)],
        "imported": [("drop", 0.1)],
        "imported_module": [("library.dropout", 0.1)],
        "partial": [("drop", 0.1)],
        "partial_positions": [("functools.partial(toy.dropout, x)", 0.1)],
        "partial_elsewhere": [("BOUND", 0.3)],
        "partial_overridden": [("BOUND", 0.4)],
        "by_getattr": [("getattr(toy, 'dropout')", 0.1)],
        "from_a_table": [("TABLE['drop']", 0.1)],
        "from_a_table_by_a_variable": [("TABLE[name]", 0.1), ("TABLE[name]", 0.1)],
        "from_a_loop": [("function", 0.1)],
        "from_a_comprehension": [("function", 0.1), ("function", 0.1)],
        "held": [("self.function", 0.1)],
        "in_an_inner_function": [("toy.dropout", 0.1)],
        "in_a_lambda": [("toy.dropout", 0.1)],
        "passed_on": [("toy.dropout", UNKNOWN)],
        "in_keywords": [("toy.dropout", UNKNOWN)],
        "in_known_keywords": [("toy.dropout", 0.1)],
        "in_stars": [("toy.dropout", UNKNOWN)],
        "default_function": [("drop", 0.1)],
        "walrus": [("(drop := toy.dropout)", 0.1)],
        "unpacked": [("drop", 0.1)],
        "a_layer": [],
        "another_name": [],
    }.items(),
)
def test_every_way_to_write_it(method, expected):
    one = type("One", (), {"run": vars(Ways)[method], "rate": Ways.rate})()
    vars(one).update(vars(Ways()))
    assert found(one) == expected


class Parent:
    def forward(self, x):
        return toy.dropout(x, 0.1)

    def inherited(self, x):
        return toy.dropout(x, 0.2)


class Child(Parent):
    def forward(self, x):
        return super().forward(x)


def test_inherited_code_counts():
    assert sorted(found(Child())) == [("toy.dropout", 0.1), ("toy.dropout", 0.2)]


class Shared:
    made = ()

    def __init__(self):
        self.made = self.make()

    def make(self):
        return [toy.dropout(0, 0.9)]

    def encode(self, x):
        return type(self).static(self.reset(x))

    @staticmethod
    def static(x):
        return self_less(x)

    def reset(self, x):
        return x

    @property
    def looked_up(self):
        return toy.dropout(1, 0.2)

    @classmethod
    def of_the_class(cls, x):
        return cls.static(x)

    @toy.plain_decorator
    def decorated(self, x):
        return toy.dropout(x, self.rate)

    rate = 0.4

    def calls_decorated(self, x):
        return decorated(x)


def self_less(x):
    return toy.channels(x, 0.3)


def test_all_entry_points_count_but_not_what_only_construction_calls():
    assert sorted(found(Shared())) == [
        ("toy.channels", 0.3),
        ("toy.dropout", 0.2),
        ("toy.dropout", 0.4),
        ("toy.dropout", 0.9),  # of `decorated`: `make` has the same rate, so see below
    ]
    calls = [call for call in SCANNER.calls(Shared()) if call.target is toy.dropout]
    assert {call.function.__name__ for call in calls} == {"looked_up", "decorated"}


def test_a_class_alone_is_enough_but_for_what_instances_hold():
    assert sorted(found(Shared), key=repr) == [
        ("toy.channels", 0.3),
        ("toy.dropout", 0.2),
        ("toy.dropout", 0.9),
        ("toy.dropout", UNKNOWN),
    ]
    assert found(Child) == [("toy.dropout", 0.1), ("toy.dropout", 0.2)]


def test_functions_and_what_they_call():
    assert found(helper) == [("toy.dropout", 0.2)]
    assert found(lambda x: helper(x)) == [("toy.dropout", 0.2)]
    one, other = (lambda x: toy.dropout(x, 0.1)), (lambda x: toy.dropout(x, 0.2))  # fmt: skip
    assert (found(one), found(other)) == ([("toy.dropout", 0.1)], [("toy.dropout", 0.2)])
    assert found(functools.partial(helper, 1)) == [("toy.dropout", 0.2)]
    assert found(functools.lru_cache(helper)) == [("toy.dropout", 0.2)]


def closure(rate):
    drop = toy.dropout

    def forward(self, x):
        return drop(x, rate)

    return type("Closed", (), {"forward": forward})()


def test_closures():
    assert found(closure(0.25)) == [("drop", 0.25)]


def test_instance_level_methods_and_hooks():
    part = Parent()
    part.forward = types.MethodType(lambda self, x: toy.dropout(x, self.own), part)
    part.own = 0.8
    assert sorted(found(part)) == [("toy.dropout", 0.2), ("toy.dropout", 0.8)]
    assert ("toy.dropout", 0.2) in found(object(), also=[helper])


def test_recursion_and_names_that_refer_to_themselves():
    class Loop:
        def forward(self, x):
            x = self.forward(x)
            drop = toy.dropout
            drop = drop or x
            return drop(x, 0.1)

    assert found(Loop()) == [("drop", 0.1)]


def test_where_it_stands():
    (call,) = (c for c in SCANNER.calls(helper) if c.target is toy.dropout)
    assert call.line == helper.__code__.co_firstlineno + 1
    assert call.where == f"helper, line {call.line}"
    assert call.function is helper
    assert call.argument(1).literal
    assert call.argument(1).number == 0.2
    assert math.isnan(call.argument(0).number)
    assert call.argument(2, "other") is None


def test_what_is_followed_says_so():
    class Part:
        def forward(self, x):
            return helper(x), len(x)

    calls = {call.written: call.followed for call in SCANNER.calls(Part())}
    assert calls == {"helper": True, "len": False, "toy.dropout": False}


def test_a_target_that_cannot_be_told():
    class Part:
        def forward(self, x, attend):
            return attend(x, rate=0.1)

    (call,) = SCANNER.calls(Part())
    assert call.target is UNKNOWN
    assert call.argument(None, "rate").value == 0.1


def test_functions_without_source_are_named():
    names = {"toy": toy}
    exec("class Typed:\n    def forward(self, x):\n        return toy.dropout(x)", names)
    typed = names["Typed"]()
    assert found(typed) == []
    assert [function.__name__ for function in SCANNER.unread(typed)] == ["forward"]


def test_raising_attributes_are_unknown():
    class Part:
        @property
        def rate(self):
            raise RuntimeError

        def forward(self, x):
            return toy.dropout(x, self.rate)

    assert found(Part()) == [("toy.dropout", UNKNOWN)]


@pytest.fixture
def flat(tmp_path, monkeypatch):
    """A project of files in one folder, as a script has it."""

    def write(**files):
        for name, text in files.items():
            (tmp_path / f"{name}.py").write_text(textwrap.dedent(text))
            monkeypatch.delitem(sys.modules, name, raising=False)
        monkeypatch.syspath_prepend(tmp_path)
        return __import__("flat_model")

    yield write
    for name in ("flat_model", "flat_helpers", "flat_later"):
        sys.modules.pop(name, None)


def test_helpers_in_a_sibling_file(flat):
    model = flat(
        flat_model="""
            from flat_helpers import drop

            class Model:
                def forward(self, x):
                    from flat_later import later
                    return drop(later(x))
        """,
        flat_helpers="""
            import toy

            def drop(x):
                return toy.dropout(x, 0.1)
        """,
        flat_later="""
            from toy import dropout

            def later(x):
                return dropout(x, 0.2)
        """,
    ).Model()
    assert "flat_later" not in sys.modules
    assert sorted(found(model)) == [("dropout", 0.2), ("toy.dropout", 0.1)]


def test_a_module_that_cannot_be_imported_is_unknown(flat):
    model = flat(
        flat_model="""
            class Model:
                def forward(self, x):
                    from flat_later import later
                    import no_such_module
                    return later(no_such_module.drop(x))
        """,
        flat_later="1 / 0",
    ).Model()
    assert [call.target for call in SCANNER.calls(model)] == [UNKNOWN, UNKNOWN]


def test_names_that_are_bound_to_each_other_take_no_time():
    """All ways through ten of them would be some millions."""

    def mix(*args):
        return args

    class Tangled:
        def forward(self, a, b, c, d, e, f, g, h, i, j):
            for _ in range(2):
                a = mix(b, c, d, e, f, g, h, i, j)
                b = mix(a, c, d, e, f, g, h, i, j)
                c = mix(a, b, d, e, f, g, h, i, j)
                d = mix(a, b, c, e, f, g, h, i, j)
                e = mix(a, b, c, d, f, g, h, i, j)
                f = mix(a, b, c, d, e, g, h, i, j)
                g = mix(a, b, c, d, e, f, h, i, j)
                h = mix(a, b, c, d, e, f, g, i, j)
                i = mix(a, b, c, d, e, f, g, h, j)
                j = mix(a, b, c, d, e, f, g, h, i)
            return toy.dropout(j, 0.25)

    assert found(Tangled()) == [("toy.dropout", 0.25)]


def test_what_a_partial_looks_like():
    """As a hook that hides a method, in code that is not read."""

    class Hooked:
        def forward(self, x):
            return toy.dropout(x, 0.25)

    model = Hooked()
    model.forward = functools.update_wrapper(functools.partial(len, ()), model.forward)
    assert found(model) == [("toy.dropout", 0.25)]


def test_a_default_is_the_object_that_the_function_holds():
    def made_with(default):
        def run(x, drop=default):
            return drop(x, 0.4)

        return run

    assert found(made_with(toy.dropout)) == [("drop", 0.4)]
    assert found(made_with(len)) == []
