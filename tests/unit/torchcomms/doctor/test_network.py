"""Checks of interfaces, names, RDMA devices, and of connections between hosts."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from pathlib import Path

import pytest
from harness.doctor import host_of

from torchcomms.cli.doctor import network, rdma
from torchcomms.cli.doctor.addresses import Address, local_addresses
from torchcomms.cli.doctor.finding import BROKEN, GOOD, SLOW, Host

LO = Address("lo", "127.0.0.1", 8)
ETH = Address("eth0", "10.1.2.3", 16)
IB = Address("ib0", "10.9.0.1", 24)
LINK = Address("eth0", "fe80::1", 64)


@pytest.fixture(autouse=True)
def addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "local_addresses", lambda: [LO, ETH, LINK, IB])


def test_addresses_of_this_host() -> None:
    assert any(one.is_loopback and one.interface == "lo" for one in local_addresses())


@pytest.mark.parametrize(
    ("choice", "used"),
    [
        ("", [ETH, IB, LO]),
        ("eth0", [ETH]),
        ("ib*", [IB]),
        ("10.1.0.0/16", [ETH]),
        ("^eth0", [IB, LO]),
        ("ib0, eth0,^10.1.0.0/16", [IB]),
        ("eth1", []),
    ],
)
def test_interfaces_that_the_engine_uses(tmp_path: Path, choice: str, used: list[Address]) -> None:
    host = host_of(tmp_path, environ={"CTRAN_TCP_INTERFACES": choice})
    assert network.usable([LO, ETH, LINK, IB], host) == used


def test_a_file_names_the_interfaces_as_the_environment_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "variables"
    file.write_text("CTRAN_TCP_INTERFACES = ib0, eth7\nCTRAN_TCP_FAMILY = ipv4\n")
    monkeypatch.setenv("TORCHCOMM_CONFIG", str(file))
    assert network.usable([LO, ETH, LINK, IB], Host()) == [IB]
    monkeypatch.setenv("CTRAN_TCP_INTERFACES", "eth0")
    assert network.usable([LO, ETH, LINK, IB], Host()) == [ETH]


@pytest.mark.parametrize(
    ("files", "environ", "result", "said"),
    [
        ({"/sys/class/net/eth0/speed": "25000"}, {}, GOOD, "eth0, ib0 can be used"),
        ({"/sys/class/net/eth0/speed": "100"}, {}, SLOW, "eth0 has 100 Mbit/s"),
        ({"/sys/class/net/eth0/mtu": "576"}, {}, SLOW, "eth0 has an MTU of 576"),
        (
            {"/sys/class/net/eth0/speed": "100"},
            {"CTRAN_TCP_INTERFACES": "ib0"},
            GOOD,
            "ib0 can be used",
        ),
        ({}, {"CTRAN_TCP_INTERFACES": "lo"}, GOOD, "only loopback"),
        ({}, {"CTRAN_TCP_INTERFACES": "eth7"}, BROKEN, "there are: lo, eth0, ib0"),
        ({}, {"CTRAN_TCP_INTERFACES": "10.1.0.0/99"}, BROKEN, "10.1.0.0/99"),
        ({}, {"CTRAN_TCP_FAMILY": "ipv6"}, BROKEN, "'ipv6'"),
    ],
)
def test_interfaces(
    tmp_path: Path, files: Mapping[str, str], environ: Mapping[str, str], result: str, said: str
) -> None:
    found = network.interfaces(host_of(tmp_path, files, environ=environ))
    assert found.result == result
    assert said in found.reason


@pytest.mark.parametrize(
    ("answer", "result"), [("10.1.2.3", GOOD), ("127.0.1.1", SLOW), (None, SLOW)]
)
def test_hostname(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str | None, result: str
) -> None:
    def resolve(*_: object, **__: object) -> list[tuple[int, int, int, str, tuple[str, int]]]:
        if answer is None:
            raise socket.gaierror(-2, "Name or service not known")
        return [(2, 1, 6, "", (answer, 0))]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    assert network.hostname(host_of(tmp_path)).result == result


def test_master(tmp_path: Path) -> None:
    assert network.master(host_of(tmp_path)).result == GOOD
    assert network.master(host_of(tmp_path, environ={"MASTER_ADDR": "127.0.0.1"})).result == GOOD
    found = network.master(host_of(tmp_path, environ={"MASTER_ADDR": "no.such.host.invalid"}))
    assert found.result == BROKEN
    assert "no.such.host.invalid" in found.reason


PORT = "/sys/class/infiniband/mlx5_0/ports/1"
NO_GID = "0000:0000:0000:0000:0000:0000:0000:0000"
FABRIC = {
    f"{PORT}/state": "4: ACTIVE",
    f"{PORT}/rate": "400 Gb/sec (4X NDR)",
    f"{PORT}/link_layer": "InfiniBand",
    f"{PORT}/gids/0": "fe80:0000:0000:0000:0000:0000:0000:0001",
    f"{PORT}/gids/1": NO_GID,
    "/dev/infiniband/uverbs0": "",
}


@pytest.mark.parametrize(
    ("change", "result", "said"),
    [
        ({}, GOOD, "1 port is active; ctran and NCCL use RDMA between hosts"),
        ({f"{PORT}/state": "1: DOWN"}, SLOW, "no port"),
        ({f"{PORT}/gids/0": NO_GID}, SLOW, "without a GID"),
        ({f"{PORT[:-1]}2/state": "1: DOWN"}, SLOW, "mlx5_0:2: not active"),
    ],
)
def test_rdma(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: dict[str, str],
    result: str,
    said: str,
) -> None:
    monkeypatch.setattr(rdma, "can_load", lambda _: True)
    found = rdma.devices(host_of(tmp_path, FABRIC | change))
    assert found.result == result
    assert said in found.reason
    assert "mlx5_0:1: " in found.details[0]


FIRST = {"CTRAN_IB_HCA": "mlx5_0"}


@pytest.mark.parametrize(
    ("environ", "result", "said"),
    [
        ({}, SLOW, "mlx5_1:1: not active"),
        (FIRST, GOOD, "1 port is active; ctran and NCCL use RDMA"),
        ({"CTRAN_IB_HCA": "=mlx5_0:1"}, GOOD, "1 port is active; ctran and NCCL use RDMA"),
        ({"CTRAN_IB_HCA": "^mlx5_1,x"}, GOOD, "1 port is active; ctran and NCCL use RDMA"),
        ({"CTRAN_IB_HCA": "=mlx5"}, SLOW, "CTRAN_IB_HCA==mlx5 leaves no port"),
        ({"CTRAN_IB_HCA": "mlx5_0:2"}, SLOW, "CTRAN_IB_HCA=mlx5_0:2 leaves no port"),
        ({"CTRAN_IB_HCA": "mlx5_1"}, SLOW, "no port of an RDMA device is active: mlx5_1:1"),
        ({"CTRAN_IB_HCA": "mlx5_0:x"}, BROKEN, "'mlx5_0:x' has no port number"),
        ({**FIRST, "CTRAN_IB": "Off"}, GOOD, "ctran talks TCP, as CTRAN_IB is off"),
        ({**FIRST, "CTRAN_VERBS_LIBRARY": "/no.so"}, SLOW, "CTRAN_VERBS_LIBRARY=/no.so cannot"),
        ({**FIRST, "CTRAN_VERBS_LIBRARY": "libc.so.6"}, GOOD, "1 port is active"),
    ],
)
def test_rdma_as_the_engine_is_told(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    environ: Mapping[str, str],
    result: str,
    said: str,
) -> None:
    monkeypatch.setattr(rdma, "_LIBRARY", "libc.so.6")
    files = FABRIC | {f"{PORT.replace('mlx5_0', 'mlx5_1')}/state": "1: DOWN"}
    found = rdma.devices(host_of(tmp_path, files, environ=environ))
    assert found.result == result
    assert said in found.reason


def test_rdma_that_cannot_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert rdma.devices(host_of(tmp_path / "none")).result == GOOD
    monkeypatch.setattr(rdma, "can_load", lambda _: False)
    found = rdma.devices(host_of(tmp_path, FABRIC))
    assert found.result == SLOW
    assert "libibverbs" in found.todo
    (tmp_path / "dev/infiniband/uverbs0").unlink()
    assert "--device=/dev/infiniband" in rdma.devices(host_of(tmp_path)).todo
