#pragma once

#include <chrono>
#include <vector>

#include "ctran/os/net_address.h"
#include "ctran/os/socket.h"

namespace ctran {

using TcpSocket = Socket;

/// How long a peer's host may be silent before it counts as lost (CTRAN_TCP_LOST_MILLIS).
std::chrono::milliseconds lostAfter();

/// Listens at a free port of all of `addresses`, whose ports are set to it.
TcpSocket listenTcp(std::vector<NetAddress>& addresses);

/// Begins to connect, from an address of this host or, if `from` is none, by the route; if that
/// fails, reading says why. Throws Error(System) if there is no way to that address.
TcpSocket beginConnect(const NetAddress& address, const NetAddress& from = {});

/// Whether all of `addresses` refuse: nobody listens there. Each gets so long to answer.
bool refuse(const std::vector<NetAddress>& addresses, std::chrono::milliseconds patience);

/// acceptOne, of TCP.
TcpSocket acceptTcp(const TcpSocket& listener);

}  // namespace ctran
