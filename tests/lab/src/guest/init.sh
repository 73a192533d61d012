#!/bin/busybox sh
# First process of the guest. Loads VFIO, plays the scenario's script, tells how it ended and powers off.
export PATH=/bin HOME=/
busybox mount -t devtmpfs dev /dev
busybox mount -t proc proc /proc
busybox mount -t sysfs sys /sys
busybox mount -t tmpfs tmp /tmp

for module in /modules/*.ko; do
    test -e "$module" || continue
    name=${module##*/??-}
    busybox insmod "$module" $(busybox cat "/modules/${name%.ko}.parameters" 2>/dev/null) || echo "@@ $module does not load"
done

# Gives PCI functions to VFIO.
bind() {
    for address in "$@"; do
        echo vfio-pci > "/sys/bus/pci/devices/$address/driver_override" &&
            echo "$address" > /sys/bus/pci/drivers_probe
        test -e "/sys/bus/pci/devices/$address/driver" || { echo "@@ $address is not bound to vfio-pci"; return 1; }
    done
}

# Pages of 2 MiB: the vIOMMU tells the device of each page, small or large.
huge() {
    echo "$1" > /proc/sys/vm/nr_hugepages
}

scenario() {
    set -e
    . /scenario
}
( scenario )
echo "@@exit $?"
busybox poweroff -f
