# What a guest of stock Linux knows of its place. /conf says which one it is: HOST, the last part of its addresses; HCA, IB and
# SOFT, the networks of its mlx5 on Ethernet or on InfiniBand and of its Soft-RoCE; SM, if its OpenSM manages the subnet; VLAN likewise, tagged 5; PAST, the one where the host's side has no IP stack.

# The shell has smaller programs of these names inside.
ip() { /usr/bin/ip "$@"; }
ping() { /usr/bin/ping "$@"; }

. /conf

# The network device of a driver.
netdev() {
    for net in /sys/bus/*/drivers/"$1"/*/net/*; do
        test -e "$net" && echo "${net##*/}" && return
    done
    return 1
}

# Gives a device the addresses of its networks.
addresses() {
    device=$1
    shift
    for net in "$@"; do
        ip addr add "192.168.$net.$HOST/24" dev "$device"
        ip -6 addr add "fd00:$net::$HOST/64" dev "$device" nodad
    done
}

# Names the network device of a driver, and sets it up on networks and on tagged networks.
network() {
    old=$(netdev "$1") || return
    test "$old" = "$2" || ip link set "$old" down
    test "$old" = "$2" || ip link set "$old" name "$2"
    ip link set "$2" mtu 4200 up || return
    addresses "$2" $3
    ip link add link "$2" name "$2.5" type vlan id 5 || return
    ip link set "$2.5" up
    addresses "$2.5" $4
}

# Waits for the subnet manager, which one of the guests is, and gives the IPoIB device the addresses of its networks.
infiniband() {
    test -z "$SM" || subnet_manager
    for try in $(seq 300); do
        grep -q ACTIVE /sys/class/infiniband/mlx5_0/ports/1/state && break
        sleep 0.2
    done
    for net in /sys/class/infiniband/mlx5_0/device/net/*; do
        test "${net##*/}" = hca || ip link set "${net##*/}" name hca || return
    done
    ip link set hca up || return
    addresses hca "$@"
    # Up is it with the broadcast group's record in hand.
    carrier 1
}

# Debian's OpenSM on the guest's port, with these options.
subnet_manager() {
    mkdir -p /var/log /var/cache/opensm /etc/opensm
    begin opensm opensm --sweep 2 --log_file /tmp/opensm.log "$@"
}

# Whether the port is, within so many seconds, in this state.
port_state() {
    for try in $(seq $(($1 * 5))); do
        grep -q "$2" /sys/class/infiniband/mlx5_0/ports/1/state && return
        sleep 0.2
    done
    cat /sys/class/infiniband/mlx5_0/ports/1/state
    return 1
}

# The GID index of an address on an RDMA device, for RoCE v2; of InfiniBand there is one GID.
gid() {
    grep -q InfiniBand "/sys/class/infiniband/$1/ports/1/link_layer" && echo 0 && return
    case $2 in
    *:*) wanted=$2 ;;
    *) wanted=::ffff:$2 ;;
    esac
    for file in $(grep -lix "$(long "$wanted")" /sys/class/infiniband/"$1"/ports/1/gids/* 2>/dev/null); do
        index=${file##*/}
        grep -q v2 "/sys/class/infiniband/$1/ports/1/gid_attrs/types/$index" && echo "$index" && return
    done
    echo "no GID of $2 on $1" >&2
    return 1
}

# An address as GIDs are written: all eight groups, all four digits.
long() {
    echo "$1" | awk '{
        if ($0 ~ /\./) {
            n = split(substr($0, 8), b, ".")
            printf "0000:0000:0000:0000:0000:ffff:%02x%02x:%02x%02x\n", b[1], b[2], b[3], b[4]
            exit
        }
        halves = split($0, half, "::")
        left = split(half[1], l, ":")
        right = halves > 1 ? split(half[2], r, ":") : 0
        for (i = 1; i <= 8; i++) {
            word = i <= left ? l[i] : i > 8 - right ? r[i - 8 + right] : "0"
            printf "%s%s", substr("0000" word, length(word) + 1), i < 8 ? ":" : "\n"
        }
    }'
}

# Starts a program that goes on by itself, under a name; one of that name that is still there is ended first.
begin() {
    name=$1
    shift
    test -e "/tmp/$name.pid" && stop "$name"
    rm -f "/tmp/$name".*
    : > "/tmp/$name.out"
    setsid sh -c 'name=$0; echo $$ > /tmp/$name.pid; "$@" > /tmp/$name.out 2>&1 < /dev/null; echo $? > /tmp/$name.status' "$name" "$@" &
}

