# PID 1 of the test machine after init.sh: brings up the network and the RDMA
# device, runs the command, leaves its exit status in /run/vm/status and
# switches the machine off.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8
cd /

# Nothing can be started once the disks are gone, not even sleep.
off() { echo o >/proc/sysrq-trigger; while :; do :; done; }
fail() { echo "vm: guest: $1"; echo "setup: $1" >/run/vm/status; off; }
need() { "$@" || fail "failed: $*"; }

. /run/vm/config

mkdir -p /dev/shm /dev/pts
need mount -t tmpfs tmpfs /dev/shm
need mount -t devpts -o ptmxmode=666 devpts /dev/pts
ln -sf /proc/self/fd /dev/fd
ln -sf /proc/self/fd/0 /dev/stdin
ln -sf /proc/self/fd/1 /dev/stdout
ln -sf /proc/self/fd/2 /dev/stderr

i=1
for tag in $SHARES; do
    eval "dir=\$SHARE_$i"
    mkdir -p "$dir"
    need mount -t 9p -o trans=virtio,version=9p2000.L,msize=512000,cache=none "$tag" "$dir"
    i=$((i + 1))
done

# The rxe driver of 6.1 needs crc32_generic and does not pull it in; later
# kernels have no such module.
modprobe -q crc32_generic
need modprobe -a rdma_rxe ib_uverbs rdma_ucm
need ip link set lo up
if [ -z "$HOST" ]; then
    netdev=veth0 net=99 host=1 peer=2
    # The peer end lives in a network namespace: it answers ARP, never RDMA.
    need modprobe veth
    need ip netns add peer
    need ip link add veth0 type veth peer name veth1 netns peer
    need ip netns exec peer ip link set veth1 up
    need ip netns exec peer ip addr add 10.99.0.2/24 dev veth1
else
    netdev=eth0 net=98 host=$HOST peer=$((3 - HOST))
    need modprobe virtio_net
fi
need ip link set "$netdev" up
need ip addr add "10.$net.0.$host/24" dev "$netdev"
need ip addr add "fd$net::$host/64" dev "$netdev" nodad
need rdma link add rxe0 type rxe netdev "$netdev"
# From here on a machine that fails is not booted again: another may rely on it.
: >/run/vm/begun
if [ -n "$HOST" ]; then
    # Both must have their device before either starts.
    mkdir /run/link
    need mount -t 9p -o trans=virtio,version=9p2000.L,cache=none link /run/link
    : >"/run/link/ready$host"
    until [ -e "/run/link/ready$peer" ]; do sleep 0.1; done
fi

export RDMACM_TEST_IP=10.$net.0.$host RDMACM_TEST_IP6=fd$net::$host
export RDMACM_TEST_PEER_IP=10.$net.0.$peer RDMACM_TEST_DEV=rxe0 RDMACM_TEST_NETDEV=$netdev
[ -z "$HOST" ] || export RDMACM_TEST_HOST="$HOST"

ulimit -l unlimited
ulimit -c 0

port=
for try in $(seq 600); do
    for dir in /sys/class/virtio-ports/*; do
        [ "$(cat "$dir/name" 2>/dev/null)" = output ] && port=/dev/${dir##*/}
    done
    [ -n "$port" ] && break
    sleep 0.1
done
[ -n "$port" ] || fail "no output port"

# The command gets a pipe, not the port itself: the port can be opened once
# only, so /dev/stdout would not work.
mkfifo /run/output
cat /run/output >"$port" &
cat=$!
sh /run/vm/command.sh </dev/null >/run/output 2>&1 &
command=$!
wait "$command"
status=$?

# Whatever the command left running holds the pipe open: end it, so that all
# output is delivered.
for dir in /proc/[0-9]*; do
    pid=${dir#/proc/}
    [ "$pid" = 1 ] || [ "$pid" = "$cat" ] || kill -KILL "$pid" 2>/dev/null
done
wait "$cat"
echo "$status" >/run/vm/status
off
