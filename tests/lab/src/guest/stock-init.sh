#!/bin/busybox sh
# First process of a guest of stock Linux. Loads the drivers, then does what the console says: lines of a number, a limit in
# seconds and a command, each answered by what the command prints and `@@done NUMBER STATUS`.
export PATH=/usr/bin:/usr/sbin:/bin HOME=/root
busybox mount -t devtmpfs dev /dev
busybox mount -t proc proc /proc
busybox mount -t sysfs sys /sys
busybox mount -t tmpfs tmp /tmp
busybox stty -echo -onlcr
ulimit -l unlimited
. /lab.sh
for module in /modules/*.ko; do
    name=${module##*/??-}
    case " $SKIP " in *" ${name%.ko} "*) continue ;; esac
    busybox insmod "$module" || echo "@@ ${name%.ko} does not load"
done
( start )
echo "@@ready $?"
while read -r number limit command; do
    busybox timeout -k 5 "$limit" /bin/sh -c ". /lab.sh; $command" < /dev/null 2>&1
    echo "@@done $number $?"
done
busybox poweroff -f
