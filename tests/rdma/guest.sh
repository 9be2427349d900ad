#!/bin/sh
# Runs in the guest, in the host's files: makes a soft-RoCE device rxe0 on one end of a veth pair,
# or, in one machine of two, on its network card; then becomes the command that it is given. The
# kernel's parameter `machine`, which is a variable here, says which machine of two it is.
set -e
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/run LC_ALL=C TERM=dumb

ip link set lo up
if [ -n "$machine" ]; then
  card=eth0
  mkdir /run/both
  mount -t 9p -o version=9p2000.L,trans=virtio,msize=512000 both /run/both
  export MACHINE_OF_TWO="$machine"
else
  card=roce0
  ip link add roce0 type veth peer name roce1
  ip link set roce1 up
fi
ip address add "10.77.0.$((${machine:-0} + 1))/24" dev "$card"
ip link set "$card" up
rdma link add rxe0 type rxe netdev "$card"
exec "$@"
