#!/bin/sh
# What an owner of two functions does with the package, on Debian as it is installed. systemd runs it
# once; the last line tells how it ended.
finish() {
    status=$?
    if [ $status != 0 ]; then
        systemctl status --no-pager --lines=30 "dat-listen@$one" || true
    fi
    echo "@@exit $status"
    systemctl poweroff --force --force
}
one=0000:01:00.0 two=0000:02:00.0
# What changes by itself: dpkg keeps its state before the last change.
aside='^/(dev|proc|sys|run|tmp|var/log|var/cache|var/lib/systemd|var/lib/private)/|^/var/lib/dpkg/(status-old|available|lock)'
files() {
    find / -xdev '(' -type f -o -type l ')' | grep -Ev "$aside" | sort
}
exec > /dev/console 2>&1
trap finish EXIT
set -e

# Modules of the kernel, which came beside the system.
version=$(uname -r)
mkdir -p "/lib/modules/$version"
for module in /modules/*; do
    if [ -e "$module" ]; then cp "$module" "/lib/modules/$version/${module##*/??-}"; fi
done
depmod "$version"

addgroup --system --quiet rdma
usermod --append --groups rdma nobody
files > /tmp/before
dpkg -i /package.deb
echo "@@installed"

# As README.Debian says: functions by their identifiers, a listener as a service.
sed "s/ids=.*/ids=15b3:$(cut -c3- /sys/bus/pci/devices/$one/device)/" \
    /usr/share/doc/dat-mlx5/examples/vfio-ids.conf > /etc/modprobe.d/vfio-ids.conf
modprobe vfio-pci
udevadm settle
ls -lLn /sys/bus/pci/devices/$one/driver > /dev/null
for file in /dev/vfio/[0-9]*; do
    stat -c '@@file %n %G %a' "$file"
done
dat list
echo 'OPTIONS=--ip 192.168.7.1/24' > "/etc/dat-mlx5/listen-$one.conf"
systemctl start "dat-listen@$one"
echo "@@started"

# A user of the group, without root's rights.
ulimit -l unlimited
setpriv --reuid nobody --regid nogroup --init-groups --inh-caps=-all \
    dat ping $two 192.168.7.1 --ip 192.168.7.2/24 --count 100 --timeout 60
echo "@@pinged"
DAT_STATUS_DIR=/run/dat-listen/$one dat top --once
systemctl is-active "dat-listen@$one"
systemctl stop "dat-listen@$one"
systemctl show --property Result --property ExecMainStatus "dat-listen@$one"
echo "@@stopped"

rm "/etc/dat-mlx5/listen-$one.conf" /etc/modprobe.d/vfio-ids.conf
dpkg -P dat-mlx5
files > /tmp/after
diff /tmp/before /tmp/after
echo "@@removed"
