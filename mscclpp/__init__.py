"""Collectives that are chosen, tuned and written by their users.

    import mscclpp

    group = mscclpp.CommGroup()  # under torchrun
    algorithm = mscclpp.compile(write_program, spec)  # proved right, or an error with the line
    algorithm.execute(group.communicator, ..., executor=mscclpp.Executor(group.communicator))

Needs neither PyTorch nor a GPU.
"""

from mscclpp import ext as ext
from mscclpp import language as language
from mscclpp import utils as utils
from mscclpp._runtime import Communicator as Communicator
from mscclpp._version import version as version
from mscclpp.algorithm import Algorithm as Algorithm
from mscclpp.algorithm import AlgorithmCollection as AlgorithmCollection
from mscclpp.algorithm import CollectiveRequest as CollectiveRequest
from mscclpp.builder import AlgorithmBuilder as AlgorithmBuilder
from mscclpp.builder import AlgorithmCollectionBuilder as AlgorithmCollectionBuilder
from mscclpp.channels import BaseMemoryChannel as BaseMemoryChannel
from mscclpp.channels import BasePortChannel as BasePortChannel
from mscclpp.channels import Connection as Connection
from mscclpp.channels import Device as Device
from mscclpp.channels import DeviceType as DeviceType
from mscclpp.channels import EndpointConfig as EndpointConfig
from mscclpp.channels import Fifo as Fifo
from mscclpp.channels import Host2DeviceSemaphore as Host2DeviceSemaphore
from mscclpp.channels import Host2HostSemaphore as Host2HostSemaphore
from mscclpp.channels import MemoryChannel as MemoryChannel
from mscclpp.channels import MemoryDevice2DeviceSemaphore as MemoryDevice2DeviceSemaphore
from mscclpp.channels import PortChannel as PortChannel
from mscclpp.channels import ProxyService as ProxyService
from mscclpp.channels import RegisteredMemory as RegisteredMemory
from mscclpp.channels import Semaphore as Semaphore
from mscclpp.channels import SwitchChannel as SwitchChannel
from mscclpp.channels import Transport as Transport
from mscclpp.channels import TransportFlags as TransportFlags
from mscclpp.comm import CommGroup as CommGroup
from mscclpp.compiler import DslAlgorithm as DslAlgorithm
from mscclpp.compiler import compile as compile
from mscclpp.connections import connect_nvls_collective as connect_nvls_collective
from mscclpp.environment import Env as Env
from mscclpp.environment import adopt as _adopt
from mscclpp.environment import env as env
from mscclpp.errors import AbortedError as AbortedError
from mscclpp.errors import CommError as CommError
from mscclpp.errors import CommTimeoutError as CommTimeoutError
from mscclpp.errors import MismatchError as MismatchError
from mscclpp.errors import PeerLostError as PeerLostError
from mscclpp.errors import UnsupportedError as UnsupportedError
from mscclpp.executor import ExecutionPlan as ExecutionPlan
from mscclpp.executor import Executor as Executor
from mscclpp.folders import get_include as get_include
from mscclpp.folders import get_lib as get_lib
from mscclpp.forwarding import Bootstrap as Bootstrap
from mscclpp.language.utils import AlgoSpec as AlgoSpec
from mscclpp.memory import GpuBuffer as GpuBuffer
from mscclpp.memory import RawGpuBuffer as RawGpuBuffer
from mscclpp.native import compile_native as compile_native
from mscclpp.proof import CannotVerify as CannotVerify
from mscclpp.proof import NotProved as NotProved
from mscclpp.proof import Report as Report
from mscclpp.registration import register as register
from mscclpp.tuner import TunedConfig as TunedConfig
from mscclpp.tuner import Tuning as Tuning
from mscclpp.tuner import tune as tune
from mscclpp.types import AlgorithmType as AlgorithmType
from mscclpp.types import CollectiveBufferMode as CollectiveBufferMode
from mscclpp.types import CommResult as CommResult
from mscclpp.types import DataType as DataType
from mscclpp.types import PacketType as PacketType
from mscclpp.types import ReduceOp as ReduceOp

_adopt()


def is_nvls_supported() -> bool:
    """False: NVLink multicast is never used. Algorithms of that name are served without it."""
    return False


def is_bulk_supported() -> bool:
    """False: no header here has copies in bulk (TMA)."""
    return False
