#!/bin/sh
# Runs in the guest, in the host's files: makes a soft-RoCE device rxe0 on one end of a veth pair,
# then becomes the command that it is given.
set -e
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/run LC_ALL=C TERM=dumb

ip link set lo up
ip link add roce0 type veth peer name roce1
ip address add 10.77.0.1/24 dev roce0
ip link set roce1 up
ip link set roce0 up
rdma link add rxe0 type rxe netdev roce0
exec "$@"
