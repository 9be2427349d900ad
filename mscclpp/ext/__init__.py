"""Where MSCCL++ has the builder of collections of algorithms."""

from mscclpp.builder import AlgorithmCollectionBuilder

__all__ = ["AlgorithmCollectionBuilder"]