# Waits until the server listens at a port, TCP or of the connection manager.
listening() {
    # A server of a hundred Endpoints, in a guest that waits for its processor, has taken longer than three seconds.
    for try in $(seq 40); do
        test -e /tmp/server.status && break
        netstat -ltn 2>/dev/null | grep -q ":$1 " && return
        rdma resource show cm_id 2>/dev/null | grep "state LISTEN" | grep -q "src-addr [^ ]*:$1 " && return
        sleep 0.3
    done
    cat /tmp/server.out
    echo "nothing listens at port $1" >&2
    return 1
}

# Ends a program that was begun. What the kernel has to take down of its connections may take a while: the port is free after that.
stop() {
    for try in $(seq 75); do
        kill -9 "-$(cat "/tmp/$1.pid")" 2>/dev/null || return 0
        sleep 0.2
    done
}

# Says what a program printed and how it ended; stops it if it does not end by itself in so many seconds, which is status 99.
reap() {
    for try in $(seq $(($2 * 5))); do
        test -e "/tmp/$1.status" && break
        sleep 0.2
    done
    if ! test -e "/tmp/$1.status"; then
        stop "$1"
        sleep 0.1
        tail -n 40 "/tmp/$1.out"
        return 99
    fi
    tail -n 40 "/tmp/$1.out"
    return "$(cat "/tmp/$1.status")"
}

# Whether the link of an HCA is as it should be (1 or 0), within five seconds.
carrier() {
    for try in $(seq 25); do
        test "$(cat /sys/class/net/hca/carrier)" = "$1" && return
        sleep 0.2
    done
    ip link show hca
    return 1
}

# Takes the drivers of the HCA out and puts them in again.
reload() {
    rmmod mlx5_ib mlx5_core && insmod /modules/*-mlx5_core.ko && insmod /modules/*-mlx5_ib.ko
}

# Waits until so many of the firmware's fatal reports have been recovered from.
recovered() {
    for try in $(seq 150); do
        devlink health show pci/0000:01:00.0 reporter fw_fatal | grep -q "state healthy error $1 recover $1" && break
        sleep 1
    done
    devlink health show pci/0000:01:00.0
    network mlx5_core hca "$HCA" "$HCA_VLAN"
    carrier 1
}

# The lines that a program has printed so far.
progress() { wc -l < "/tmp/$1.out"; }

# Names for DAT's registry: the stock provider over rdma_cm, at an address.
registry() {
    busybox mkdir -p /etc
    for net in "$@"; do
        echo "ia$net u2.0 nonthreadsafe default libdaplofa.so.2 dapl.2.0 \"192.168.$net.$HOST 0\" \"\""
    done > /etc/dat.conf
}

# Sets up everything that there is.
start() {
    registry $HCA $IB $SOFT
    ip link set lo up
    sysctl -q -w net.ipv4.conf.all.arp_ignore=1 net.ipv4.conf.all.arp_announce=2 \
        net.ipv6.conf.all.accept_dad=0 net.ipv6.conf.default.accept_dad=0 net.ipv4.ping_group_range="0 0"
    status=0
    # The way around, for programs that agree on something over TCP first.
    if e1000=$(netdev e1000); then
        ip link set "$e1000" name aside
        ip link set aside up
        ip addr add 10.0.2.15/24 dev aside
    fi
    # A way to the host's own address for TCP alone, for programs that insist on agreeing at the address that they connect to.
    for net in /sys/class/net/*; do
        test -n "$PAST" && grep -q 52:54:00:12:35:01 "$net/address" || continue
        ip link set "${net##*/}" name past
        ip link set past up
        ip addr add "192.168.$PAST.200/32" dev past
        ip route add "192.168.$PAST.3" dev past src "192.168.$PAST.200" table 100
        # By its number: nobody here knows protocols by name.
        ip rule add to "192.168.$PAST.3" ipproto 6 lookup 100
    done
    if test -n "$HCA"; then network mlx5_core hca "$HCA" "$HCA_VLAN" || status=1; fi
    if test -n "$IB"; then infiniband $IB || status=1; fi
    if test -n "$SOFT"; then
        network virtio_net soft "$SOFT" "$SOFT_VLAN" || status=1
        rdma link add rxe0 type rxe netdev soft || status=1
    fi
    return $status
}
