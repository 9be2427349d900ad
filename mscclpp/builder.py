"""Collections of algorithms, and who chooses among them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mscclpp.algorithm import Algorithm, AlgorithmCollection, Selector
from mscclpp.defaults import default_algorithms

__all__ = ["AlgorithmBuilder", "AlgorithmCollectionBuilder"]


class AlgorithmBuilder:
    """Something that makes an algorithm when a collection is built: derive from it, or wrap a
    function."""

    def __init__(self, make: Callable[[], Algorithm] | None = None) -> None:
        self._make = make

    def build(self) -> Algorithm:
        """The algorithm."""
        if self._make is None:
            raise NotImplementedError(f"{type(self).__name__} must have a method build()")
        return self._make()


class AlgorithmCollectionBuilder:
    """Makes collections of algorithms. Each builder is one of its own: what it was given belongs to
    those who hold it, and not to the process."""

    def __init__(self) -> None:
        self._builders: list[Algorithm | AlgorithmBuilder] = []
        self._selector: Selector | None = None
        self._fallback: Selector | None = None

    def add_algorithm_builder(self, algorithm: Algorithm | AlgorithmBuilder) -> None:
        """An algorithm, or what builds one, for the next `build`."""
        if not isinstance(algorithm, (Algorithm, AlgorithmBuilder)):
            raise TypeError(f"{algorithm!r} is neither an Algorithm nor an AlgorithmBuilder")
        self._builders.append(algorithm)

    def set_algorithm_selector(self, selector: Selector) -> None:
        """Who is asked first: a function of the algorithms, {collective: {name: Algorithm}}, and a
        CollectiveRequest, that returns an algorithm or None."""
        self._selector = _callable(selector)

    def set_fallback_algorithm_selector(self, selector: Selector) -> None:
        """Who is asked when the selector returned None."""
        self._fallback = _callable(selector)

    def build(self) -> AlgorithmCollection:
        """What was added, with the selectors."""
        algorithms = [
            one.build() if isinstance(one, AlgorithmBuilder) else one for one in self._builders
        ]
        for algorithm in algorithms:
            if not isinstance(algorithm, Algorithm):
                raise TypeError(f"a builder must build an Algorithm, not {algorithm!r}")
        return self._collection(algorithms)

    def build_default_algorithms(
        self,
        scratch_buffer: int = 0,
        scratch_buffer_size: int = 0,
        flag_buffer: int = 0,
        flag_buffer_size: int = 0,
        rank: int = -1,
    ) -> AlgorithmCollection:
        """The algorithms that are there by default. The engine has scratch and flags of its own, so
        those that are passed are left alone."""
        for name, number in (
            ("scratch_buffer", scratch_buffer),
            ("scratch_buffer_size", scratch_buffer_size),
            ("flag_buffer", flag_buffer),
            ("flag_buffer_size", flag_buffer_size),
        ):
            if not isinstance(number, int) or number < 0:
                raise ValueError(f"{name} must be an address or a size, not {number!r}")
        return self._collection(default_algorithms())

    def reset(self) -> None:
        """Forgets all that it was given."""
        self.__init__()  # type: ignore[misc]

    # As the C++ interface spells them.
    addAlgorithmBuilder = add_algorithm_builder
    setAlgorithmSelector = set_algorithm_selector
    setFallbackAlgorithmSelector = set_fallback_algorithm_selector
    buildDefaultAlgorithms = build_default_algorithms

    def _collection(self, algorithms: list[Algorithm]) -> AlgorithmCollection:
        collection = AlgorithmCollection(self._selector, self._fallback)
        for algorithm in algorithms:
            collection.register_algorithm(algorithm.collective, algorithm.name, algorithm)
        return collection


def _callable(selector: Any) -> Selector:
    if not callable(selector):
        raise TypeError(f"a selector is a function, not {selector!r}")
    return selector  # type: ignore[no-any-return]
