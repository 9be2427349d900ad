#!/bin/busybox sh
# The first process of the guest: loads modules, mounts the host's files (read-only) and the folder
# that both share (/run/share), runs what that folder says in `command`, writes its status beside it,
# and switches the machine off. What the command prints goes to the second serial port; the first is
# the kernel's. When something here fails, the process ends, the kernel panics, and qemu exits.
export PATH=/bin
/bin/busybox --install -s /bin
set -e

mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
while read -r module; do
  # A module for hardware that is not here refuses; what needs it says so later.
  insmod "/modules/$module" || echo "init: insmod $module failed" >/dev/console
done </modules/order

at="version=9p2000.L,trans=virtio,msize=512000"
mount -t 9p -o "$at,ro,cache=loose" root /host
for folder in proc sys dev; do mount --bind "/$folder" "/host/$folder"; done
mkdir -p /dev/shm
mount -t tmpfs shm /dev/shm
mount -t tmpfs run /host/run
mkdir -p /host/run/share
mount -t 9p -o "$at" share /host/run/share

status=0
chroot /host /bin/sh /run/share/command </dev/null >/dev/ttyS1 2>&1 || status=$?
echo "$status" >/host/run/share/status
umount /host/run/share
poweroff -f
