#!/bin/sh
# First program of the test machine, run by the static busybox of the
# initramfs: mounts the root file system (a read-only host folder under a
# throw-away overlay) and hands over to guest.sh.
export PATH=/bin
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev

fail() { echo "vm: init: $1"; echo o >/proc/sysrq-trigger; sleep 600; }
share() { mount -t 9p -o "trans=virtio,version=9p2000.L,msize=512000,$3" "$1" "$2" || fail "cannot mount $1"; }

while read -r module; do
    insmod "/modules/$module" || fail "cannot load $module"
done </modules/order

mkdir /host /lower /upper /newroot
share host /host ro,cache=loose
mount -t tmpfs -o size=75% tmpfs /upper && mkdir /upper/changes /upper/work
mkdir /run
share run /run rw,cache=none
. /run/config

lower=/host
if [ -n "$OTHER_ROOT" ]; then
    share root /lower ro,cache=loose
    lower=/lower
fi
mount -t overlay -o "lowerdir=$lower,upperdir=/upper/changes,workdir=/upper/work" overlay /newroot ||
    fail "cannot mount the root file system"

mkdir -p "/newroot/lib/modules/$KERNEL_VERSION"
mount -o bind "/host$KERNEL_MODULES" "/newroot/lib/modules/$KERNEL_VERSION" || fail "no modules"
if [ -n "$OTHER_ROOT" ]; then
    for dir in $HOST_FOLDERS; do
        mkdir -p "/newroot$dir"
        mount -o bind "/host$dir" "/newroot$dir" || fail "cannot show $dir"
    done
fi
umount /run

mount -t tmpfs tmpfs /newroot/run
mkdir /newroot/run/vm
share run /newroot/run/vm rw,cache=none
for dir in proc sys dev; do
    mount -o move "/$dir" "/newroot/$dir" || fail "cannot move /$dir"
done
exec switch_root /newroot /bin/sh /run/vm/guest.sh
